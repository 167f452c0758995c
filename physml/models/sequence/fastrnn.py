"""FastRNN and FastGRNN. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each
from physml.ops.cell import recurrent


@recurrent("h")
class FastRNN(nn.Module):
    r"""A recurrent layer with a weighted residual connection: two more numbers than a tanh layer.

    .. math:: h_n = \sigma(\beta)\, h_{n-1} + \sigma(\alpha) \tanh(W u_n + U h_{n-1} + b)

    Source: Kusupati et al., NeurIPS 2018, https://arxiv.org/abs/1901.02358; official code in EdgeML.
    Choices: W and U of full rank, dense.
    Init: as in the official code: W and U 0.1 N(0, 1), b = 1, alpha = -3, beta = 3.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> FastRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_out = d_in, d_hidden
        self.W = nn.Parameter(torch.empty(d_hidden, d_in))
        self.U = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.alpha = nn.Parameter(torch.empty(()))
        self.beta = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.W, 0.0, 0.1)
        nn.init.normal_(self.U, 0.0, 0.1)
        nn.init.ones_(self.b)
        nn.init.constant_(self.alpha, -3.0)
        nn.init.constant_(self.beta, 3.0)

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.W, "U": self.U, "b": self.b, "alpha": self.alpha, "beta": self.beta}

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        (h,) = state
        push = torch.tanh(F.linear(u, self.W) + F.linear(h, self.U) + self.b)
        h = torch.sigmoid(self.beta) * h + torch.sigmoid(self.alpha) * push
        return h, (h,)


@recurrent("h")
class FastGRNN(nn.Module):
    r"""A gated layer whose gate and candidate share their matrices.

    .. math::
        g &= \sigma(W u_n + U h_{n-1} + b_g), \qquad c = \tanh(W u_n + U h_{n-1} + b_c) \\
        h_n &= g \circ h_{n-1} + (\sigma(\zeta)(1 - g) + \sigma(\nu)) \circ c

    Source: Kusupati et al., NeurIPS 2018, https://arxiv.org/abs/1901.02358; official code in EdgeML.
    Choices: W and U of full rank, dense, not quantised.
    Init: as in the official code: W and U 0.1 N(0, 1), both biases 1, zeta = 1, nu = -4.

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> FastGRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_out = d_in, d_hidden
        self.W = nn.Parameter(torch.empty(d_hidden, d_in))
        self.U = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.bg = nn.Parameter(torch.empty(d_hidden))
        self.bc = nn.Parameter(torch.empty(d_hidden))
        self.zeta = nn.Parameter(torch.empty(()))
        self.nu = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.W, 0.0, 0.1)
        nn.init.normal_(self.U, 0.0, 0.1)
        nn.init.ones_(self.bg)
        nn.init.ones_(self.bc)
        nn.init.constant_(self.zeta, 1.0)
        nn.init.constant_(self.nu, -4.0)

    def symbols(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("W", "U", "bg", "bc", "zeta", "nu")}

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        (h,) = state
        push = F.linear(u, self.W) + F.linear(h, self.U)
        g, c = torch.sigmoid(push + self.bg), torch.tanh(push + self.bc)
        h = g * h + (torch.sigmoid(self.zeta) * (1 - g) + torch.sigmoid(self.nu)) * c
        return h, (h,)
