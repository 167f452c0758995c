"""Recurrent layers that learn to skip updates. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each
from physml.models.sequence.gated import by_gate
from physml.ops.cell import recurrent


class _Gate(nn.Module):
    """Decides whether a state is updated, and when it will be next."""

    def __init__(self, d_hidden: int) -> None:
        super().__init__()
        self.Wp = nn.Parameter(torch.empty(1, d_hidden))
        self.bp = nn.Parameter(torch.empty(1))

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.Wp)
        nn.init.ones_(self.bp)

    def open(self, wait: Tensor) -> Tensor:
        """u (B, 1): 1 where the state is updated, else 0; its gradient is that of 1 - wait."""
        p = 1 - wait
        return torch.where(p > 0.5, torch.ones_like(p), torch.zeros_like(p)) + (p - p.detach())

    def next(self, u: Tensor, wait: Tensor, s: Tensor) -> Tensor:
        """wait (B, 1) of the next step, from the gate and the state of this one."""
        p, rise = 1 - wait, torch.sigmoid(F.linear(s, self.Wp, self.bp))
        return 1 - (u * rise + (1 - u) * (p + torch.minimum(rise, wait)))


def _wide(u: Tensor, like: Tensor) -> Tensor:
    """(B, 1) as (B, H), H that of `like` (n, H)."""
    return F.linear(u, torch.ones_like(like[:1]).t())


@recurrent("h", "c", wait="n_gates")
class SkipLSTM(nn.Module):
    r"""An LSTM that copies its state where a learned binary gate is closed.

    With :math:`(\tilde h, \tilde c)` the next state of an LSTM,

    .. math::
        g_n &= \text{round}(\tilde g_n), \qquad
        (h_n, c_n) = g_n (\tilde h, \tilde c) + (1 - g_n)(h_{n-1}, c_{n-1}) \\
        \Delta_n &= \sigma(W_p c_n + b_p), \qquad
        \tilde g_{n+1} = g_n \Delta_n + (1 - g_n)(\tilde g_n + \min(\Delta_n, 1 - \tilde g_n)), \quad
        \tilde g_1 = 1

    The gradient takes the rounding for the identity (straight-through).

    Source: Campos et al., ICLR 2018, https://arxiv.org/abs/1708.06834; its code, for W_p's input, c alone.
    Gradients are the paper's: the code takes min(Delta_n, 1 - g~_n) otherwise, so that its gradient of W_p
    differs.
    Choices: no term in the loss for the number of updates, the paper's lambda = 0. One bias per gate. In
    place of the gate's :math:`\tilde g` the state holds wait = 1 - g~, which is 0 at rest.
    Init: V and W Glorot uniform, together as one matrix; b zero, that of the forget gate 1; W_p Glorot
    uniform, b_p = 1, so that at first most steps are updates.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, c, wait), (B, H), (B, H) and (B, 1).

    Example:
        >>> SkipLSTM(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    n_gates: ClassVar[int] = 1

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_out = d_in, d_hidden
        self.V = nn.Parameter(torch.empty(4 * d_hidden, d_in))  # i, f, g, o
        self.W = nn.Parameter(torch.empty(4 * d_hidden, d_hidden))
        self.b = nn.Parameter(torch.empty(4 * d_hidden))
        self.gate = _Gate(d_hidden)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.gate.reset_parameters()
        k = (6 / (self.d_in + 5 * self.d_out)) ** 0.5
        nn.init.uniform_(self.V, -k, k)
        nn.init.uniform_(self.W, -k, k)
        nn.init.zeros_(self.b)
        nn.init.ones_(self.b[self.d_out : 2 * self.d_out])

    def symbols(self) -> dict[str, Tensor]:
        """`W` acts on h, `V` on the input; gates i, f, g, o."""
        gates = by_gate("ifgo", W=self.W, V=self.V, b=self.b)
        return {"Wp": self.gate.Wp, "bp": self.gate.bp, **gates}

    def step(
        self, u: Tensor, state: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        h, c, wait = state
        i, f, g, o = (F.linear(u, self.V, self.b) + F.linear(h, self.W)).chunk(4, 1)
        c_new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h_new = torch.sigmoid(o) * torch.tanh(c_new)
        gate = self.gate.open(wait)
        taken = _wide(gate, self.W)
        h, c = taken * h_new + (1 - taken) * h, taken * c_new + (1 - taken) * c
        return h, (h, c, self.gate.next(gate, wait, c))


@recurrent("h", wait="n_gates")
class SkipGRU(nn.Module):
    r"""A GRU that copies its state where a learned binary gate is closed.

    The gate is that of `SkipLSTM`, with h for c; the GRU inside is

    .. math::
        r, z &= \sigma(W_{r,z} h_{n-1} + V_{r,z} u_n + b_{r,z}), \qquad
        k = \tanh(V_k u_n + W_k (r \circ h_{n-1}) + b_k) \\
        \tilde h &= z \circ h_{n-1} + (1 - z) \circ k

    Source: Campos et al., ICLR 2018, https://arxiv.org/abs/1708.06834, and its code.
    Choices: no term in the loss for the number of updates, the paper's lambda = 0. One bias per gate; the
    reset gate acts before the product, as in the code.
    Init: V and W Glorot uniform, those of the gates together and those of the candidate; b of the gates 1,
    of the candidate 0; W_p Glorot uniform, b_p = 1.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, wait), (B, H) and (B, 1).

    Example:
        >>> SkipGRU(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    n_gates: ClassVar[int] = 1

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_out = d_in, d_hidden
        self.V = nn.Parameter(torch.empty(3 * d_hidden, d_in))  # r, z, k
        self.W = nn.Parameter(torch.empty(2 * d_hidden, d_hidden))  # r, z
        self.Wk = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.b = nn.Parameter(torch.empty(3 * d_hidden))
        self.gate = _Gate(d_hidden)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.gate.reset_parameters()
        D, H = self.d_in, self.d_out
        for part, fan in (
            (self.V[: 2 * H], D + 3 * H),
            (self.W, D + 3 * H),
            (self.V[2 * H :], D + 2 * H),
            (self.Wk, D + 2 * H),
        ):
            nn.init.uniform_(part, -((6 / fan) ** 0.5), (6 / fan) ** 0.5)
        nn.init.ones_(self.b[: 2 * H])
        nn.init.zeros_(self.b[2 * H :])

    def symbols(self) -> dict[str, Tensor]:
        """`W` acts on h, `V` on the input; gates r and z, candidate k."""
        gates = by_gate("rzk", V=self.V, W=(*self.W.chunk(2), self.Wk), b=self.b)
        return {"Wp": self.gate.Wp, "bp": self.gate.bp, **gates}

    def step(self, u: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, wait = state
        Vr, Vz, Vk = F.linear(u, self.V, self.b).chunk(3, 1)
        Wr, Wz = F.linear(h, self.W).chunk(2, 1)
        r, z = torch.sigmoid(Vr + Wr), torch.sigmoid(Vz + Wz)
        k = torch.tanh(Vk + F.linear(r * h, self.Wk))
        h_new = z * h + (1 - z) * k
        gate = self.gate.open(wait)
        taken = _wide(gate, self.Wk)
        h = taken * h_new + (1 - taken) * h
        return h, (h, self.gate.next(gate, wait, h))
