"""GGCN. Axes: N nodes, E edges, D features, H channels."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, fraction, non_negative, positive
from physml.graph.edges import gather
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import simple_edges
from physml.ops.dropout import dropout
from physml.ops.elu import elu
from physml.ops.weighted_sum import weighted_sum


class SignedConvolution(nn.Module):
    r"""Neighbours that look alike are added, those that do not are taken away, each with a weight of its own.

    .. math::
        X_i &\mapsto \mathrm{softplus}(s) \Big( \beta_0 \sum_j [w_{ij}]_+ Z_j - \beta_1 \sum_j [-w_{ij}]_+ Z_j
              + \beta_2 Z_i \Big), \qquad Z = X W^\top + b \\
        w_{ij} &= \frac{\cos(Z_i, Z_j)}{\sqrt{d_i d_j}}\,
              \mathrm{softplus}\big(c_0 (\sqrt{d_j / d_i} - 1) + c_1\big), \qquad
              \beta = \mathrm{softmax}(a)

    over the neighbours j of i, without i; d is 1 and what a node receives.

    Source: Yan et al., ICDM 2022, https://arxiv.org/abs/2102.06462, section 4; starts as in its code.
    Init: W and b as those of a Linear, a 0, s 2, c (0.5, 0).
    Args:
        d_in: channels in.
        d_out: channels out.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out = d_in, d_out
        self.lin = nn.Linear(d_in, d_out)
        self.a, self.s, self.c = (nn.Parameter(torch.empty(n)) for n in (3, 1, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.a.zero_()
            self.s.fill_(2)
            self.c[0], self.c[1] = 0.5, 0.0

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges, Z = simple_edges(edge_index, len(x)), linear(x, self.lin.weight, self.lin.bias)
        d = 1 + torch.bincount(edges.receiver, minlength=len(x)).to(Z.dtype)
        own, other = d[edges.receiver], d[edges.sender]
        length = Z.norm(dim=1)
        dot = (gather(Z, edges.receiver) * gather(Z, edges.sender)).sum(1)
        cosine = dot / (length[edges.receiver] * length[edges.sender]).clamp(min=1e-9)
        w = cosine * (own * other).rsqrt() * F.softplus(self.c[0] * ((other / own).sqrt() - 1) + self.c[1])
        beta = torch.softmax(self.a, 0)
        signed = beta[0] * torch.relu(w) - beta[1] * torch.relu(-w)
        return F.softplus(self.s) * (weighted_sum(Z, signed, edges) + beta[2] * Z)

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.lin.weight, "b": self.lin.bias, "a": self.a, "s": self.s, "c": self.c}


class GGCN(nn.Module):
    r"""Signed convolutions whose share decays with depth, on top of a layer that sees no edges.

    .. math::
        X^0 = \mathrm{ELU}(V X + v), \qquad X^1 = X^0 + \mathrm{ELU}(F_1(X)), \qquad
        X^n = X^{n-1} + \log(\eta / (n + 1)^k + 1)\, \mathrm{ELU}(F_n(X^{n-1}))

    with F of `SignedConvolution`. The paper's last layer is one more, without activation: the net's
    decoder=layer. The code decays by n + 1, the paper by n.

    Source: Yan et al., ICDM 2022, https://arxiv.org/abs/2102.06462, section 4, and its code.
    Args:
        d_in: D.
        d_hidden: H.
        n_layers: N, without the last.
        decay: eta.
        exponent: k.
        dropout: on each ELU of F.
    Shapes: x (N, D), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 3
    takes_rows: ClassVar[bool] = True

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        *,
        decay: float = 1.0,
        exponent: float = 3.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        positive("decay", decay)
        non_negative("exponent", exponent)
        fraction("dropout", dropout)
        self.d_in, self.d_out, self.dropout = d_in, d_hidden, dropout
        self.decay, self.exponent = decay, exponent
        self.own = nn.Linear(d_in, d_hidden)
        sizes = [d_in] + [d_hidden] * (n_layers - 1)
        self.layers = nn.ModuleList(SignedConvolution(size, d_hidden) for size in sizes)

    def head(self, d_out: int) -> nn.Module:
        """One more layer of the same kind, for a read-out that passes messages; no activation follows it."""
        return SignedConvolution(self.d_out, d_out)

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        layer_input: Features = x
        total = elu(linear(x, self.own.weight, self.own.bias))
        for n, layer in enumerate(self.layers, 1):
            new = dropout(elu(layer(layer_input, edge_index)), self.dropout, self.training)
            share = 1.0 if n == 1 else math.log(self.decay / (n + 1) ** self.exponent + 1)
            layer_input = total = total + share * new
        return total
