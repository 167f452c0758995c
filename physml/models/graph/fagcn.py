"""FAGCN. Axes: N nodes, E edges, H channels."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, one_of
from physml.graph.edges import gather
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import simple_edges, symmetric_weights
from physml.ops.dropout import dropout
from physml.ops.weighted_sum import weighted_sum


class FAGCN(nn.Module):
    r"""Neighbours added or taken away, as a gate between -1 and 1 says for each edge.

    .. math::
        X_i^n = \epsilon X_i^0 + \sum_{j \in N_i} \frac{a_{ij}}{\sqrt{d_i d_j}} X_j^{n-1}, \qquad
        a_{ij} = \tanh(g_r \cdot X_i^{n-1} + g_s \cdot X_j^{n-1} + c)

    with g_r, g_s and c of each layer's own; c is in the code alone.

    Source: Bo et al., AAAI 2021, https://arxiv.org/abs/2101.00797, equations 6 and 8.
    Choices: N_i is who i receives from, without i itself; where edges go one way, d_i counts what i receives
    and d_j what j sends.
    Init: g Glorot normal, widened by sqrt(2); c uniform on [-k, k], k = (2 H)^(-1/2).
    Args:
        d_in: H.
        n_layers: N.
        epsilon: share of the start.
        dropout: on X at the start, and on the gates.
        bias: "official": gates have c; None: c = 0.
    Shapes: x (N, H), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        n_layers: int,
        *,
        epsilon: float = 0.3,
        dropout: float = 0.0,
        bias: Literal["official"] | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, n_layers=n_layers)
        each(fraction, epsilon=epsilon, dropout=dropout)
        one_of("bias", bias, ("official",), null=True)
        self.d_in = self.d_out = d_in
        self.n_layers, self.epsilon, self.dropout = n_layers, epsilon, dropout
        self.g = nn.ParameterList(nn.Parameter(torch.empty(2, d_in)) for _ in range(n_layers))
        self.c = None if bias is None else nn.Parameter(torch.empty(n_layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for g in self.g:
            nn.init.normal_(g, std=2 * (2 * self.d_in + 1) ** -0.5)
        if self.c is not None:
            nn.init.uniform_(self.c, -((2 * self.d_in) ** -0.5), (2 * self.d_in) ** -0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = simple_edges(edge_index, len(x))
        norm = symmetric_weights(edges, x.dtype)
        start = x = dropout(x, self.dropout, self.training)
        for n, g in enumerate(self.g):
            of_receiver, of_sender = (x @ g.T).unbind(1)
            if self.c is not None:
                of_receiver = of_receiver + self.c[n]
            gate = torch.tanh(gather(of_receiver, edges.receiver) + gather(of_sender, edges.sender))
            weight = dropout(gate, self.dropout, self.training) * norm
            x = self.epsilon * start + weighted_sum(x, weight, edges)
        return x

    def symbols(self) -> dict[str, Tensor]:
        symbols = {f"g_{end}^{n}": g[i] for n, g in enumerate(self.g, 1) for i, end in enumerate("rs")}
        return symbols if self.c is None else symbols | {"c": self.c}
