"""Gated layers whose gates see the input alone. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of
from physml.models.sequence.gated import by_gate
from physml.ops.cell import recurrent


@recurrent("h")
class MinGRU(nn.Module):
    r"""A GRU without its reset gate, and without the past in its gate and candidate.

    .. math:: h_n = (1 - z_n) \circ h_{n-1} + z_n \circ (V_h u_n + b_h), \qquad z_n = \sigma(V_z u_n + b_z)

    so h is linear in the state, and all steps can be computed at once by an associative scan.

    Source: Feng et al. 2024, https://arxiv.org/abs/2410.01201, the form without logarithms; with candidate
    "positive" that with them, and its code.
    Init: torch's of a linear layer, uniform on [-k, k], k = D^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
        candidate: "positive", its x becomes x + 1/2 where x >= 0, else sigmoid(x); or null, x itself.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> MinGRU(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, candidate: Literal["positive"] | None = None) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("candidate", candidate, ("positive",), null=True)
        self.d_in, self.d_out, self.candidate = d_in, d_hidden, candidate
        self.V = nn.Parameter(torch.empty(2 * d_hidden, d_in))  # z, h
        self.b = nn.Parameter(torch.empty(2 * d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for p in self.parameters():
            nn.init.uniform_(p, -(self.d_in**-0.5), self.d_in**-0.5)

    def symbols(self) -> dict[str, Tensor]:
        return by_gate("zh", V=self.V, b=self.b)

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        z, new = F.linear(u, self.V, self.b).chunk(2, 1)
        z = torch.sigmoid(z)
        h = (1 - z) * state[0] + z * _candidate(new, self.candidate)
        return h, (h,)


@recurrent("h")
class MinLSTM(nn.Module):
    r"""An LSTM without output gate and cell, and without the past in its gates and candidate.

    .. math::
        f, i &= \sigma(V_{f,i} u_n + b_{f,i}), \qquad
        h_n = \frac{f}{f + i} \circ h_{n-1} + \frac{i}{f + i} \circ (V_h u_n + b_h)

    Source: Feng et al. 2024, https://arxiv.org/abs/2410.01201, the form without logarithms; with candidate
    "positive" that with them, and its code.
    Init: torch's of a linear layer, uniform on [-k, k], k = D^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
        candidate: "positive", its x becomes x + 1/2 where x >= 0, else sigmoid(x); or null, x itself.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> MinLSTM(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, candidate: Literal["positive"] | None = None) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("candidate", candidate, ("positive",), null=True)
        self.d_in, self.d_out, self.candidate = d_in, d_hidden, candidate
        self.V = nn.Parameter(torch.empty(3 * d_hidden, d_in))  # f, i, h
        self.b = nn.Parameter(torch.empty(3 * d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for p in self.parameters():
            nn.init.uniform_(p, -(self.d_in**-0.5), self.d_in**-0.5)

    def symbols(self) -> dict[str, Tensor]:
        return by_gate("fih", V=self.V, b=self.b)

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        f, i, new = F.linear(u, self.V, self.b).chunk(3, 1)
        # f / (f + i) as the sigmoid of a difference of logarithms: 0 / 0 can't come up.
        keep = torch.sigmoid(F.softplus(-i) - F.softplus(-f))
        h = keep * state[0] + (1 - keep) * _candidate(new, self.candidate)
        return h, (h,)


def _candidate(x: Tensor, kind: str | None) -> Tensor:
    return x if kind is None else torch.where(x >= 0, x + 0.5, torch.sigmoid(x))
