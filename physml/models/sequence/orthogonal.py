"""Recurrent networks with an orthogonal matrix. Axes: B batch, T time, D features, H hidden units."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of
from physml.base.errors import InputError
from physml.ops.cell import Step, recurrence
from physml.ops.sequence import initial_state, no_autocast, sequence


class ExpRNN(nn.Module):
    r"""A recurrent layer whose matrix stays orthogonal, as the exponential of a skew matrix.

    .. math::
        h_n &= \mathrm{modReLU}(B h_{n-1} + T u_n), \qquad
        \mathrm{modReLU}(x) = \mathrm{sign}(x) \max(|x| + b, 0) \\
        B &= B_0 \exp(A - A^T) \quad\text{with A lower triangular}

    `base` says what B_0 is. "identity": I, so B = exp of a skew matrix: expRNN. "start": the initial matrix,
    and A starts at 0, a static trivialization around the start: DTRIV-inf. With `rebase_every` = K, B_0
    moves to the current B and A returns to 0 after every K training passes: DTRIV-K.

    Source: Lezcano-Casado and Martinez-Rubio, ICML 2019, https://arxiv.org/abs/1901.08428; dynamic
    trivializations: Lezcano-Casado, NeurIPS 2019, https://arxiv.org/abs/1909.09501.
    Choices: A holds the H (H - 1) / 2 free entries, row after row. The exponential is taken in double
    precision: torch's single one can be off by 5e-5, which 10,000 steps make a factor of 1.6.
    Init: the skew matrix has blocks [[0, s], [-s, 0]] on its diagonal: "cayley" with
    s = -((1 - cos t) / (1 + cos t))^(1/2), t uniform on [0, pi/2], or "henaff" with s uniform on [-pi, pi].
    T Kaiming normal. b uniform on [-0.01, 0.01]. The code turns the blocks of "cayley" the other way: the
    same layer with the two units of a block swapped.

    Args:
        d_in: D.
        d_hidden: H.
        init: see Init.
        base: B_0, see above.
        rebase_every: calls in training between two changes of the base; None: never.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> ExpRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    n_passes: Tensor
    B0: Tensor | None

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        init: Literal["cayley", "henaff"] = "cayley",
        base: Literal["identity", "start"] = "identity",
        rebase_every: int | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("init", init, ("cayley", "henaff"))
        one_of("base", base, ("identity", "start"))
        if rebase_every is not None:
            count("rebase_every", rebase_every)
            if base == "identity":
                raise InputError(
                    "rebase_every moves the base, so it needs base='start'; got base='identity'."
                )
        self.d_in, self.d_out = d_in, d_hidden
        self.init, self.base, self.rebase_every = init, base, rebase_every
        if rebase_every is not None:
            self.register_buffer("n_passes", torch.zeros((), dtype=torch.long))
        self.T = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.A = nn.Parameter(torch.empty(d_hidden * (d_hidden - 1) // 2))
        self.register_buffer("B0", torch.eye(d_hidden) if base == "start" else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.T)
        nn.init.uniform_(self.b, -0.01, 0.01)
        if self.rebase_every is not None:
            self.n_passes.zero_()
        skew = skew_blocks(self.d_out, self.init)
        with torch.no_grad():
            if self.B0 is None:
                self.A.copy_(skew[below(self.d_out, self.A.device)])
            else:
                self.B0.copy_(torch.matrix_exp(skew.double()))
                self.A.zero_()

    def matrix(self) -> Tensor:
        """B."""
        B = exponential(self.A, self.d_out)
        return (B if self.B0 is None else self.B0.double() @ B).to(self.A.dtype)

    def symbols(self) -> dict[str, Tensor]:
        """A, T and b are trained, B is made from A, here and in every pass."""
        return {"A": self.A, "B": self.matrix(), "T": self.T, "b": self.b}

    @torch.no_grad()
    def rebase(self) -> None:
        """Move the base to the current matrix. The map stays the same; the directions of training change."""
        if self.B0 is None:
            raise InputError("only a layer with base='start' has a base that can move.")
        B = self.matrix().double()
        # A step towards the nearest orthogonal matrix, so that rounding does not add up over many moves.
        self.B0.copy_(1.5 * B - 0.5 * B @ B.t() @ B)
        self.A.zero_()

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.T)
        before = initial_state(state, ("h",), u, self.d_out)
        if self.rebase_every is not None and self.training:
            if self.n_passes and self.n_passes % self.rebase_every == 0:
                self.rebase()
            self.n_passes += 1
        with no_autocast(u):
            B = self.matrix()
        return recurrence(modrelu_step(B, self.T, self.b), u, before)


def modrelu_step(W: Tensor, V: Tensor, b: Tensor) -> Step:
    """h_n = modReLU(W h_{n-1} + V u_n), see `ExpRNN`."""

    def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        p = F.linear(state[0], W) + F.linear(u, V)
        h = torch.sign(p) * torch.relu(torch.abs(p) + b)
        return h, (h,)

    return step


def below(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The places below the diagonal of a square matrix, row after row."""
    rows, columns = torch.tril_indices(size, size, -1, device=device)
    return rows, columns


def lower(free: Tensor, size: int) -> Tensor:
    """The matrix (size, size) with the entries `free` below its diagonal; double."""
    zero = free.new_zeros(size, size, dtype=torch.float64)
    return zero.index_put(below(size, free.device), free.double())


def exponential(free: Tensor, size: int) -> Tensor:
    """The orthogonal exponential of the skew matrix with the entries `free` below its diagonal; double."""
    half = lower(free, size)
    return torch.matrix_exp(half - half.t())


def skew_blocks(size: int, init: str) -> Tensor:
    """A skew matrix of 2 x 2 blocks; of odd size, the last row and column are 0."""
    t = torch.rand(size // 2)
    if init == "cayley":
        cos = torch.cos(t * (math.pi / 2))
        s = -torch.sqrt((1.0 - cos) / (1.0 + cos))
    else:
        s = (2.0 * t - 1.0) * math.pi
    skew = torch.zeros(size, size)
    at = torch.arange(0, size - 1, 2)
    skew[at, at + 1] = s
    skew[at + 1, at] = -s
    return skew
