"""The step of gradient gating: all backends against a float64 loop."""

import numpy as np
import pytest
import torch
from edge_lists import ODD, N, draw, edges
from torch import Tensor
from variants import variants

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops.gate import gate

BACKENDS = ("reference", "torch", "native")


def given(n: int, h: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X, new features, what the rates look at, shares."""
    return draw(n, h), draw(n, h, seed=2), draw(n, h, seed=3), draw(n, 1, seed=4).abs()


def by_loop(x: Tensor, new: Tensor, q: Tensor, share: Tensor, of: Edges, p: float) -> tuple[np.ndarray, ...]:
    mixed, rates = np.zeros(tuple(x.shape)), np.zeros(tuple(x.shape))
    pairs = list(zip(of.sender.tolist(), of.receiver.tolist(), strict=True))
    for i, h in np.ndindex(mixed.shape):
        total = sum(abs(float(q[r, h]) - float(q[i, h])) ** p for s, r in pairs if s == i)
        rates[i, h] = tau = np.tanh(float(share[i, 0]) * total)
        mixed[i, h] = (1 - tau) * float(x[i, h]) + tau * float(new[i, h])
    return mixed, rates


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("p", variants([1.0, 2.5], [1.5, 2.0, 7.5]))
@pytest.mark.parametrize("name", BACKENDS)
def test_steps_against_a_loop(name: str, p: float):
    x, new, q, share = given(N, 3)
    for s, each in ((share, share), (None, torch.ones(N, 1))):
        out, rate = gate(x, new, q, edges(ODD), p, s, backend=name)
        expected, rates = by_loop(x, new, q, each, edges(ODD), p)
        np.testing.assert_allclose(out, expected, atol=1e-13)
        np.testing.assert_allclose(rate, rates, atol=1e-13)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("own", [True, False], ids=["own gate", "one coupling"])
@pytest.mark.parametrize("p", [2.0, 2.5])
@pytest.mark.parametrize("name", BACKENDS)
def test_slopes_of_features_and_of_rates(name: str, p: float, own: bool):
    x, new, q, share = given(N, 2)
    tensors = tuple(t.requires_grad_() for t in ((x, new, q) if own else (x, new)))
    for kept in (slice(0, 2), slice(0, 1), slice(1, 2)):  # both, the features alone, the rates alone

        def step(x: Tensor, new: Tensor, q: Tensor | None = None, kept: slice = kept) -> tuple[Tensor, ...]:
            return gate(x, new, new if q is None else q, edges(ODD), p, share, backend=name)[kept]

        assert torch.autograd.gradcheck(step, tensors)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shut_gates_keep_and_open_ones_replace_to_the_bit(dtype: torch.dtype, name: str):
    x, new, q, _ = (t.to(dtype) for t in given(N, 20))
    q = 1e6 * q.abs().cumsum(0)  # far from each other, but for one pair of nodes that agree
    q[2] = q[1]
    out, rate = gate(1e3 * x, new, q, edges(torch.tensor([[0, 1, 3, 4], [1, 2, 4, 0]])), 2.0, backend=name)
    kept = [1, 2, 5]  # agrees with all that it sends to, or sends nothing
    assert torch.equal(out[kept], 1e3 * x[kept]) and (rate[kept] == 0).all()
    assert torch.equal(out[[0, 3, 4]], new[[0, 3, 4]]) and (rate[[0, 3, 4]] == 1).all()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
def test_a_gate_that_looks_at_the_same_memory_is_another_tensor(name: str):
    x, new, _, _ = given(N, 3)
    new, gradients = new.requires_grad_(), []
    for q in (new, new.view_as(new)):
        out, _ = gate(x, new, q, edges(ODD), 2.0, backend=name)
        gradients.append(torch.autograd.grad(out.sum(), new)[0])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("changed", [0, 1, 2, 3])
def test_what_does_not_fit_is_refused(changed: int):
    x, new, q, share = (draw(5, 2) if i == changed else t for i, t in enumerate(given(N, 3)))
    with pytest.raises(InputError, match=r"needs x, new and q \(6, H\) and share \(6, 1\); got \("):
        gate(x, new, q, edges(ODD), 2.0, share)
