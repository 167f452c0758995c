"""The simple recurrent unit. Axes: B batch, T time, D features, H hidden units."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of
from physml.ops.cell import recurrent


@recurrent("c")
class SRU(nn.Module):
    r"""A gated layer in which a unit sees its own past alone, so that all products are with the input.

    .. math::
        f_n &= \sigma(W_f u_n + v_f \circ c_{n-1} + b_f), \qquad
        c_n = f_n \circ c_{n-1} + (1 - f_n) \circ (W u_n) \\
        r_n &= \sigma(W_r u_n + v_r \circ c_{n-1} + b_r), \qquad
        h_n = r_n \circ c_n + (1 - r_n) \circ \alpha\, x_n

    x is the input, or :math:`W_x u` where D and H differ.
    :math:`\alpha = (1 + 2 e^{b})^{1/2}`, b the start of b_r, keeps the variance of h that of x.

    Source: Lei et al., EMNLP 2018, https://arxiv.org/abs/1709.02755.
    Choices: v_f and v_r start at zero. The code has :math:`\alpha` in the start of W_x, not before its
    product.
    Init: matrices uniform on [-k, k], k = (3 / D)^(1/2); b_f zero; b_r = highway_bias. With init "official",
    as in the code, W_f and W_r times 0.5^(1/2), and v_f and v_r uniform on [-1.5^(1/2), 1.5^(1/2)].

    Args:
        d_in: D.
        d_hidden: H.
        highway_bias: b, see above.
        init: "official", see Init, or null.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (c,), (B, H).

    Example:
        >>> SRU(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        highway_bias: float = 0.0,
        init: Literal["official"] | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("init", init, ("official",), null=True)
        self.d_in, self.d_out, self.highway_bias, self.init = d_in, d_hidden, float(highway_bias), init
        self.alpha = math.sqrt(1 + 2 * math.exp(highway_bias))
        n_products = 3 if d_in == d_hidden else 4
        self.W = nn.Parameter(torch.empty(n_products * d_hidden, d_in))  # c, f, r, and x
        self.vf = nn.Parameter(torch.empty(d_hidden))
        self.vr = nn.Parameter(torch.empty(d_hidden))
        self.bf = nn.Parameter(torch.empty(d_hidden))
        self.br = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        k = (3 / self.d_in) ** 0.5
        nn.init.uniform_(self.W, -k, k)
        for p in (self.vf, self.vr, self.bf):
            nn.init.zeros_(p)
        nn.init.constant_(self.br, self.highway_bias)
        if self.init == "official":
            gates = self.W[self.d_out : 3 * self.d_out]
            nn.init.uniform_(gates, -((k**2 / 2) ** 0.5), (k**2 / 2) ** 0.5)
            for p in (self.vf, self.vr):
                nn.init.uniform_(p, -(1.5**0.5), 1.5**0.5)

    def symbols(self) -> dict[str, Tensor]:
        """Wx is there where D and H differ."""
        symbols = {name: getattr(self, name) for name in ("vf", "vr", "bf", "br")}
        parts = self.W.split(self.d_out)
        return {**symbols, **dict(zip(("W", "Wf", "Wr", "Wx"), parts, strict=False))}

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        (c,) = state
        new, f, r, *projected = F.linear(u, self.W).split(self.d_out, 1)
        x = projected[0] if projected else u
        f = torch.sigmoid(f + self.vf * c + self.bf)
        r = torch.sigmoid(r + self.vr * c + self.br)
        c = f * c + (1 - f) * new
        return r * c + (1 - r) * (self.alpha * x), (c,)
