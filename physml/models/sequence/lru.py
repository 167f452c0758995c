"""The linear recurrent unit. Axes: B batch, T time, D features, H features of a layer, P states."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import within
from physml.base.errors import InputError
from physml.models.sequence.state_space import StateSpace, StateSpaceStack, complex_diagonal, parts, real_part


class _Unit(StateSpace):
    def __init__(self, d_hidden: int, d_state: int, r_min: float, r_max: float, max_phase: float) -> None:
        super().__init__()
        self.d_hidden, self.widths = d_hidden, (d_state, d_state)
        self.nu = nn.Parameter(torch.empty(d_state))
        self.theta = nn.Parameter(torch.empty(d_state))
        self.gamma = nn.Parameter(torch.empty(d_state))
        self.B = nn.Parameter(torch.randn(2, d_state, d_hidden) * (2 * d_hidden) ** -0.5)
        self.C = nn.Parameter(torch.randn(2, d_hidden, d_state) * d_state**-0.5)
        self.D = nn.Parameter(torch.randn(d_hidden))
        with torch.no_grad():
            squared = torch.rand(d_state) * (r_max**2 - r_min**2) + r_min**2
            self.nu.copy_(torch.log(-0.5 * torch.log(squared)))
            self.theta.copy_(torch.log(max_phase * torch.rand(d_state)))
            self.gamma.copy_(0.5 * torch.log1p(-squared))

    def factor(self) -> Tensor:
        """lambda, complex (P,)."""
        return torch.polar(torch.exp(-torch.exp(self.nu)), torch.exp(self.theta))

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        re, im = torch.exp(self.gamma)[:, None] * self.B
        y, last = complex_diagonal(self.factor(), F.linear(u, parts(re, im)), real_part(*self.C), state)
        return y + self.D * u, last


class LRU(StateSpaceStack):
    r"""Blocks of linear recurrent units: diagonal, complex, and stable whatever their parameters are.

    .. math::
        x_n &= \lambda \circ x_{n-1} + e^{\gamma} \circ (B u_n), \qquad
        \lambda = \exp(-e^{\nu} + i e^{\theta}) \\
        y_n &= \mathrm{Re}(C x_n) + D \circ u_n

    so :math:`|\lambda| < 1`. The blocks around them are those of `StateSpaceStack`.

    Source: Orvieto et al., ICML 2023, https://arxiv.org/abs/2303.06349.
    Init: :math:`|\lambda|^2` uniform on [r_min^2, r_max^2], phases on [0, max_phase];
    :math:`e^{\gamma} = (1 - |\lambda|^2)^{1/2}`; B, C and D normal, B with variance 1/(2H) for each of its
    parts and C with 1/P.

    Args:
        d_in: D.
        d_hidden: H.
        d_state: P.
        n_layers: number of blocks.
        dropout: behind GELU and GLU.
        r_min: see Init.
        r_max: see Init; below 1.
        max_phase: see Init.
    Shapes: u (B, T, D) -> (B, T, H). The state has the real and imaginary part of x of each block, (B, P).

    Example:
        >>> LRU(d_in=2, d_hidden=8, d_state=4, n_layers=2)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        d_state: int,
        n_layers: int,
        dropout: float = 0.0,
        r_min: float = 0.0,
        r_max: float = 0.99,
        max_phase: float = 2 * math.pi,
    ) -> None:
        if not 0 <= r_min < r_max < 1:
            raise InputError(f"r_min and r_max need 0 <= r_min < r_max < 1; got {r_min} and {r_max}.")
        within("max_phase", max_phase, 1e-6, 2 * math.pi + 1e-6)
        make = partial(_Unit, r_min=r_min, r_max=r_max, max_phase=max_phase)
        super().__init__(make, d_in, d_hidden, d_state=d_state, n_layers=n_layers, dropout=dropout)
