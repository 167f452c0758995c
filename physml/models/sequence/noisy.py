"""The noisy recurrent network. Axes: B batch, T time, D features, H hidden units."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import fraction, non_negative
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence


class NoisyRNN(LipschitzRNN):
    r"""The Lipschitz network with noise in every training step, and a step size of its own for each unit.

    .. math::
        h_n = h_{n-1} + d \circ m_n \circ [A h_{n-1} + \tanh(W h_{n-1} + U u_n + b)] + a_n

    A and W as in `LipschitzRNN`. In training mode :math:`m_n` is uniform on [1 - mult_noise, 1] and
    :math:`a_n` normal with standard deviation add_noise, drawn anew for every sequence, step and unit; in
    evaluation :math:`m_n = 1` and :math:`a_n = 0`.

    Source: Lim et al., NeurIPS 2021, https://arxiv.org/abs/2102.04877, and its code, which is followed where
    the two differ: the paper's multiplicative noise is normal and its additive noise is scaled by the root
    of the step; d is trained in the code and a fixed number in the paper.
    Init: d = dt; the rest as in `LipschitzRNN`.

    Args:
        d_in: D.
        d_hidden: H.
        dt: the step sizes before training.
        mult_noise: in [0, 1].
        add_noise: not negative.
        beta_a: as in `LipschitzRNN`, like the rest.
        beta_w: share of the skew part of W.
        gamma_a: shift of the spectrum of A.
        gamma_w: shift of the spectrum of W.
        init_std: see Init.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> layer = NoisyRNN(d_in=2, d_hidden=8, dt=0.01, mult_noise=0.02, add_noise=0.02)
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
        mult_noise: float,
        add_noise: float,
        beta_a: float = 0.75,
        beta_w: float = 0.75,
        gamma_a: float = 0.001,
        gamma_w: float = 0.001,
        init_std: float = 0.1,
    ) -> None:
        fraction("mult_noise", mult_noise)
        non_negative("add_noise", add_noise)
        super().__init__(
            d_in,
            d_hidden,
            dt=dt,
            beta_a=beta_a,
            beta_w=beta_w,
            gamma_a=gamma_a,
            gamma_w=gamma_w,
            init_std=init_std,
        )
        self.mult_noise, self.add_noise = float(mult_noise), float(add_noise)
        self.d = nn.Parameter(torch.full((d_hidden,), self.dt))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "d"):  # not while the base class is built
            nn.init.constant_(self.d, self.dt)

    def symbols(self) -> dict[str, Tensor]:
        return {**super().symbols(), "d": self.d}

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.U)
        before = initial_state(state, ("h",), u, self.d_out)
        with no_autocast(u):
            A, W = self.matrices()
            m, a = self._noise(u)

        def step(inputs: Any, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            u, *noise = inputs if isinstance(inputs, tuple) else (inputs,)
            (h,) = state
            size = self.d if m is None else self.d * noise[0]
            push = torch.tanh(F.linear(h, W) + F.linear(u, self.U, self.b))
            h = h + size * (F.linear(h, A) + push)
            h = h if a is None else h + noise[-1]
            return h, (h,)

        return recurrence(step, (u, *(x for x in (m, a) if x is not None)), before)

    def _noise(self, u: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """m and a of all steps, each (B, T, H); None where there is no noise. Drawn with time first."""
        m = a = None
        like = u.new_empty(u.shape[1], u.shape[0], self.d_out)
        if self.training and self.mult_noise:
            m = (1.0 - self.mult_noise * torch.rand_like(like)).transpose(0, 1)
        if self.training and self.add_noise:
            a = (self.add_noise * torch.randn_like(like)).transpose(0, 1)
        return m, a
