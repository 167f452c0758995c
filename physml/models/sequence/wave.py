"""The wave recurrent network. Axes: B batch, T time, D features, H hidden units, C channels (rings)."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of
from physml.base.errors import InputError
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}

WIDE = 768  # units from which on convolutions are faster than products with a compiled loop: 15 times at 2700


class WaveRNN(nn.Module):
    r"""A plain recurrent layer on rings, whose matrix is a convolution that starts as a travelling wave.

    .. math:: h_n = \sigma(k \star h_{n-1} + V u_n + b)

    h lies on C rings of H / C units, and the star is a circular convolution along them with a kernel
    (C, C, F). It starts as the shift by one unit within each ring, the one-way wave equation
    :math:`\partial_t h = \nu \partial_x h` with nu = 1: what the input writes at unit 0 travels around.

    Source: Keller et al., ICLR 2024, https://arxiv.org/abs/2309.08045, equation 3, and its code.
    Choices: one bias per unit; the code has one more per channel. Up to `WIDE` units the convolution is a
    circulant matrix, built once per pass, and the recurrence is compiled; wider layers convolve at each step.
    Init: as in the paper: k the shift; V 1 at unit 0 of each ring and 0 elsewhere; b zero, where
    the code's bias of a channel is drawn.

    Args:
        d_in: D.
        d_hidden: H.
        channels: C, a divisor of H.
        kernel: F, odd, at most H / C.
        activation: sigma: "relu", "tanh" or "identity".
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> WaveRNN(d_in=2, d_hidden=8, channels=2, kernel=3)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        channels: int,
        kernel: int = 3,
        activation: Literal["relu", "tanh", "identity"] = "relu",
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, channels=channels, kernel=kernel)
        one_of("activation", activation, ACTIVATIONS)
        if d_hidden % channels:
            raise InputError(f"channels must divide d_hidden = {d_hidden}; got {channels}.")
        if kernel % 2 == 0 or kernel < 3 or kernel > d_hidden // channels:
            raise InputError(
                f"kernel must be odd, at least 3, and at most a ring of {d_hidden // channels} units; got "
                f"{kernel}."
            )
        self.d_in, self.d_out, self.channels, self.activation = d_in, d_hidden, channels, activation
        self.k = nn.Parameter(torch.empty(channels, channels, kernel))
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.k)
        nn.init.zeros_(self.V)
        nn.init.zeros_(self.b)
        with torch.no_grad():
            self.k[:, :, self.k.shape[2] // 2 + 1].fill_diagonal_(1.0)
            self.V[:: self.d_out // self.channels] = 1.0

    def symbols(self) -> dict[str, Tensor]:
        return {"k": self.k, "V": self.V, "b": self.b}

    def matrix(self) -> Tensor:
        """The convolution (H, H): entry (i, j) of a pair of rings is k at j - i, counted around the ring."""
        C, n, reach = self.channels, self.d_out // self.channels, self.k.shape[2] // 2
        at = torch.arange(n, device=self.k.device)
        around = F.pad(self.k, (0, n - self.k.shape[2]))[:, :, (at[None] - at[:, None] + reach) % n]
        return around.transpose(1, 2).reshape(C * n, C * n)

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V)
        before = initial_state(state, ("h",), u, self.d_out)
        sigma = ACTIVATIONS[self.activation]
        if self.d_out >= WIDE and not torch.compiler.is_compiling():
            return self._convolved(u, before[0])
        with no_autocast(u):
            K = self.matrix()

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            h = sigma(F.linear(state[0], K) + F.linear(u, self.V, self.b))
            return h, (h,)

        return recurrence(step, u, before)

    def _convolved(self, u: Tensor, h: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        """The same without a matrix: C F products for each unit at each step, not H."""
        sigma, reach = ACTIVATIONS[self.activation], self.k.shape[2] // 2
        rings, path = (len(u), self.channels, -1), []
        with no_autocast(u):
            for drive in F.linear(u, self.V, self.b).unbind(1):
                around = F.pad(h.reshape(rings), (reach, reach), mode="circular")
                h = sigma(F.conv1d(around, self.k).flatten(1) + drive)
                path.append(h)
        return torch.stack(path, 1), (h,)
