"""Plain stacks of graph layers. Axes: N nodes, E edges, D features, H channels."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, one_of, positive
from physml.base.errors import InputError
from physml.models.graph.graph_features import Features
from physml.models.graph.graph_layers import (
    GraphAttention,
    GraphConvolution,
    MeanConvolution,
    NodeLinear,
)
from physml.models.graph.graph_parts import ACTIVATIONS, Heads, call, check_input, last, merge_heads
from physml.ops.dropout import dropout


def drop_edges(edge_index: Tensor, edge_weight: Tensor | None, rate: float) -> tuple[Tensor, Tensor | None]:
    """Each edge of the list is left out with probability `rate`, both ways of an edge on their own."""
    kept = torch.rand(edge_index.shape[1], device=edge_index.device) >= rate
    return edge_index[:, kept], None if edge_weight is None else edge_weight[kept]


class PairNorm(nn.Module):
    r"""Centred features, each node scaled to a mean square of :math:`s^2` over nodes.

    .. math:: \tilde X_i = X_i - \frac1v \sum_j X_j, \qquad
        X_i \mapsto s\, \tilde X_i \Big/ \sqrt{\tfrac1v \sum_j \|\tilde X_j\|^2}

    Source: Zhao and Akoglu, ICLR 2020, https://arxiv.org/abs/1909.12223.
    Args:
        scale: s.
    Shapes: (N, H) -> (N, H), all nodes as one graph.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True  # means over all nodes: a batch of graphs would mix them

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__()
        positive("scale", scale)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(0)
        return self.scale * x / torch.sqrt(1e-6 + x.square().sum(1).mean())


class GNN(nn.Module):
    r"""A plain stack, :math:`X^n = \sigma(F_n(X^{n-1}))`: MLP, GCN, GAT or GraphSAGE.

    Args:
        d_in: D.
        d_hidden: H.
        n_layers: N.
        kind: "mlp", which sees no edges, "gcn", "gat" or "sage".
        activation: sigma.
        dropout: on what enters each layer but the first; attention weights of "gat" too.
        n_heads: of "gat", each of H channels, merged after sigma by `heads`, see `merge_heads`.
        residual: adds what entered a layer to what leaves it, where widths agree (equation 8.1).
        pair_norm: s of `PairNorm` before sigma; None: none.
        drop_edge: share of the edges left out, drawn anew in each call in training, the same in all layers.
            A last layer that is the read-out (net.decoder=layer) has all edges.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E), edge_weight (E,) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 2

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        *,
        kind: Literal["mlp", "gcn", "gat", "sage"],
        activation: str = "relu",
        dropout: float = 0.0,
        n_heads: int = 1,
        heads: Heads = "mean",
        residual: bool = False,
        pair_norm: float | None = None,
        drop_edge: float = 0.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        one_of("kind", kind, ("mlp", "gcn", "gat", "sage"))
        one_of("activation", activation, ACTIVATIONS)
        one_of("heads", heads, ("mean", "official"))
        each(fraction, dropout=dropout, drop_edge=drop_edge)
        if n_heads != 1 and kind != "gat":
            raise InputError(f"n_heads={n_heads} is for kind='gat'; got kind={kind!r}. Set it to 1.")
        self.d_in, self.d_hidden, self.d_out = d_in, d_hidden, d_hidden
        self.kind, self.activation, self.dropout, self.drop_edge = kind, activation, dropout, drop_edge
        self.n_heads, self.heads, self.residual = n_heads, heads, residual
        self.norm = None if pair_norm is None else PairNorm(scale=pair_norm)
        self.layers = nn.ModuleList(
            self._layer(d_in if n == 0 else d_hidden, d_hidden, n_heads) for n in range(n_layers)
        )

    def _layer(self, d_in: int, d_out: int, n_heads: int = 1) -> nn.Module:
        if self.kind == "gat":
            return GraphAttention(d_in, d_out, n_heads=n_heads, dropout=self.dropout)
        return {"mlp": NodeLinear, "gcn": GraphConvolution, "sage": MeanConvolution}[self.kind](d_in, d_out)

    def head(self, d_out: int) -> nn.Module:
        """One more layer of the same kind, for a read-out that passes messages; no activation follows it."""
        return self._layer(self.d_hidden, d_out)

    @property
    def takes_rows(self) -> bool:
        """True if the first layer's input may be `Rows`: not if it is added to that layer's output."""
        return not (self.residual and self.d_in == self.d_hidden)

    def forward(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight))

    def steps(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Iterator[Tensor]:
        """X^n after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        if self.training and self.drop_edge:
            edge_index, edge_weight = drop_edges(edge_index, edge_weight, self.drop_edge)
        sigma = ACTIVATIONS[self.activation]
        for n, layer in enumerate(self.layers):
            layer_input = dropout(x, self.dropout, self.training) if n > 0 and isinstance(x, Tensor) else x
            out = call(layer, layer_input, edge_index, edge_weight)
            if self.norm is not None:
                out = self.norm(out)
            out = merge_heads(sigma(out), self.d_hidden, self.heads)
            x = x + out if self.residual and isinstance(x, Tensor) and x.shape == out.shape else out
            yield x
