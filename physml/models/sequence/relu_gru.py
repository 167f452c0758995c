"""The GRU whose candidate is a ReLU. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each
from physml.models.sequence.gated import by_gate
from physml.ops.cell import recurrent


@recurrent("h")
class ReLUGRU(nn.Module):
    r"""A gated recurrent unit with a ReLU in place of tanh.

    .. math::
        z, r &= \sigma(W_{z,r} u_n + U_{z,r} h_{n-1} + b_{z,r}), \qquad
        k = \max(0, W_k u_n + U_k (r \circ h_{n-1}) + b_k) \\
        h_n &= (1 - z) \circ h_{n-1} + z \circ k

    Source: Dey and Salem 2017, https://arxiv.org/abs/1701.05923, the network GRU0 with a ReLU. The reset gate
    acts before the product with U_k, so this is not torch's GRU with another function.
    Choices: one bias per gate; nothing bounds h, so clip gradients on long sequences.
    Init: W and U Glorot uniform, each gate by itself; b zero.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> ReLUGRU(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_out = d_in, d_hidden
        self.W = nn.Parameter(torch.empty(3 * d_hidden, d_in))  # z, r, k
        self.U = nn.Parameter(torch.empty(2 * d_hidden, d_hidden))  # z, r
        self.Uk = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.b = nn.Parameter(torch.empty(3 * d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for matrix in (*self.W.chunk(3), *self.U.chunk(2), self.Uk):
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.b)

    def symbols(self) -> dict[str, Tensor]:
        """`W` acts on the input, `U` on h; gates z and r, candidate k."""
        return by_gate("zrk", W=self.W, U=(*self.U.chunk(2), self.Uk), b=self.b)

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        (h,) = state
        Wz, Wr, Wk = F.linear(u, self.W, self.b).chunk(3, 1)
        Uz, Ur = F.linear(h, self.U).chunk(2, 1)
        z, r = torch.sigmoid(Wz + Uz), torch.sigmoid(Wr + Ur)
        k = torch.relu(Wk + F.linear(r * h, self.Uk))
        h = (1 - z) * h + z * k
        return h, (h,)
