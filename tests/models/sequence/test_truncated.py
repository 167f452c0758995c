"""Truncated backpropagation through time: the outputs of an LSTM, the gradients of its last steps."""

import pytest
import torch
from torch import Tensor

from physml.base.errors import InputError
from physml.models.count import count_parameters
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.truncated import TruncatedLSTM

D, H, T = 3, 5, 9


def make(last: int = 4) -> TruncatedLSTM:
    torch.manual_seed(0)
    return TruncatedLSTM(D, H, last=last).double()


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def loop(layer: TruncatedLSTM, u: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One sequence, step by step; what the gradient must not pass is detached."""
    path = []
    for n, x in enumerate(u):
        s = layer.symbols()
        if n < len(u) - layer.last:
            s, x = {k: v.detach() for k, v in s.items()}, x.detach()
            h, c = h.detach(), c.detach()
        i, f, o = (torch.sigmoid(s["W" + k] @ h + s["V" + k] @ x + s["b" + k]) for k in "ifo")
        c = f * c + i * torch.tanh(s["Wg"] @ h + s["Vg"] @ x + s["bg"])
        h = o * torch.tanh(c)
        path.append(h)
    return torch.stack(path), h, c


@pytest.mark.parametrize("last", [1, 4, T - 1, T, T + 5])
def test_outputs_and_gradients_equal_those_of_a_loop(last: int) -> None:
    layer, u = make(last), noise(2, T, D).requires_grad_()
    state = (0.5 * noise(2, H), 0.5 * noise(2, H) + 1)
    push = noise(2, T, H)
    found, outputs = [], []
    rows = [loop(layer, u[i], state[0][i], state[1][i]) for i in range(2)]
    for path, h, c in (
        (lambda r: (r[0], *r[1]))(layer(u, state)),
        tuple(torch.stack(x) for x in zip(*rows, strict=True)),
    ):
        outputs.append((path, h, c))
        target = (path * push).sum() + (h * h).sum() + (c * c).sum()
        found.append(torch.autograd.grad(target, [u, *layer.parameters()]))
    for got, wanted in zip(*outputs, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-12)
    assert all(g.abs().sum() > 0 for g in found[0])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


def test_gradients_stop_k_steps_before_the_end() -> None:
    layer, u = make(4), noise(2, T, D).requires_grad_()
    (grad,) = torch.autograd.grad(layer(u)[0][:, -1].sum(), u)
    size = grad.abs().sum((0, 2))
    assert (size[:-4] == 0).all() and (size[-4:] > 0).all()


def test_the_first_steps_still_reach_the_output() -> None:
    layer, u = make(2), noise(1, T, D)
    changed = u.clone()
    changed[0, 0] += 1
    assert not torch.equal(layer(u)[0][:, -1], layer(changed)[0][:, -1])


@pytest.mark.parametrize("last", [T, 100])
def test_with_all_steps_it_is_torchs_lstm(last: int) -> None:
    layer, u = make(last), noise(2, T, D).requires_grad_()
    path, plain = layer(u)[0], layer.cell(u)[0]
    torch.testing.assert_close(path, plain, rtol=1e-12, atol=1e-14)
    for got, want in zip(
        torch.autograd.grad(path.sum(), [u, *layer.parameters()]),
        torch.autograd.grad(plain.sum(), [u, *layer.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13)


def test_two_halves_with_carried_state_equal_one_pass() -> None:
    layer, u = make(), noise(2, 11, D)
    whole, end = layer(u)
    first, state = layer(u[:, :4])
    second, last = layer(u[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    for got, wanted in zip(last, end, strict=True):
        torch.testing.assert_close(got, wanted)


def test_count_is_the_printed_one() -> None:
    net = SequenceModel(lambda d: TruncatedLSTM(d, 32, last=500), 6, 5, readout="last", tokens=False)
    assert count_parameters(net) == 5_285  # printed: 5.3k


@pytest.mark.parametrize("name", ["d_in", "d_hidden", "last"])
def test_sizes_must_be_positive(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be positive"):
        TruncatedLSTM(**{"d_in": 2, "d_hidden": 3, "last": 4} | {name: 0})
