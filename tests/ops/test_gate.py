"""The step of gradient gating: all backends against a float64 loop."""

import numpy as np
import pytest
import torch
from edge_lists import WIDTHS, draw, needs_compiler
from torch import Tensor

from physml.errors import InputError
from physml.ops.gate import gate, native

BACKENDS = ("reference", "torch", "native")


@pytest.fixture
def compiler() -> None:
    needs_compiler(native.SOURCE)


def given(n: int, h: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X, new features, sums along edges, shares."""
    return draw(n, h), draw(n, h, seed=2), draw(n, h, seed=3).abs(), draw(n, 1, seed=4).abs()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", BACKENDS)
def test_steps_against_a_loop_and_their_slopes(name: str, shared: bool):
    x, new, total, share = given(4, 3)
    wanted, rates = np.zeros((4, 3)), np.zeros((4, 3))
    for i in range(4):
        for h in range(3):
            tau = np.tanh(float(share[i, 0] if shared else 1) * float(total[i, h]))
            rates[i, h] = tau
            wanted[i, h] = (1 - tau) * float(x[i, h]) + tau * float(new[i, h])
    s = share if shared else None
    out, rate = gate(x, new, total, s, backend=name)
    np.testing.assert_allclose(out, wanted, atol=1e-14)
    np.testing.assert_allclose(rate, rates, atol=1e-14)
    tensors = tuple(t.requires_grad_() for t in (x, new, total))
    for pick in (lambda pair: pair, lambda pair: pair[0], lambda pair: pair[1]):
        assert torch.autograd.gradcheck(
            lambda x, new, t, pick=pick: pick(gate(x, new, t, s, backend=name)), tensors
        )


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("h", [1, 7, 16, 33, 256])
@pytest.mark.parametrize("dtype, close", [(torch.float32, 5e-6), (torch.float64, 1e-13)])
def test_c_against_torch(dtype: torch.dtype, close: float, h: int, flags: str, monkeypatch):
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    found = []
    for name in ("torch", "native"):
        x, new, total, share = (t.to(dtype).requires_grad_(i < 3) for i, t in enumerate(given(9, h)))
        out, rate = gate(x, new, total, share, backend=name)
        (out * draw(9, h, seed=5).to(dtype)).sum().backward()
        found.append((out.detach(), rate.detach(), x.grad, new.grad, total.grad))
    torch.testing.assert_close(*found, rtol=close, atol=close)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shut_gates_keep_and_open_ones_replace_to_the_bit(dtype: torch.dtype, name: str):
    x, new = 1e3 * draw(40, 20).to(dtype), draw(40, 20, seed=2).to(dtype)
    total = torch.zeros_like(x)
    total[:, ::2] = 30.0
    out, rate = gate(x, new, total, backend=name)
    assert torch.equal(out[:, 1::2], x[:, 1::2]) and torch.equal(out[:, ::2], new[:, ::2])
    assert (rate[:, 1::2] == 0).all() and (rate[:, ::2] == 1).all()


@pytest.mark.usefixtures("compiler")
def test_the_number_of_threads_changes_no_bit(monkeypatch):
    found = []
    for n in (1, 2, 7):
        monkeypatch.setattr(native.call, "threads", lambda *_, n=n: n)
        x, new, total, share = (t.float().requires_grad_(i < 3) for i, t in enumerate(given(9, 70)))
        out, _ = gate(x, new, total, share, backend="native")
        out.square().sum().backward()
        found.append((out.detach(), x.grad, new.grad, total.grad))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
def test_columns_may_lie_apart_and_a_step_may_lead_nowhere(name: str):
    x, new, total = (draw(3, 4, seed=k).T.requires_grad_() for k in range(3))
    share = draw(2, 4).T[:, :1]
    out, _ = gate(x, new, total, share, backend=name)
    torch.testing.assert_close(out, gate(x, new, total, share, backend="reference")[0])
    out.sum().backward()  # its gradient is one number
    assert (x.grad + new.grad - 1).abs().max() < 1e-12


@pytest.mark.parametrize("changed", [1, 2, 3])
def test_what_does_not_fit_is_refused(changed: int):
    tensors = list(given(4, 3))
    tensors[changed] = draw(4, 2)
    with pytest.raises(InputError, match=r"needs x, new and total \(N, H\) and share \(N, 1\)"):
        gate(*tensors)
