"""A recurrent network near an orthogonal matrix. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, one_of
from physml.base.errors import InputError
from physml.models.sequence.orthogonal import exponential
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence

ACTIVATIONS = {"identity": lambda x: x, "tanh": torch.tanh, "relu": torch.relu}


class SoftOrthogonalRNN(nn.Module):
    r"""A plain recurrent layer whose matrix is drawn to orthogonal ones, or kept within a margin of them.

    .. math:: h_n = \phi(W h_{n-1} + V u_n + b)

    Without `margin` W is free, and training adds :math:`\lambda \|W^T W - I\|_F^2` to the loss (`penalty`).
    With it

    .. math:: W = P\, \mathrm{diag}(s)\, Q^T, \qquad s_i = 2 m\, (\sigma(p_i) - 1/2) + 1

    with P and Q orthogonal: the singular values stay within m of 1, and m = 0 is an orthogonal matrix.

    Source: Vorontsov et al., ICML 2017, https://arxiv.org/abs/1702.00071 (soft constraint, and margins).
    Choices: P and Q are an orthogonal start times the exponential of a skew matrix, in double precision; the
    paper moves them along geodesics, with a rate of their own. The first state is zero; in the paper's code
    it may be trained.
    Init: W, P and Q orthogonal, drawn; p zero; V Glorot uniform; b zero.

    Args:
        d_in: D.
        d_hidden: H.
        activation: phi: "identity", "tanh" or "relu".
        orthogonality: lambda, 0 or more; for W without margin.
        margin: m, in [0, 1]; None: W is free.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> layer = SoftOrthogonalRNN(d_in=2, d_hidden=8, activation="tanh", orthogonality=0.01)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    P0: Tensor
    Q0: Tensor

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        activation: Literal["identity", "tanh", "relu"] = "tanh",
        orthogonality: float = 0.0,
        margin: float | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("activation", activation, ACTIVATIONS)
        non_negative("orthogonality", orthogonality)
        if margin is not None and not 0 <= margin <= 1:
            raise InputError(f"margin must lie in [0, 1], or be null; got {margin}.")
        if margin is not None and orthogonality:
            raise InputError(
                f"orthogonality={orthogonality} is for a free matrix, but margin={margin} keeps it near "
                "orthogonal ones. Set one of the two, and the other to 0 or null."
            )
        self.d_in, self.d_out = d_in, d_hidden
        self.activation, self.orthogonality, self.margin = activation, float(orthogonality), margin
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        if margin is None:
            self.W = nn.Parameter(torch.empty(d_hidden, d_hidden))
        else:
            n_free = d_hidden * (d_hidden - 1) // 2
            self.P = nn.Parameter(torch.empty(n_free))  # of the skew matrix, row after row
            self.Q = nn.Parameter(torch.empty(n_free))
            self.p = nn.Parameter(torch.empty(d_hidden))
            self.register_buffer("P0", torch.empty(d_hidden, d_hidden))
            self.register_buffer("Q0", torch.empty(d_hidden, d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.V)
        nn.init.zeros_(self.b)
        if self.margin is None:
            nn.init.orthogonal_(self.W)
            return
        for p in (self.P, self.Q, self.p):
            nn.init.zeros_(p)
        nn.init.orthogonal_(self.P0)
        nn.init.orthogonal_(self.Q0)

    def matrix(self) -> Tensor:
        """W."""
        if self.margin is None:
            return self.W
        P, Q = (
            start.double() @ exponential(free, self.d_out)
            for start, free in ((self.P0, self.P), (self.Q0, self.Q))
        )
        s = 2 * self.margin * (torch.sigmoid(self.p) - 0.5) + 1
        return (P * s.double() @ Q.t()).to(self.p.dtype)

    def penalty(self) -> Tensor | None:
        """Term that training adds to the loss; None: nothing."""
        if not self.orthogonality:
            return None
        gram = self.W.t() @ self.W
        return (
            self.orthogonality
            * (gram - torch.eye(len(gram), dtype=gram.dtype, device=gram.device)).square().sum()
        )

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.matrix(), "V": self.V, "b": self.b}

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V)
        before = initial_state(state, ("h",), u, self.d_out)
        phi = ACTIVATIONS[self.activation]
        with no_autocast(u):
            W = self.matrix()

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            h = phi(F.linear(state[0], W) + F.linear(u, self.V, self.b))
            return h, (h,)

        return recurrence(step, u, before)
