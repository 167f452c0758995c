"""The sLSTM of xLSTM. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each
from physml.base.errors import InputError
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, one_step, sequence

LOWEST = -1e30  # stands for the logarithm of 0, whose differences would be NaN


class SLSTM(nn.Module):
    r"""An LSTM with an exponential input gate and a normaliser, in several heads.

    .. math::
        \tilde z, \tilde i, \tilde f, \tilde o &= W u_n + R h_{n-1} + b, \qquad
        z = \tanh \tilde z, \quad o = \sigma(\tilde o) \\
        m_n &= \max(\log f + m_{n-1}, \tilde i), \qquad
        i = e^{\tilde i - m_n}, \quad f' = e^{\log f + m_{n-1} - m_n} \\
        c_n &= f' \circ c_{n-1} + i \circ z, \qquad q_n = f' \circ q_{n-1} + i, \qquad
        h_n = o \circ c_n / q_n

    with f the sigmoid of :math:`\tilde f`. q is the paper's normaliser n; m keeps the exponentials small,
    and h does not depend on it. It is :math:`-\infty` at rest, where q = 0, so that a first input gate of any
    size writes. R is block diagonal, with one block per gate and head: memories mix within a
    head.

    Source: Beck et al., NeurIPS 2024, https://arxiv.org/abs/2405.04517, Section 2.2; the layer alone, without
    the paper's residual block.
    Choices: forget gate with a sigmoid, one of the two that the paper allows.
    Init (ours; the text has none, the code a power law of b_f over a block and a small W): W uniform on
    [-k, k], k = D^(-1/2); R zero; b zero, that of f uniform on [3, 6], a memory of twenty to four hundred
    steps.

    Args:
        d_in: D.
        d_hidden: H.
        n_heads: number of heads, a divisor of H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, c, q, m), each (B, H).

    Example:
        >>> SLSTM(d_in=2, d_hidden=8, n_heads=2)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, n_heads: int = 1) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_heads=n_heads)
        if d_hidden % n_heads:
            raise InputError(f"n_heads must divide d_hidden = {d_hidden}; got {n_heads}.")
        self.d_in, self.d_out, self.n_heads = d_in, d_hidden, n_heads
        width = d_hidden // n_heads
        self.W = nn.Parameter(torch.empty(4 * d_hidden, d_in))  # z, i, f, o
        self.R = nn.Parameter(torch.empty(4, n_heads, width, width))
        self.b = nn.Parameter(torch.empty(4 * d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.W, -(self.d_in**-0.5), self.d_in**-0.5)
        nn.init.zeros_(self.R)
        nn.init.zeros_(self.b)
        nn.init.uniform_(self.b[2 * self.d_out : 3 * self.d_out], 3.0, 6.0)

    def symbols(self) -> dict[str, Tensor]:
        """All gates z, i, f, o packed; R (4, heads, H / heads, H / heads)."""
        return {"W": self.W, "R": self.R, "b": self.b}

    def forward(
        self, u: Tensor, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.W)
        h, c, q, m = initial_state(state, ("h", "c", "q", "m"), u, self.d_out)
        before = (h, c, q, torch.where(q > 0, m, LOWEST))
        with no_autocast(u):
            R = torch.cat([torch.block_diag(*blocks) for blocks in self.R])

        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
            h, c, q, m = state
            z, i, f, o = (F.linear(u, self.W, self.b) + F.linear(h, R)).chunk(4, 1)
            kept = m - F.softplus(-f)
            m = torch.maximum(kept, i)
            write, keep = torch.exp(i - m), torch.exp(kept - m)
            c, q = keep * c + write * torch.tanh(z), keep * q + write
            h = torch.sigmoid(o) * c / q
            return h, (h, c, q, m)

        return recurrence(step, u, before)

    def step(self, u: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`forward` for one input u (B, D) of a sequence that comes in live."""
        return one_step(self, self.d_in, u, state)
