"""Linear GRAND: attention as diffusion.

Axes: N nodes, E edges, H channels, S steps.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import positive
from physml.base.errors import InputError
from physml.models.graph.graph_layers import TransformerAttention
from physml.models.graph.graph_parts import check_input, last, times
from physml.ops.weighted_sum import weighted_sum


class Diffusion(nn.Module):
    r"""Attention as diffusion, with linear GRAND as its model.

    .. math:: X' = s_a (A X - X) + b X^0

    with s_a the sigmoid of a trained number that starts at 0, b trained from 0 on and A attention that is
    computed once per call, from X^0. Explicit steps of size 1 up to T, the last one shorter.

    Source: GRAND, Chamberlain et al., ICML 2021, https://arxiv.org/abs/2106.10934.
    Choices: the source b X^0 passes a gradient to X^0; in the code it passes none.
    Args:
        attention: makes A.
        T: end of time.
    Shapes: x (N, H), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, attention: TransformerAttention, *, T: float) -> None:
        super().__init__()
        positive("T", T)
        self.attention, self.T = attention, float(T)
        self.d_in = self.d_out = attention.d_in
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return last(self.steps(x, edge_index))

    def steps(self, x: Tensor, edge_index: Tensor, T: float | None = None) -> Iterator[Tensor]:
        """X after each step, up to T, the model's own if none is given."""
        check_input(x, edge_index, None, self.d_in)
        edges, weight = self.attention.attention(x, edge_index)
        start = x
        for _, h in times(self.T if T is None else T):
            x = x + h * (torch.sigmoid(self.a) * (weighted_sum(x, weight, edges) - x) + self.b * start)
            yield x


class LateDiffusion(Diffusion):
    """`Diffusion` that goes on beyond T when it is tested, and gives what it has on the way.

    In eval mode: X at time `T_test`, then X after each step up to there. Which one counts is for the task to
    say, see `Citation`. It reads GRAND as the code of GraphCON reads GraphCON, see `LateCitationGraphCON`,
    so that the two can be compared.

    Source: for T_test the official code of GraphCON (https://github.com/tk-rusch/GraphCON).

    Args:
        attention: makes A.
        T: end of time in training.
        T_test: end of time in eval mode.
    Shapes: x (N, H), edge_index (2, E) -> (N, H) in training; (1 + S, N, H) in eval mode, S steps to T_test.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a T_test before T.
    """

    def __init__(self, attention: TransformerAttention, *, T: float, T_test: float) -> None:
        super().__init__(attention, T=T)
        if not T_test >= T:
            raise InputError(f"T_test must not be before T, which is {T}; got {T_test}.")
        self.T_test = float(T_test)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            return super().forward(x, edge_index)
        steps = list(self.steps(x, edge_index, self.T_test))
        return torch.stack([steps[-1], *steps])
