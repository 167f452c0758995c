"""LSTMs against loops from their equations: two-way behind a convolution, and truncated."""

import functools

import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from step_loops import loop, lstm, same
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.bilstm import BiLSTM
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.truncated import TruncatedLSTM
from physml.ops.backend import running
from physml.run.record import count_parameters

D, H, T = 3, 5, 9


def convolved(layer: BiLSTM, u: Tensor) -> Tensor:
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


def equations(layer: BiLSTM, u: Tensor) -> list[Tensor]:
    """The path, and the last h and c in both directions."""
    x = u if layer.conv is None else torch.stack([convolved(layer, row) for row in u])
    rest = torch.zeros(len(u), H, dtype=torch.float64)
    forwards, backwards = (functools.partial(lstm, s) for s in layer.symbols())
    forward_path, *ends = loop(forwards, x, (rest, rest))
    backward_path, *others = loop(backwards, x.flip(1), (rest, rest))
    backward_path = backward_path if layer.order == "read" else backward_path.flip(1)
    return [torch.cat([forward_path, backward_path], 2), *ends, *others]


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("order", ["read", "time"])
@pytest.mark.parametrize("kernel", [None, 1, 3, 7])
def test_equals_a_loop_from_the_equations(kernel: int | None, order: str, backend: str) -> None:
    layer, u = BiLSTM(D, H, kernel=kernel, order=order).double(), numbers(2, T, D).requires_grad_()
    with running(backend):
        path, ends = layer(u)
    same([path, *ends], equations(layer, u), [u, *layer.parameters()])


def test_the_printed_count_is_met_by_a_kernel_of_9_steps_too_and_an_even_one_is_refused() -> None:
    """Beside that of 7, which is in tests/conf/test_parameter_counts.py."""
    net = SequenceModel(lambda d: BiLSTM(d, 22, kernel=9), 6, 5, readout="last", tokens=False)
    assert count_parameters(net) == 5_835  # printed as 5.8k
    refuses(InputError, "kernel must be odd", BiLSTM, D, H, kernel=2)


@pytest.mark.parametrize("last", [1, 4, T - 1, T, T + 5])
def test_a_truncated_lstm_has_the_outputs_of_all_steps_and_the_gradients_of_the_last(last: int) -> None:
    """Of what comes before the last steps, without gradients, and of them."""
    layer, u = TruncatedLSTM(D, H, last=last).double(), numbers(2, T, D).requires_grad_()
    step, state = functools.partial(lstm, layer.symbols()), (0.5 * numbers(2, H), 0.5 * numbers(2, H) + 1)
    path, ends = layer(u, state)
    early, late = u[:, : max(0, T - last)], u[:, max(0, T - last) :]
    before = []
    if early.shape[1]:
        first, *state = (x.detach() for x in loop(step, early, state))
        before = [first]
    after, *end = loop(step, late, state)
    same([path, *ends], [torch.cat([*before, after], 1), *end], [u, *layer.parameters()])
