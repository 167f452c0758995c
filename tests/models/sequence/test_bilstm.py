"""The bidirectional LSTM behind a convolution, against loops written from its equations."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from physml.base.errors import InputError
from physml.models.count import count_parameters
from physml.models.sequence.bilstm import BiLSTM
from physml.models.sequence.rnn import SequenceModel

D, H, T = 3, 5, 9


def make(kernel: int | None = 3, order: Literal["read", "time"] = "read") -> BiLSTM:
    torch.manual_seed(0)
    return BiLSTM(D, H, kernel=kernel, order=order).double()


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def convolved(layer: BiLSTM, u: Tensor) -> Tensor:
    """One sequence (T, D), step by step."""
    assert layer.conv is not None and layer.conv.bias is not None and layer.kernel is not None
    C, c, k = layer.conv.weight, layer.conv.bias, layer.kernel
    rows = []
    for n in range(len(u)):
        x = c.clone()
        for j in range(k):
            at = n + j - (k - 1) // 2
            if 0 <= at < len(u):
                x = x + C[:, :, j] @ u[at]
        rows.append(x)
    return torch.stack(rows)


def read(s: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """All h of one LSTM over one sequence (T, D), and the last c."""
    h, c = x.new_zeros(H), x.new_zeros(H)
    path = []
    for u in x:
        i, f, o = (torch.sigmoid(s["W" + g] @ h + s["V" + g] @ u + s["b" + g]) for g in "ifo")
        c = f * c + i * torch.tanh(s["Wg"] @ h + s["Vg"] @ u + s["bg"])
        h = o * torch.tanh(c)
        path.append(h)
    return torch.stack(path), c


def loop(layer: BiLSTM, u: Tensor) -> tuple[Tensor, list[Tensor]]:
    forwards, backwards = layer.symbols()
    paths, ends = [], []
    for row in u:
        x = row if layer.conv is None else convolved(layer, row)
        there, c1 = read(forwards, x)
        back, c2 = read(backwards, x.flip(0))
        paths.append(torch.cat([there, back if layer.order == "read" else back.flip(0)], 1))
        ends.append((there[-1], c1, back[-1], c2))
    return torch.stack(paths), [torch.stack(e) for e in zip(*ends, strict=True)]


@pytest.mark.parametrize("order", ["read", "time"])
@pytest.mark.parametrize("kernel", [None, 1, 3, 7])
def test_equals_a_loop_from_the_equations(kernel: int | None, order: Literal["read", "time"]) -> None:
    layer, u = make(kernel=kernel, order=order), noise(2, T, D)
    path, ends = layer(u)
    want, want_ends = loop(layer, u)
    torch.testing.assert_close(path, want, rtol=1e-11, atol=1e-12)
    for got, wanted in zip(ends, want_ends, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-12)


def test_gradients_equal_those_of_the_loop() -> None:
    layer, u = make(), noise(2, T, D).requires_grad_()
    push = noise(2, T, 2 * H)
    found = []
    for run in (layer.forward, lambda u: loop(layer, u)):
        path, ends = run(u)
        target = (path * push).sum() + sum((x * x).sum() for x in ends)
        found.append(torch.autograd.grad(target, [u, *layer.parameters()]))
    assert all(g.abs().sum() > 0 for g in found[0])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


def test_without_a_convolution_in_the_order_of_time_it_is_torchs() -> None:
    layer, u = make(kernel=None, order="time"), noise(3, T, D)
    torch.testing.assert_close(layer(u)[0], layer.cell(u)[0], rtol=1e-12, atol=1e-14)


def test_the_last_output_has_seen_every_step_in_both_directions() -> None:
    layer, u = make(kernel=None), noise(1, T, D).requires_grad_()
    last = layer(u)[0][0, -1]
    for half in last.split(H):
        (grad,) = torch.autograd.grad(half.sum(), u, retain_graph=True)
        assert (grad[0].abs().sum(1) > 0).all()


def test_in_the_order_of_time_the_last_output_has_read_one_step_backwards() -> None:
    layer, u = make(kernel=None, order="time"), noise(1, T, D).requires_grad_()
    (grad,) = torch.autograd.grad(layer(u)[0][0, -1, H:].sum(), u)
    assert grad[0, :-1].abs().sum() == 0 < grad[0, -1].abs().sum()


def test_a_reversed_sequence_swaps_the_directions_once_their_weights_are_equal() -> None:
    layer, u = make(kernel=None), noise(2, T, D)
    with torch.no_grad():
        for forwards, backwards in zip(*layer.cell.all_weights, strict=True):
            backwards.copy_(forwards)
    path, mirrored = layer(u)[0], layer(u.flip(1))[0]
    torch.testing.assert_close(path, torch.cat([mirrored[..., H:], mirrored[..., :H]], 2))


@pytest.mark.parametrize("kernel", [7, 9])
def test_the_printed_count_is_met_by_kernels_of_7_and_9_steps(kernel: int) -> None:
    net = SequenceModel(lambda d: BiLSTM(d, 22, kernel=kernel), 6, 5, readout="last", tokens=False)
    both = 2 * 4 * (22 * 6 + 22 * 22 + 2 * 22)
    assert count_parameters(net) == both + 6 * 6 * kernel + 6 + 5 * 44 + 5
    assert count_parameters(net) == {7: 5_763, 9: 5_835}[kernel]
    assert round(count_parameters(net), -2) == 5_800


@pytest.mark.parametrize("kernel", [0, 2, -3])
def test_a_kernel_without_a_middle_is_refused(kernel: int) -> None:
    with pytest.raises(InputError, match="kernel must be odd"):
        BiLSTM(D, H, kernel=kernel)


@pytest.mark.parametrize("size", [(0, 4), (2, -1)])
def test_sizes_must_be_positive(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="must be positive"):
        BiLSTM(*size)


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(InputError, match="order must be one of"):
        BiLSTM(D, H, order="red")  # type: ignore[arg-type]
