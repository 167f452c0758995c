"""APPNP. Axes: N nodes, E edges, H channels."""

from typing import ClassVar

from torch import Tensor, nn

from physml.base.check import count, each, fraction
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import gcn_spread
from physml.ops.dropout import dropout


class APPNP(nn.Module):
    r"""Predictions spread by personalised PageRank.

    .. math:: Z^k = (1 - \alpha) P Z^{k-1} + \alpha Z^0, \qquad Z^0 = X, \qquad X \mapsto Z^K

    with P the matrix of equation 7.5. It has no weights: these are the encoder's and the decoder's.

    Source: Gasteiger et al., ICLR 2019, https://arxiv.org/abs/1810.05997, equation 4.
    Choices: the linear decoder acts after the spreading, not before. As both are linear, this is the paper's
    network, but that the bias of its last layer is not spread. No dropout of entries of P.
    Args:
        d_in: H.
        K: steps of the power iteration.
        alpha: probability of a return to the start.
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

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        start = x = dropout(x, self.dropout, self.training)
        spread = gcn_spread(x, edge_index, edge_weight)
        for _ in range(self.K):
            x = (1 - self.alpha) * spread(x) + self.alpha * start
        return x
