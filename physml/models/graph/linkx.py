"""LINKX. Axes: N nodes, E edges, D features, H channels."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import check_input, check_nodes, known_nodes
from physml.models.graph.graph_propagation import link_spread
from physml.ops.dropout import dropout


class LINKX(nn.Module):
    r"""A node's links as features of their own, beside those that it has.

    .. math::
        h_A = A W_A + b_A, \qquad h_X = X W_X + b_X, \qquad
        h = \mathrm{ReLU}(W [h_A \,|\, h_X] + b + h_A + h_X)

    and a perceptron of h, whose last layer is the net's decoder: no message passes, and W_A has a row for
    each node, so that it knows one graph alone. A[i, j] = 1 where i receives from j; the code has those that
    i sends to: the same where edges go both ways, `task.edges=reversed` where they go one way.

    Source: Lim et al., NeurIPS 2021, https://arxiv.org/abs/2110.14446, equations 5 to 7.
    Choices: one layer each for links and features, and no batch norm.
    Args:
        d_in: D.
        n_nodes: N, which the task gives.
        d_hidden: H.
        n_layers: layers of the last perceptron, with the decoder.
        dropout: on what enters each layer of the last perceptron but its last.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a task of many graphs, and for a graph of another size.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True

    def __init__(
        self, d_in: int, n_nodes: int | None, *, d_hidden: int, n_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        n_nodes = known_nodes("LINKX", n_nodes)
        each(count, d_in=d_in, n_nodes=n_nodes, d_hidden=d_hidden, n_layers=n_layers)
        fraction("dropout", dropout)
        self.d_in, self.n_nodes, self.d_out, self.dropout = d_in, n_nodes, d_hidden, dropout
        self.of_links, self.of_features = nn.Linear(n_nodes, d_hidden), nn.Linear(d_in, d_hidden)
        self.joined = nn.Linear(2 * d_hidden, d_hidden)
        self.layers = nn.ModuleList(nn.Linear(d_hidden, d_hidden) for _ in range(n_layers - 1))

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        check_nodes("LINKX", x, self.n_nodes)
        h_A = link_spread(x, edge_index)(self.of_links.weight.T) + self.of_links.bias
        h_X = linear(x, self.of_features.weight, self.of_features.bias)
        h = torch.relu(self.joined(torch.cat([h_A, h_X], 1)) + h_A + h_X)
        for layer in self.layers:
            h = torch.relu(layer(dropout(h, self.dropout, self.training)))
        return h
