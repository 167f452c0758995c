"""GPRGNN. Axes: N nodes, E edges, H channels."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import gcn_spread
from physml.ops.dropout import dropout


class GPRGNN(nn.Module):
    r"""Predictions spread by a PageRank whose weights are trained.

    .. math:: Z = \sum_{k=0}^K \gamma_k P^k X

    with P the matrix of equation 7.5. A gamma below 0 takes neighbours away, as unlike neighbours ask for.

    Source: Chien et al., ICLR 2021, https://arxiv.org/abs/2006.07988, equation 1.
    Choices: the linear decoder acts after the spreading, not before. As both are linear, this is the paper's
    network, but that the bias of its last layer is not spread. Weight decay acts on gamma too, which the
    authors' code leaves out of it.
    Init: :math:`\gamma_k = \alpha (1 - \alpha)^k` and :math:`\gamma_K = (1 - \alpha)^K`, which is APPNP.
    Args:
        d_in: H.
        K: longest path.
        alpha: of the start of gamma.
        dropout: on X, the hidden layer of the paper's perceptron.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, *, K: int = 10, alpha: float = 0.1, dropout: float = 0.0) -> None:
        super().__init__()
        each(count, d_in=d_in, K=K)
        each(fraction, alpha=alpha, dropout=dropout)
        self.d_in = self.d_out = d_in
        self.K, self.alpha, self.dropout = K, alpha, dropout
        self.gamma = nn.Parameter(torch.empty(K + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for k in range(self.K):
                self.gamma[k] = self.alpha * (1 - self.alpha) ** k
            self.gamma[self.K] = (1 - self.alpha) ** self.K

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        x = dropout(x, self.dropout, self.training)
        spread = gcn_spread(x, edge_index, edge_weight)
        total = self.gamma[0] * x
        for k in range(1, self.K + 1):
            x = spread(x)
            total = total + self.gamma[k] * x
        return total

    def symbols(self) -> dict[str, Tensor]:
        return {"gamma": self.gamma}
