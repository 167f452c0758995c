"""The Lipschitz recurrent network. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, fraction, non_negative, one_of, positive
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence


class LipschitzRNN(nn.Module):
    r"""A linear system plus a Lipschitz nonlinearity, both with matrices of bounded spectrum.

    .. math::
        h' &= A h + \tanh(W h + U u + b) \\
        A &= (1 - \beta_A)(M_A + M_A^T) + \beta_A (M_A - M_A^T) - \gamma_A I, \quad W \text{ alike from } M_W

    so that the real parts of the eigenvalues of A lie between those of its symmetric part: beta = 1 leaves a
    skew matrix, shifted by gamma. The input is constant during a step of size `dt`:

    .. math::
        \text{euler:}\quad h_n &= h_{n-1} + \Delta t\, f(h_{n-1}, u_n) \\
        \text{rk2:}\quad h_n &= h_{n-1} + \Delta t\, f(h_{n-1} + \tfrac{\Delta t}{2} f(h_{n-1}, u_n), u_n)

    Source: Erichson et al., ICLR 2021, https://arxiv.org/abs/2006.12070.
    Choices: A and W are built once per pass; rk2 is the midpoint rule, as in the official code.
    Init: M_A and M_W normal with standard deviation init_std / H, as in the official code; U and b uniform
    on [-k, k], k = D^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
        dt: step size.
        beta_a: share of the skew part of A, in [0, 1].
        beta_w: share of the skew part of W, in [0, 1].
        gamma_a: shift of the spectrum of A to the left.
        gamma_w: shift of the spectrum of W to the left.
        method: "euler" or "rk2".
        init_std: see Init.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> layer = LipschitzRNN(d_in=2, d_hidden=8, dt=0.03, beta_a=0.75, beta_w=0.75)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        dt: float,
        beta_a: float = 0.75,
        beta_w: float = 0.75,
        gamma_a: float = 0.001,
        gamma_w: float = 0.001,
        method: Literal["euler", "rk2"] = "euler",
        init_std: float = 0.1,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("dt", dt)
        each(fraction, beta_a=beta_a, beta_w=beta_w)
        each(non_negative, gamma_a=gamma_a, gamma_w=gamma_w, init_std=init_std)
        one_of("method", method, ("euler", "rk2"))
        self.d_in, self.d_out = d_in, d_hidden
        self.dt, self.method, self.init_std = float(dt), method, init_std
        self.beta_a, self.beta_w, self.gamma_a, self.gamma_w = beta_a, beta_w, gamma_a, gamma_w
        self.MA = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.MW = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.U = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for M in (self.MA, self.MW):
            nn.init.normal_(M, 0.0, self.init_std / self.d_out)
        for p in (self.U, self.b):
            nn.init.uniform_(p, -(self.d_in**-0.5), self.d_in**-0.5)

    def symbols(self) -> dict[str, Tensor]:
        return {"MA": self.MA, "MW": self.MW, "U": self.U, "b": self.b}

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A and W."""
        return (
            bounded(self.MA, self.beta_a, self.gamma_a),
            bounded(self.MW, self.beta_w, self.gamma_w),
        )

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.U)
        before = initial_state(state, ("h",), u, self.d_out)
        with no_autocast(u):
            A, W = self.matrices()

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            (h,), push = state, F.linear(u, self.U, self.b)
            between = h
            if self.method == "rk2":
                between = h + self.dt / 2 * (F.linear(h, A) + torch.tanh(F.linear(h, W) + push))
            h = h + self.dt * (F.linear(between, A) + torch.tanh(F.linear(between, W) + push))
            return h, (h,)

        return recurrence(step, u, before)


def bounded(M: Tensor, beta: float, gamma: float) -> Tensor:
    """(1 - beta)(M + M^T) + beta (M - M^T) - gamma I."""
    # The same, with each entry of M and of its transpose touched once.
    return M + (1.0 - 2.0 * beta) * M.t() - gamma * torch.eye(len(M), dtype=M.dtype, device=M.device)
