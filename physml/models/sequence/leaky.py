"""The leaky integrator, with and without noise. Axes: B batch, T time, D features, H hidden units."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, positive
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, sequence


class LeakyRNN(nn.Module):
    r"""A plain recurrent layer whose state leaks, with noise in every training step.

    .. math:: h_n = \alpha h_{n-1} + \beta \tanh(W h_{n-1} + V u_n + b) + \theta \xi_n

    xi is normal with variance 1, drawn anew for every sequence, step and unit in training mode; in
    evaluation it is 0. With :math:`\alpha = 1 - \gamma \Delta t`, :math:`\beta = \Delta t` and
    :math:`\theta = \sigma \Delta t^{1/2}` this is the Euler-Maruyama step of

    .. math:: dh = [-\gamma h + \tanh(W h + V u + b)]\, dt + \sigma\, dB

    and alpha = theta = 0, beta = 1 are the plain layer.

    Source: Mahoney, talk of January 2022, equations 10 to 12, with f a plain layer.
    Choices: noise acts in training alone, as in `NoisyRNN`.
    Init: uniform on [-k, k], k = H^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
        alpha: share of the state that stays, 0 or more; below 1 h stays bounded.
        beta: size of the update.
        theta: standard deviation of the noise per step, 0 or more.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> LeakyRNN(d_in=2, d_hidden=8, alpha=0.9, beta=0.1)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, alpha: float, beta: float, theta: float = 0.0) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("beta", beta)
        each(non_negative, alpha=alpha, theta=theta)
        self.d_in, self.d_out = d_in, d_hidden
        self.alpha, self.beta, self.theta = float(alpha), float(beta), float(theta)
        self.W = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for p in self.parameters():
            nn.init.uniform_(p, -(self.d_out**-0.5), self.d_out**-0.5)

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.W, "V": self.V, "b": self.b}

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V)
        before = initial_state(state, ("h",), u, self.d_out)
        noisy = self.training and self.theta
        noise = (self.theta * torch.randn_like(u.new_empty(*u.shape[:2], self.d_out)),) if noisy else ()

        def step(inputs: Any, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            u, *xi = inputs if isinstance(inputs, tuple) else (inputs,)
            (h,) = state
            h = self.alpha * h + self.beta * torch.tanh(F.linear(h, self.W) + F.linear(u, self.V, self.b))
            h = h + xi[0] if xi else h
            return h, (h,)

        return recurrence(step, (u, *noise) if noise else u, before)
