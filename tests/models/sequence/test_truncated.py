"""Truncated backpropagation through time: the outputs of an LSTM, the gradients of its last steps."""

import functools

import pytest
import torch
from drawn_layers import numbers
from step_loops import loop, lstm, same

from physml.models.sequence.truncated import TruncatedLSTM

D, H, T = 3, 5, 9


def make(last: int = 4) -> TruncatedLSTM:
    torch.manual_seed(0)
    return TruncatedLSTM(D, H, last=last).double()


@pytest.mark.parametrize("last", [1, 4, T - 1, T, T + 5])
def test_outputs_and_gradients_equal_those_of_a_loop(last: int) -> None:
    """Of what comes before the last steps, without gradients, and of them."""
    layer, u = make(last), numbers(2, T, D).requires_grad_()
    step, state = functools.partial(lstm, layer.symbols()), (0.5 * numbers(2, H), 0.5 * numbers(2, H) + 1)
    path, ends = layer(u, state)
    early, late = u[:, : max(0, T - last)], u[:, max(0, T - last) :]
    before = []
    if early.shape[1]:
        first, *state = (x.detach() for x in loop(step, early, state))
        before = [first]
    after, *end = loop(step, late, state)
    same([path, *ends], [torch.cat([*before, after], 1), *end], [u, *layer.parameters()])
