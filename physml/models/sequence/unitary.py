"""Recurrent networks with a unitary matrix. Axes: B batch, T time, D features, H complex hidden units."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence

TINY = 1e-5  # keeps the slope of the modulus finite at 0, as in the code of the full-capacity network


class ComplexRNN(nn.Module):
    """Base of complex networks: the input, the nonlinearity, and the loop over a matrix."""

    def __init__(self, d_in: int, d_hidden: int, *, trained_start: bool) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_hidden, self.d_out = d_in, d_hidden, 2 * d_hidden
        # The first state, real part and imaginary one; else it is zero.
        self.h0 = nn.Parameter(torch.empty(2, d_hidden)) if trained_start else None
        self.V = nn.Parameter(torch.empty(2 * d_hidden, d_in))  # real parts, then imaginary ones
        self.b = nn.Parameter(torch.empty(d_hidden))

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.V)
        nn.init.uniform_(self.b, -0.01, 0.01)
        if self.h0 is not None:
            bound = math.sqrt(1.5 / self.d_hidden)
            nn.init.uniform_(self.h0, -bound, bound)

    def matrix(self) -> Tensor:
        """W, complex (H, H)."""
        raise NotImplementedError

    def symbols(self) -> dict[str, Tensor]:
        """W and V are complex; W is made anew in every pass."""
        re, im = self.V.chunk(2)
        return {"W": self.matrix(), "V": torch.complex(re, im), "b": self.b}

    def first_state(self, n_batch: int) -> tuple[Tensor, ...]:
        """The state before the first step, each part (B, H)."""
        parts = self.V.new_zeros(2, self.d_hidden) if self.h0 is None else self.h0
        return tuple(part.expand(n_batch, -1) for part in parts)

    def forward(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V)
        start = self.first_state(u.shape[0]) if state is None else state
        before = initial_state(start, ("re", "im"), u, self.d_hidden)
        with no_autocast(u):
            W = self.matrix()
            turn = torch.cat([torch.cat([W.real, -W.imag], 1), torch.cat([W.imag, W.real], 1)])
            both = torch.eye(self.d_out, dtype=turn.dtype, device=turn.device)

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            re, im = (F.linear(torch.cat(state, 1), turn) + F.linear(u, self.V)).chunk(2, 1)
            modulus = torch.sqrt(re * re + im * im + TINY)
            scale = torch.relu(modulus + self.b) / (modulus + TINY)
            re, im = scale * re, scale * im
            # A compiled step joins rows in products alone, hence the identity.
            return F.linear(torch.cat([re, im], 1), both), (re, im)

        return recurrence(step, u, before)


class UnitaryRNN(ComplexRNN):
    r"""A complex recurrent layer whose matrix is a product of simple unitary maps: the uRNN.

    .. math::
        h_n &= \mathrm{modReLU}(W h_{n-1} + V u_n), \qquad
        \mathrm{modReLU}(z) = \max(|z| + b, 0)\, z / |z| \\
        W &= D_3 R_2 \mathcal{F}^{-1} D_2 \Pi R_1 \mathcal{F} D_1

    D are diagonal with entries :math:`e^{i \theta}`, R reflections :math:`I - 2 v v^* / \|v\|^2`,
    :math:`\mathcal{F}` the unitary Fourier transform and Pi a fixed permutation: 7 H numbers are trained for
    W.

    Source: Arjovsky et al., ICML 2016, https://arxiv.org/abs/1511.06464.
    Choices: W is built as a matrix once per pass; the paper applies its factors one by one, at a cost of
    H log H per step. The modulus is smoothed within some 3e-3 of 0, by 1e-5 under its root, as in the code
    of the full-capacity network. The first state is trained, as in the paper. At zero the slope of modReLU
    with b > 0 is 1 + b over the smoothed modulus: from a zero state, gradients overflow while the inputs
    are zero.
    Init: angles uniform on [-pi, pi], v on [-1, 1], b on [-0.01, 0.01], V Glorot uniform, Pi drawn; parts of
    the first state uniform, so that its norm is about 1. The code draws v within (3 / (1 + H))^(1/2) of 0,
    which is the same law of W.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, 2H), real parts before imaginary ones. The state is both parts, each (B,
    H).

    Example:
        >>> UnitaryRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 16])
    """

    version: ClassVar[int] = 2
    permutation: Tensor

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden, trained_start=True)
        self.theta = nn.Parameter(torch.empty(3, d_hidden))
        self.v = nn.Parameter(torch.empty(2, 2, d_hidden))  # of both reflections, real and imaginary part
        self.register_buffer("permutation", torch.arange(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.uniform_(self.theta, -math.pi, math.pi)
        nn.init.uniform_(self.v, -1.0, 1.0)
        self.permutation.copy_(torch.randperm(self.d_hidden))

    def matrix(self) -> Tensor:
        turns = torch.polar(torch.ones_like(self.theta), self.theta)
        vectors = torch.complex(self.v[:, 0], self.v[:, 1])
        W = torch.diag(turns[0])
        W = _reflected(torch.fft.fft(W, dim=0, norm="ortho"), vectors[0])
        W = turns[1, :, None] * W[self.permutation]
        W = _reflected(torch.fft.ifft(W, dim=0, norm="ortho"), vectors[1])
        return turns[2, :, None] * W


def _reflected(x: Tensor, v: Tensor) -> Tensor:
    """(I - 2 v v^* / |v|^2) x."""
    return x - 2.0 * torch.outer(v, v.conj() @ x) / v.abs().square().sum()


class FullCapacityURNN(ComplexRNN):
    r"""A complex recurrent layer whose matrix is any unitary one.

    .. math::
        h_n = \mathrm{modReLU}(W h_{n-1} + V u_n), \qquad W = W_0 \exp(K), \quad K = -K^*

    K has :math:`H^2` free numbers, as many as the group of unitary matrices has dimensions, so W can become
    every unitary matrix; the uRNN has 7 H.

    Source: Wisdom et al., NeurIPS 2016, https://arxiv.org/abs/1611.00035.
    Choices: the paper steps along the group by Cayley transforms with a rate of its own; here W_0 stays and K
    is trained by the optimizer of all weights, as expRNN does for orthogonal matrices, so training differs.
    The exponential is taken in double precision. The first state is trained, and the modulus smoothed near 0,
    as in its code; see `UnitaryRNN`.
    Init: W_0 drawn from the uniform (Haar) distribution, in the code as the matrix of a uRNN; K zero, b
    uniform on [-0.01, 0.01], V Glorot uniform, parts of the first state uniform, so that its norm is about 1.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, 2H), real parts before imaginary ones. The state is both parts, each (B,
    H).

    Example:
        >>> FullCapacityURNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 16])
    """

    version: ClassVar[int] = 2
    W0: Tensor

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden, trained_start=True)
        # Below the diagonal the real part of K, on and above it the imaginary one.
        self.K = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.register_buffer("W0", torch.empty(2, d_hidden, d_hidden))  # real and imaginary part
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.K)
        if self.W0.is_meta:
            return
        re, im = torch.randn(2, self.d_hidden, self.d_hidden, dtype=torch.float64)
        Q, R = torch.linalg.qr(torch.complex(re, im))
        diagonal = R.diagonal()
        W0 = Q * (diagonal / diagonal.abs())
        with torch.no_grad():
            self.W0.copy_(torch.stack([W0.real, W0.imag]))

    def matrix(self) -> Tensor:
        K = self.K.double()
        below, above = K.tril(-1), K.triu()
        skew = torch.complex(below - below.t(), above + above.triu(1).t())
        W = torch.complex(*self.W0.double()) @ torch.matrix_exp(skew)
        return torch.complex(W.real.to(self.K.dtype), W.imag.to(self.K.dtype))
