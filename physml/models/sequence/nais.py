"""NAIS-Net along a sequence. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of
from physml.base.errors import InputError
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


class SequentialNAISNet(nn.Module):
    r"""A residual layer that is stable by the form of its matrix.

    .. math::
        h_n &= h_{n-1} + \Delta t\, \phi(A h_{n-1} + B u_n + b), \qquad A = -P - \epsilon I \\
        P &= \begin{cases} R^T R & \|R^T R\|_F \le \delta \\
             \delta\, R^T R / \|R^T R\|_F & \text{else} \end{cases}, \qquad \delta = 1 - 2 \epsilon

    The eigenvalues of A lie in :math:`[-(1 - \epsilon), -\epsilon]`. So with :math:`\Delta t \le 1` and tanh
    a constant input draws every state to the same equilibrium, where :math:`A h + B u + b = 0`.

    Source: Ciccone et al., NeurIPS 2018, https://arxiv.org/abs/1804.07209, whose blocks are fed one input
    through all of their stages.
    Choices: "sequential", as tables call it, is read as one stage for each input of a sequence; no text at
    hand describes it. R is scaled within the layer, with gradient, instead of being projected after updates.
    Init: R and B Glorot uniform, b zero.

    Args:
        d_in: D.
        d_hidden: H.
        dt: the step, in (0, 1].
        epsilon: in (0, 0.5).
        activation: phi: "tanh" or "relu".
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> SequentialNAISNet(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        dt: float = 1.0,
        epsilon: float = 0.01,
        activation: Literal["tanh", "relu"] = "tanh",
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("activation", activation, ACTIVATIONS)
        if not 0 < dt <= 1:
            raise InputError(f"dt must lie in (0, 1], where the layer is stable; got {dt}.")
        if not 0 < epsilon < 0.5:
            raise InputError(f"epsilon must lie in (0, 0.5), so that delta is positive; got {epsilon}.")
        self.d_in, self.d_out = d_in, d_hidden
        self.dt, self.epsilon, self.activation = float(dt), float(epsilon), activation
        self.R = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.B = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.R)
        nn.init.xavier_uniform_(self.B)
        nn.init.zeros_(self.b)

    def matrix(self) -> Tensor:
        """A."""
        P = self.R.t() @ self.R
        delta = 1 - 2 * self.epsilon
        P = P * (delta / torch.linalg.matrix_norm(P).clamp(min=delta))
        return -P - self.epsilon * torch.eye(self.d_out, dtype=P.dtype, device=P.device)

    def symbols(self) -> dict[str, Tensor]:
        return {"A": self.matrix(), "B": self.B, "b": self.b}

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.B)
        before = initial_state(state, ("h",), u, self.d_out)
        phi = ACTIVATIONS[self.activation]
        with no_autocast(u):
            A = self.matrix()

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            (h,) = state
            h = h + self.dt * phi(F.linear(h, A) + F.linear(u, self.B, self.b))
            return h, (h,)

        return recurrence(step, u, before)
