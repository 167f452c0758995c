"""Directional aggregation. Axes: N nodes, E edges, H channels, K directions."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of, positive
from physml.base.errors import InputError
from physml.graph.edges import Edges, gather, sorted_edges
from physml.graph.eigenvectors import laplacian_vectors
from physml.models.graph.graph_convolutions import at_scales, degrees, extreme
from physml.models.graph.graph_parts import check_input

AGGREGATIONS = ("mean", "max", "min", "av", "dx")


class DirectionalConvolution(nn.Module):
    r"""DGN, means and derivatives of the messages along eigenvectors of the Laplacian.

    .. math::
        M_{ij} &= U X_j + V X_i + c, \qquad
        F^k_{ij} = \frac{\phi^k_j - \phi^k_i}{\sum_{j \in N_i} |\phi^k_j - \phi^k_i| + 10^{-8}} \\
        \mathrm{av}_k &= \sum_j |F^k_{ij}| M_{ij}, \qquad
        \mathrm{dx}_k = \Big|\sum_j F^k_{ij} M_{ij} - \big(\textstyle\sum_j F^k_{ij}\big) X_i\Big| \\
        X_i &\mapsto W \big[X_i \,|\, s \cdot m \;\text{for}\; s \in \{1, \lambda_i, \lambda_i^{-1}\},\;
        m \in \mathrm{aggregations}\big] + b, \qquad \lambda_i = \log(d_i + 1) / \delta

    with phi^k the k-th eigenvector above the first of the Laplacian of the graph, of each connected part on
    its own. Absolute values, so that the sign of phi does not matter. This is the layer that the code calls
    "complex", without features of edges.

    Source: Beaini et al., ICML 2021, https://arxiv.org/abs/2010.02863, B_av and B_dx; messages, scales of
    the degree and X_i in place of a message in dx as in its code.
    Choices: no norm by the number of nodes, which the code has before its batch norm; a node that receives
    nothing has aggregations 0; where an eigenvalue is multiple, as in a ring, phi is one
    choice of several, see `laplacian_vectors`.
    Init: that of a torch Linear; in the code Glorot uniform times the inverse of the channels in, biases 0.
    Args:
        d_in: channels in.
        d_out: channels out.
        delta: mean of log(d + 1) over the nodes of train.
        aggregations: of "mean", "max", "min", "av" and "dx"; the last two stand for all directions.
        n_directions: K.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        delta: float,
        aggregations: Sequence[str] = ("mean", "av", "dx"),
        n_directions: int = 1,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out, n_directions=n_directions)
        positive("delta", delta)
        for name in aggregations:
            one_of("aggregations", name, AGGREGATIONS)
        if not aggregations or len(set(aggregations)) != len(aggregations):
            raise InputError(f"aggregations must name some of {AGGREGATIONS}, each once; got {aggregations}.")
        self.d_in, self.d_out, self.delta = d_in, d_out, delta
        self.aggregations, self.n_directions = tuple(aggregations), n_directions
        n = sum(n_directions if name in ("av", "dx") else 1 for name in aggregations)
        self.U, self.V = nn.Linear(d_in, d_in), nn.Linear(d_in, d_in, bias=False)
        self.lin = nn.Linear((1 + 3 * n) * d_in, d_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges, aggregates = sorted_edges(edge_index, len(x)), []
        message = gather(self.U(x), edges.sender) + gather(self.V(x), edges.receiver)
        degree = degrees(edges).to(x.dtype)[:, None]
        for name in self.aggregations:
            aggregates += self._directional(name, message, x, edges, edge_index) or [
                _plain(name, message, edges, degree)
            ]
        return self.lin(torch.cat([x, *at_scales(torch.cat(aggregates, 1), degree, self.delta)], 1))

    def _directional(
        self, name: str, message: Tensor, x: Tensor, edges: Edges, edge_index: Tensor
    ) -> list[Tensor]:
        """av or dx of each direction; nothing for the other aggregations."""
        if name not in ("av", "dx"):
            return []
        aggregates = []
        for phi in laplacian_vectors(edge_index, len(x), self.n_directions).to(x).unbind(1):
            along = phi[edges.sender] - phi[edges.receiver]
            length = phi.new_zeros(edges.n).index_add(0, edges.receiver, along.abs()) + 1e-8
            F = along / length[edges.receiver]
            if name == "av":
                aggregates.append(_sums(F.abs()[:, None] * message, edges))
            else:
                aggregates.append((_sums(F[:, None] * message, edges) - _sums(F[:, None], edges) * x).abs())
        return aggregates

    def symbols(self) -> dict[str, Tensor]:
        return {
            "U": self.U.weight,
            "V": self.V.weight,
            "c": self.U.bias,
            "W": self.lin.weight,
            "b": self.lin.bias,
        }


def _sums(message: Tensor, edges: Edges) -> Tensor:
    return message.new_zeros(edges.n, message.shape[1]).index_add(0, edges.receiver, message)


def _plain(name: str, message: Tensor, edges: Edges, degree: Tensor) -> Tensor:
    """Mean, maximum or minimum over the edges that a node receives; 0 where there are none."""
    if name == "mean":
        return _sums(message, edges) / degree.clamp(min=1)
    return extreme("max" if name == "max" else "min", message, edges, degree)
