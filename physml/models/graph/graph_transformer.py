"""A transformer over the edges of a graph. Axes: N nodes, E edges, H channels, A heads."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, one_of
from physml.base.errors import InputError
from physml.graph.edges import Edges, gather, sorted_edges
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import softmax_over
from physml.ops.dropout import dropout
from physml.ops.weighted_sum import weighted_sum


class GraphTransformer(nn.Module):
    r"""Blocks of attention among neighbours and a perceptron, each with a link past it and a norm.

    .. math::
        Z_i &= \mathrm{Norm}\Big(X_i + O \big[\textstyle\sum_{j \in N_i} w_{ij}^a V^a X_j\big]_a + o\Big),
        \qquad w_{ij}^a = \mathrm{softmax}_j\, \frac{Q^a X_i \cdot K^a X_j}{\sqrt{H / A}} \\
        X_i &\mapsto \mathrm{Norm}\big(Z_i + W_2\, \mathrm{ReLU}(W_1 Z_i + b_1) + b_2\big)

    Source: Dwivedi and Bresson 2020, https://arxiv.org/abs/2012.09699, equations 2 to 6.
    Choices: no positional encoding, so that nodes know their place by their neighbours alone; a node that
    receives nothing has no sum. The authors' code drops before O and W_2, not behind them, and cuts scores at
    -5 and 5 before the softmax.
    Args:
        d_in: H, a multiple of A.
        n_layers: number of blocks.
        n_heads: A.
        norm: "layer" or "batch".
        dropout: on what attention and perceptron give.
    Shapes: x (N, H), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        n_layers: int,
        *,
        n_heads: int = 4,
        norm: Literal["layer", "batch"] = "layer",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, n_layers=n_layers, n_heads=n_heads)
        one_of("norm", norm, ("layer", "batch"))
        fraction("dropout", dropout)
        if d_in % n_heads:
            raise InputError(f"n_heads must divide the width, {d_in}; got {n_heads}.")
        self.d_in = self.d_out = d_in
        self.blocks = nn.ModuleList(_Block(d_in, n_heads, norm, dropout) for _ in range(n_layers))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = sorted_edges(edge_index, len(x))
        for block in self.blocks:
            x = block(x, edges)
        return x


class _Block(nn.Module):
    def __init__(self, d: int, n_heads: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.Q, self.K, self.V = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.O, self.W_1, self.W_2 = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        kind = nn.LayerNorm if norm == "layer" else nn.BatchNorm1d
        self.norm_1, self.norm_2 = kind(d), kind(d)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        q, k, v = (part(x).view(len(x), self.n_heads, -1) for part in (self.Q, self.K, self.V))
        score = (gather(q, edges.receiver) * gather(k, edges.sender)).sum(-1) / q.shape[-1] ** 0.5
        weight = softmax_over(score, edges.receiver, len(x))
        x = self.norm_1(x + self._drop(self.O(weighted_sum(v, weight, edges).flatten(1))))
        return self.norm_2(x + self._drop(self.W_2(torch.relu(self.W_1(x)))))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)
