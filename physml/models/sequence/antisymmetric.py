"""The antisymmetric recurrent network. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, positive
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence


class AntisymmetricRNN(nn.Module):
    r"""A stable differential equation in Euler steps: the matrix is skew, slightly damped.

    .. math:: h_n = h_{n-1} + \epsilon \tanh((W - W^T - \gamma I) h_{n-1} + V u_n + b)

    Gated:

    .. math::
        z_n &= \sigma((W - W^T - \gamma I) h_{n-1} + V_z u_n + b_z) \\
        h_n &= h_{n-1} + \epsilon\, z_n \circ \tanh((W - W^T - \gamma I) h_{n-1} + V u_n + b)

    Source: Chang et al., ICLR 2019, https://arxiv.org/abs/1902.09689.
    Choices: W is stored in full; its H (H - 1) / 2 free entries are what a parameter count counts.
    Init: W ~ N(0, sigma_w^2 / H), V and V_z ~ N(0, 1 / D), b and b_z zero.

    Args:
        d_in: D.
        d_hidden: H.
        epsilon: step size.
        gamma: damping.
        gated: whether there is an input gate z.
        sigma_w: scale of W at the start, see Init.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> layer = AntisymmetricRNN(d_in=2, d_hidden=8, epsilon=0.01, gamma=0.01)
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
        epsilon: float,
        gamma: float,
        gated: bool = False,
        sigma_w: float = 1.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("epsilon", epsilon)
        each(non_negative, gamma=gamma, sigma_w=sigma_w)
        self.d_in, self.d_out = d_in, d_hidden
        self.epsilon, self.gamma, self.gated, self.sigma_w = float(epsilon), gamma, gated, sigma_w
        self.n_redundant = d_hidden * (d_hidden + 1) // 2  # entries of W that W - W^T does not see anew
        self.W = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        if gated:
            self.Vz = nn.Parameter(torch.empty(d_hidden, d_in))
            self.bz = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.W, 0.0, self.sigma_w * self.d_out**-0.5)
        nn.init.normal_(self.V, 0.0, self.d_in**-0.5)
        nn.init.zeros_(self.b)
        if self.gated:
            nn.init.normal_(self.Vz, 0.0, self.d_in**-0.5)
            nn.init.zeros_(self.bz)

    def symbols(self) -> dict[str, Tensor]:
        symbols: dict[str, Tensor] = {"W": self.W, "V": self.V, "b": self.b}
        return {**symbols, "Vz": self.Vz, "bz": self.bz} if self.gated else symbols

    def matrix(self) -> Tensor:
        """W - W^T - gamma I."""
        identity = torch.eye(self.d_out, dtype=self.W.dtype, device=self.W.device)
        return self.W - self.W.t() - self.gamma * identity

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V)
        before = initial_state(state, ("h",), u, self.d_out)
        with no_autocast(u):
            M = self.matrix()

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            (h,) = state
            turned = F.linear(h, M)
            push = torch.tanh(turned + F.linear(u, self.V, self.b))
            if self.gated:
                push = torch.sigmoid(turned + F.linear(u, self.Vz, self.bz)) * push
            h = h + self.epsilon * push
            return h, (h,)

        return recurrence(step, u, before)
