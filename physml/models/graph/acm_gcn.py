"""ACM-GCN. Axes: N nodes, E edges, D features, H channels."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction
from physml.graph.cache import cached
from physml.graph.edges import looped
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import check_input, last
from physml.models.graph.graph_propagation import Spread, mean_over
from physml.ops.dropout import dropout

CHANNELS = ("L", "H", "I")


class ChannelMixing(nn.Module):
    r"""Means over neighbours, what they leave of a node, and the node itself, mixed as each node needs.

    .. math::
        X_L &= \sigma(P X W_L), \qquad X_H = \sigma((I - P) X W_H), \qquad X_I = \sigma(X W_I) \\
        X &\mapsto 3 \big(\alpha_L X_L + \alpha_H X_H + \alpha_I X_I\big), \qquad
        [\alpha_L, \alpha_H, \alpha_I] = \mathrm{softmax}\big(\tfrac13
            \mathrm{sigmoid}([X_L v_L \,|\, X_H v_H \,|\, X_I v_I])\, M\big)

    with :math:`P = \hat D^{-1} (A + I)`, sigma = ReLU and alpha of each node. With variant, option 2 of the
    paper, sigma acts before P and I - P, not after.

    Source: Luan et al., NeurIPS 2022, https://arxiv.org/abs/2210.07606; the factor 3, the third in the
    softmax, P and the start are those of its code.
    Choices: edges as given; the code takes those of its large graphs both ways. No layer norms, which are of
    ACM-GCN+.
    Init: W uniform on [-k, k], k = d_out^(-1/2), v on [-1, 1], M on [-3^(-1/2), 3^(-1/2)].
    Args:
        d_in: channels in.
        d_out: channels out.
        variant: sigma before P.
    Shapes: x (N, d_in), a tensor or `Rows`, edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int, *, variant: bool = False) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out, self.variant = d_in, d_out, variant
        self.lin = nn.Linear(d_in, 3 * d_out, bias=False)
        self.v = nn.Parameter(torch.empty(3, d_out))
        self.M = nn.Parameter(torch.empty(3, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight, k in ((self.lin.weight, self.d_out**-0.5), (self.v, 1.0), (self.M, 3**-0.5)):
            nn.init.uniform_(weight, -k, k)

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        mean, mixed = looped_mean(x, edge_index), linear(x, self.lin.weight)
        mixed = torch.relu(mixed) if self.variant else mixed
        low, high, own = mixed.split(self.d_out, 1)
        parts = [mean(low), high - mean(high), own]
        if not self.variant:
            parts = [torch.relu(part) for part in parts]
        logits = torch.sigmoid(torch.stack([part @ v for part, v in zip(parts, self.v, strict=True)], 1))
        alpha = torch.softmax(logits @ self.M / 3, 1)
        return 3 * sum(alpha[:, i, None] * part for i, part in enumerate(parts))

    def symbols(self) -> dict[str, Tensor]:
        W = dict(zip(CHANNELS, self.lin.weight.split(self.d_out), strict=True))
        return {
            **{f"W_{name}": weight.T for name, weight in W.items()},
            **{f"v_{name}": self.v[i] for i, name in enumerate(CHANNELS)},
            "M": self.M,
        }


class ACMGCN(nn.Module):
    r"""Layers that mix averages over neighbours, differences from them, and the node itself.

    .. math:: X^n = \mathrm{ReLU}(F_n(X^{n-1}))

    with a `ChannelMixing` as each F. The paper's network is two layers, the last without activation:
    n_layers=1 with the net's decoder=layer.

    Source: Luan et al., NeurIPS 2022, https://arxiv.org/abs/2210.07606.
    Args:
        d_in: D.
        d_hidden: H.
        n_layers: N, without the last.
        variant: of `ChannelMixing`.
        dropout: on what enters each layer but the first.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1
    takes_rows: ClassVar[bool] = True

    def __init__(
        self, d_in: int, d_hidden: int, n_layers: int = 1, *, variant: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        fraction("dropout", dropout)
        self.d_in, self.d_out, self.variant, self.dropout = d_in, d_hidden, variant, dropout
        sizes = [d_in] + [d_hidden] * (n_layers - 1)
        self.layers = nn.ModuleList(ChannelMixing(size, d_hidden, variant=variant) for size in sizes)

    def head(self, d_out: int) -> nn.Module:
        """One more layer of the same kind, for a read-out that passes messages; no activation follows it."""
        return ChannelMixing(self.d_out, d_out, variant=self.variant)

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        return last(self.steps(x, edge_index))

    def steps(self, x: Features, edge_index: Tensor) -> Iterator[Tensor]:
        """X^n after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, None, self.d_in)
        for layer in self.layers:
            later = isinstance(x, Tensor) and layer is not self.layers[0]
            layer_input = dropout(x, self.dropout, self.training) if later else x  # type: ignore[arg-type]
            x = torch.relu(layer(layer_input, edge_index))
            yield x


def looped_mean(x: Features, edge_index: Tensor) -> Spread:
    """The mean over a node and those it receives from, as a product. Made once per graph."""
    n, dtype = len(x), x.dtype
    return cached("looped mean", edge_index, (n, dtype), lambda: mean_over(looped(edge_index, n), dtype))
