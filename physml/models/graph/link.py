"""LINK. Axes: N nodes, E edges, D features, H channels, O outputs."""

from typing import ClassVar

from torch import Tensor, nn

from physml.base.check import count, each
from physml.base.errors import InputError
from physml.models.graph.graph_parts import check_input, check_nodes, known_nodes
from physml.models.graph.graph_propagation import link_spread


class LinkRegression(nn.Module):
    r"""A linear map of a node's links, :math:`A W + b`; A[i, j] = 1 where i receives from j, without loops.

    Init: that of a Linear of N inputs.
    Args:
        n_nodes: N.
        d_out: O.
    Shapes: x (N, D), of which the number of rows alone counts, edge_index (2, E) -> (N, O).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, n_nodes: int, d_out: int) -> None:
        super().__init__()
        each(count, n_nodes=n_nodes, d_out=d_out)
        self.n_nodes, self.d_out = n_nodes, d_out
        self.lin = nn.Linear(n_nodes, d_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, None)
        check_nodes("LINK", x, self.n_nodes)
        return link_spread(x, edge_index)(self.lin.weight.T) + self.lin.bias


class LINK(nn.Module):
    r"""Classes by a node's links alone: logistic regression on rows of the adjacency matrix.

    .. math:: Y = A W + b

    W has a row for each node, so that it knows one graph alone; features are not looked at. This is the net's
    decoder=layer, before which nothing happens. With H channels and a linear decoder W is a product of two
    matrices, of rank H. A[i, j] = 1 where i receives from j; the code of Lim et al. has those that i sends
    to: `task.edges=reversed` where edges go one way.

    Source: Zheleva and Getoor, WWW 2009, https://doi.org/10.1145/1526709.1526781; as a baseline: Lim et al.,
    NeurIPS 2021, https://arxiv.org/abs/2110.14446.
    Args:
        d_in: D.
        n_nodes: N, which the task gives.
        d_hidden: H; None: none, for decoder=layer.
    Shapes: x (N, D), edge_index (2, E) -> (N, H), or x itself where d_hidden is None.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a task of many graphs, and for a graph of another size.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True

    def __init__(self, d_in: int, n_nodes: int | None, *, d_hidden: int | None = None) -> None:
        super().__init__()
        n_nodes = known_nodes("LINK", n_nodes)
        count("d_in", d_in)
        self.d_in, self.n_nodes, self.d_out = d_in, n_nodes, d_hidden
        self.of_links = None if d_hidden is None else LinkRegression(n_nodes, d_hidden)

    def head(self, d_out: int) -> nn.Module:
        """The regression itself, for decoder=layer."""
        if self.of_links is not None:
            raise InputError(
                "decoder=layer is LINK itself and needs model.d_hidden=null: no layer before it."
            )
        return LinkRegression(self.n_nodes, d_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        return x if self.of_links is None else self.of_links(x, edge_index)
