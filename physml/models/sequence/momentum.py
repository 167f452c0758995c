"""Recurrent layers whose input has momentum. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, positive
from physml.ops.cell import recurrent


@recurrent("h", "v")
class MomentumRNN(nn.Module):
    r"""A plain recurrent layer that takes its input through a heavy-ball step.

    .. math::
        v_n = \mu v_{n-1} + s\, (W u_n + b_1), \qquad h_n = \tanh(U h_{n-1} + b_2 + v_n)

    mu = 0 and s = 1 are the plain layer.

    Source: Nguyen et al., NeurIPS 2020, https://arxiv.org/abs/2006.06919; lecture of B. Wang (Utah, 2023),
    "Momentum RNN". The lecture leaves the biases out; they stand where the code of the Momentum LSTM has
    them.
    Init: W orthogonal, U the identity, biases zero, as in that code.

    Args:
        d_in: D.
        d_hidden: H.
        mu: momentum, 0 or more; below 1 v stays bounded.
        s: step size.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, v), each (B, H).

    Example:
        >>> MomentumRNN(d_in=2, d_hidden=8, mu=0.6, s=0.6)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, mu: float, s: float) -> None:
        super().__init__()
        _check(d_in, d_hidden, mu, s)
        self.d_in, self.d_out, self.mu, self.s = d_in, d_hidden, float(mu), float(s)
        self.W = nn.Parameter(torch.empty(d_hidden, d_in))
        self.U = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.b1 = nn.Parameter(torch.empty(d_hidden))
        self.b2 = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.orthogonal_(self.W)
        nn.init.eye_(self.U)
        nn.init.zeros_(self.b1)
        nn.init.zeros_(self.b2)

    def symbols(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("W", "U", "b1", "b2")}

    def step(self, u: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, v = state
        v = self.mu * v + self.s * F.linear(u, self.W, self.b1)
        h = torch.tanh(F.linear(h, self.U, self.b2) + v)
        return h, (h, v)


@recurrent("h", "c", "vi", "vf", "vg", "vo")
class MomentumLSTM(nn.Module):
    r"""An LSTM that takes its input through a heavy-ball step.

    .. math::
        v_n &= \mu v_{n-1} + s\, (W u_n + b_1), \qquad (i, f, g, o) = U h_{n-1} + b_2 + v_n \\
        c_n &= \sigma(f) \circ c_{n-1} + \sigma(i) \circ \tanh(g), \qquad h_n = \sigma(o) \circ \tanh(c_n)

    mu = 0 and s = 1 are the LSTM.

    Source: Nguyen et al., NeurIPS 2020, https://arxiv.org/abs/2006.06919, and its code, whose `epsilon` is s.
    Init: as in the code: W orthogonal; of U the block of gate i the identity and the others zero, which is
    what torch's `eye_` makes of a (4H, H) matrix; biases zero but those of f, which are 1 in both b_1 and
    b_2.

    Args:
        d_in: D.
        d_hidden: H.
        mu: momentum, 0 or more; below 1 v stays bounded.
        s: step size.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, c, v_i, v_f, v_g, v_o), each (B, H).

    Example:
        >>> MomentumLSTM(d_in=2, d_hidden=8, mu=0.6, s=0.6)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, mu: float, s: float) -> None:
        super().__init__()
        _check(d_in, d_hidden, mu, s)
        self.d_in, self.d_out, self.mu, self.s = d_in, d_hidden, float(mu), float(s)
        self.W = nn.Parameter(torch.empty(4 * d_hidden, d_in))  # i, f, g, o
        self.U = nn.Parameter(torch.empty(4 * d_hidden, d_hidden))
        self.b1 = nn.Parameter(torch.empty(4 * d_hidden))
        self.b2 = nn.Parameter(torch.empty(4 * d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.orthogonal_(self.W)
        nn.init.eye_(self.U)
        for b in (self.b1, self.b2):
            nn.init.zeros_(b)
            nn.init.ones_(b[self.d_out : 2 * self.d_out])

    def symbols(self) -> dict[str, Tensor]:
        """All gates i, f, g, o packed."""
        return {name: getattr(self, name) for name in ("W", "U", "b1", "b2")}

    def step(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        h, c, *v = state
        pushes, turns = F.linear(u, self.W, self.b1).chunk(4, 1), F.linear(h, self.U, self.b2).chunk(4, 1)
        v = [self.mu * before + self.s * push for before, push in zip(v, pushes, strict=True)]
        i, f, g, o = (turn + part for turn, part in zip(turns, v, strict=True))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c, *v)


def _check(d_in: int, d_hidden: int, mu: float, s: float) -> None:
    each(count, d_in=d_in, d_hidden=d_hidden)
    positive("s", s)
    non_negative("mu", mu)
