"""GeniePath. Axes: N nodes, E edges, H channels."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction
from physml.graph.edges import gather, looped
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import softmax_over
from physml.ops.dropout import dropout
from physml.ops.weighted_sum import weighted_sum


class GeniePath(nn.Module):
    r"""Attention chooses among neighbours, and a memory cell among the distances that signals come from.

    .. math::
        S_i^n &= \tanh\Big(W \sum_{j \in N_i \cup \{i\}} a_{ij} X_j^{n-1}\Big), \qquad
        a_{ij} = \mathrm{softmax}_j\, v \cdot \tanh(W_r X_i^{n-1} + W_s X_j^{n-1}) \\
        C^n &= \sigma(V_f S^n) \odot C^{n-1} + \sigma(V_i S^n) \odot \tanh(V_c S^n), \qquad
        X^n = \sigma(V_o S^n) \odot \tanh(C^n)

    with sigma the logistic function, C^0 = 0 and weights of each layer's own.

    Source: Liu et al., AAAI 2019, https://arxiv.org/abs/1802.00910.
    Choices: the eager form. The paper's lazy forms, which score higher on PPI, are not here: programs that go
    by their name differ in what their gates see. In some of these the cell is an LSTM, whose gates see
    X^(n-1) too.
    Init: v and the W's Glorot uniform, the V's as those of a Linear.
    Args:
        d_in: H.
        n_layers: N.
        dropout: on what enters each layer but the first.
    Shapes: x (N, H), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, n_layers: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        each(count, d_in=d_in, n_layers=n_layers)
        fraction("dropout", dropout)
        self.d_in = self.d_out = d_in
        self.dropout = dropout
        self.layers = nn.ModuleList(_Layer(d_in) for _ in range(n_layers))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        cell = torch.zeros_like(x)
        for n, layer in enumerate(self.layers):
            layer_input = dropout(x, self.dropout, self.training) if n > 0 else x
            x, cell = layer(layer_input, cell, edge_index)
        return x


class _Layer(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.W, self.W_r, self.W_s = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.v = nn.Parameter(torch.empty(1, d))
        self.V = nn.Linear(d, 4 * d, bias=False)  # i, f, o, c
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.W.weight, self.W_r.weight, self.W_s.weight, self.v):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, cell: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        edges = looped(edge_index, len(x))
        of_receiver, of_sender = gather(self.W_r(x), edges.receiver), gather(self.W_s(x), edges.sender)
        score = (torch.tanh(of_receiver + of_sender) * self.v).sum(1, keepdim=True)
        a = softmax_over(score, edges.receiver, len(x))[:, 0]
        S = torch.tanh(self.W(weighted_sum(x, a, edges)))
        i, f, o, c = self.V(S).chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(c)
        return torch.sigmoid(o) * torch.tanh(cell), cell
