"""The non-normal recurrent network. Axes: B batch, T time, D features, H hidden units."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, non_negative, one_of
from physml.base.errors import InputError
from physml.models.sequence.orthogonal import below, exponential, lower, modrelu_step, skew_blocks
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence


class NonNormalRNN(nn.Module):
    r"""A recurrent layer with eigenvalues near the unit circle and eigenvectors that need not be orthogonal.

    .. math::
        h_n &= \mathrm{modReLU}(V h_{n-1} + U u_n), \qquad V = P \Theta P^T, \quad
        \Theta = \Lambda + T \\
        \Lambda &= \mathrm{diag}(\gamma_1 R(\theta_1), \dots, \gamma_{H/2} R(\theta_{H/2})), \qquad
        R(\theta) = \begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix}

    the real Schur form, with P orthogonal, as the exponential of a skew matrix, and T strictly lower
    triangular. gamma = 1 and T = 0 are an orthogonal V. Training adds
    :math:`\delta \sum_i (\gamma_i - 1)^2 + \tau \|T\|^2 / 2` to the loss (`penalty`).

    Source: Kerg et al., NeurIPS 2019, https://arxiv.org/abs/1905.12080, and its code, where the decay tau of
    T is the optimizer's.
    Choices: the exponential is taken in double precision. No bias but that of modReLU, see `ExpRNN`.
    Init: the skew matrix as that of expRNN; theta uniform on [0, 2 pi]; gamma 1; T zero; U Glorot normal; b
    uniform on [-0.01, 0.01]. The code names the law of U and does not apply it: its U is uniform on [-k, k],
    k = D^(-1/2), and its skew matrix is what memory held.

    Args:
        d_in: D.
        d_hidden: H, even.
        init: of the skew matrix, "cayley" or "henaff", see `ExpRNN`.
        delta: delta, 0 or more.
        decay: tau, 0 or more.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> NonNormalRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        init: Literal["cayley", "henaff"] = "cayley",
        delta: float = 0.0,
        decay: float = 0.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        if d_hidden % 2:
            raise InputError(
                f"d_hidden must be even, for the 2 x 2 blocks of the Schur form; got {d_hidden}."
            )
        one_of("init", init, ("cayley", "henaff"))
        each(non_negative, delta=delta, decay=decay)
        self.d_in, self.d_out = d_in, d_hidden
        self.init, self.delta, self.decay = init, float(delta), float(decay)
        n_below = d_hidden * (d_hidden - 1) // 2
        self.A = nn.Parameter(torch.empty(n_below))  # below the diagonal, row after row
        self.T = nn.Parameter(torch.empty(n_below))
        self.theta = nn.Parameter(torch.empty(d_hidden // 2))
        self.gamma = nn.Parameter(torch.empty(d_hidden // 2))
        self.U = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.A.copy_(skew_blocks(self.d_out, self.init)[below(self.d_out, self.A.device)])
        nn.init.zeros_(self.T)
        nn.init.uniform_(self.theta, 0.0, 2 * math.pi)
        nn.init.ones_(self.gamma)
        nn.init.xavier_normal_(self.U)
        nn.init.uniform_(self.b, -0.01, 0.01)

    def matrix(self) -> Tensor:
        """V."""
        P = exponential(self.A, self.d_out)
        gamma, theta = self.gamma.double(), self.theta.double()
        cos, sin = gamma * torch.cos(theta), gamma * torch.sin(theta)
        aside = torch.stack([sin, torch.zeros_like(sin)], 1).flatten()[:-1]
        blocks = torch.diag(cos.repeat_interleave(2)) + torch.diag(aside, -1) - torch.diag(aside, 1)
        return (P @ (blocks + lower(self.T, self.d_out)) @ P.t()).to(self.A.dtype)

    def penalty(self) -> Tensor | None:
        """Term that training adds to the loss; None: nothing."""
        if not (self.delta or self.decay):
            return None
        return self.delta * (self.gamma - 1).square().sum() + self.decay / 2 * self.T.square().sum()

    def symbols(self) -> dict[str, Tensor]:
        return {"V": self.matrix(), "U": self.U, "b": self.b}

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.U)
        before = initial_state(state, ("h",), u, self.d_out)
        with no_autocast(u):
            V = self.matrix()
        return recurrence(modrelu_step(V, self.U, self.b), u, before)
