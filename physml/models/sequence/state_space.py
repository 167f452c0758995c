"""Stacks of linear state-space layers. Axes: B batch, T time, D features, H features of a layer, P states."""

from collections.abc import Callable
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import below_one, count, each
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, one_step, sequence


class StateSpace(nn.Module):
    """A linear recurrence over a sequence of H features: x_n = A x_{n-1} + B u_n, y_n = C x_n + D u_n.

    Shapes: u (B, T, H) -> y (B, T, H). `widths`: the number of units of each state.
    """

    widths: tuple[int, ...]
    d_hidden: int

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        raise NotImplementedError


class Block(nn.Module):
    """A residual block around a recurrence, see `StateSpaceStack`."""

    def __init__(self, recurrence: StateSpace, d_hidden: int, dropout: float) -> None:
        super().__init__()
        self.recurrence, self.widths, self.dropout = recurrence, recurrence.widths, dropout
        self.norm = nn.LayerNorm(d_hidden)
        self.glu = nn.Linear(d_hidden, 2 * d_hidden)

    def forward(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        y, last = self.recurrence(self.norm(x), state)
        y = F.dropout(F.gelu(y), self.dropout, self.training)
        return x + F.dropout(F.glu(self.glu(y)), self.dropout, self.training), last


class StateSpaceStack(nn.Module):
    r"""An encoder and L residual blocks, each around one linear recurrence.

    .. math:: x \leftarrow x + \mathrm{GLU}(\mathrm{GELU}(S(\mathrm{norm}(x)))), \qquad
        \mathrm{GLU}(x) = (W_1 x + b_1) \circ \sigma(W_2 x + b_2)

    The encoder is linear, from D to H. Only the recurrences S carry a state; the rest acts step by step.

    Choices: layer normalisation, where the codes of S5 and LinOSS have batch normalisation, so that a
    sequence does not depend on its batch.

    Args:
        make: a new recurrence from H and P.
        d_in: D.
        d_hidden: H.
        d_state: P.
        n_layers: L.
        dropout: behind GELU and GLU.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        make: Callable[[int, int], StateSpace],
        d_in: int,
        d_hidden: int,
        *,
        d_state: int,
        n_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, d_state=d_state, n_layers=n_layers)
        below_one("dropout", dropout)
        self.d_in, self.d_out, self.dropout = d_in, d_hidden, float(dropout)
        self.encoder = nn.Linear(d_in, d_hidden)
        self.blocks = nn.ModuleList(
            Block(make(d_hidden, d_state), d_hidden, self.dropout) for _ in range(n_layers)
        )

    def forward(
        self, u: Tensor, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.encoder.weight)
        blocks = cast("list[Block]", list(self.blocks))
        names = [
            (f"{k} of block {n}", width) for n, b in enumerate(blocks) for k, width in enumerate(b.widths)
        ]
        before = initial_state(state, tuple(name for name, _ in names), u, tuple(width for _, width in names))
        states: tuple[Tensor, ...] = ()
        with no_autocast(u):
            x = self.encoder(u)
            for block in blocks:
                here = len(states)
                x, last = block(x, before[here : here + len(block.widths)])
                states += last
        return x, states

    def step(self, u: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`forward` for one input u (B, D) of a sequence that comes in live."""
        return one_step(self, self.d_in, u, state)


def complex_diagonal(
    factor: Tensor, driven: Tensor, C: Tensor, state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    r"""All steps of :math:`x_n = \lambda \circ x_{n-1} + b_n`, :math:`y_n = \mathrm{Re}(C x_n)`, in real
    numbers.

    Args:
        factor: lambda, complex (P,).
        driven: b, (B, T, 2P), real parts before imaginary ones.
        C: (H, 2P), as `real_part` gives it.
        state: the real and the imaginary part of x before the first step, each (B, P).
    Returns: y (B, T, H), and the last parts of x.
    """
    a, b = factor.real.contiguous(), factor.imag.contiguous()

    def step(pushed: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        re, im = state
        push_re, push_im = pushed.chunk(2, 1)
        re, im = a * re - b * im + push_re, b * re + a * im + push_im
        return F.linear(torch.cat([re, im], 1), C), (re, im)

    return recurrence(step, driven, state)


def parts(re: Tensor, im: Tensor) -> Tensor:
    """A complex matrix (n, m) as the real one (2n, m) that gives real parts before imaginary ones."""
    return torch.cat([re, im])


def real_part(re: Tensor, im: Tensor) -> Tensor:
    """A complex matrix (n, P) as the real one (n, 2P) whose product with [re x, im x] is Re(C x)."""
    return torch.cat([re, -im], 1)
