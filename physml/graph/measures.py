"""Measures of node features on a graph: energy, distance, homophily. Axes: N nodes, E edges, H channels.

Sums run over the edges as stored: an undirected edge stands in the list both ways, and counts twice.
"""

import torch
from torch import Tensor

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.graph.checks import check_graph


def dirichlet_energy(x: Tensor, edge_index: Tensor) -> Tensor:
    r""":math:`\frac1v \sum_i \sum_{j \in N_i} \|X_i - X_j\|^2`, a number; thesis equation 6.2, v nodes.

    Shapes: x (N, H), edge_index (2, E) -> ().
    """
    check_graph(x, edge_index)
    i, j = edge_index
    return (x[i] - x[j]).square().sum() / len(x)


def mean_average_distance(x: Tensor, edge_index: Tensor, *, form: str = "chen") -> Tensor:
    r"""Mean average distance (MAD) of neighbours, by :math:`d_{ij} = 1 - \cos(X_i, X_j)`.

    form: "chen": per node the mean over its neighbours whose distance is not 0, then the mean over the nodes
    that have such a neighbour (Chen et al., AAAI 2020, https://arxiv.org/abs/1909.03211), 0 if none has;
    "sum": :math:`\frac1v \sum_i \sum_{j \in N_i} d_{ij}`, the form that equation 6.2 suggests.
    A vector of zeros has distance 1 to all others, and 0 to itself.
    Shapes: x (N, H), edge_index (2, E) -> ().
    """
    one_of("form", form, ("chen", "sum"))
    check_graph(x, edge_index)
    exponent = torch.frexp(x.abs().amax(1, keepdim=True)).exponent  # lengths of 1 or so, by exact powers of 2
    x = torch.ldexp(torch.ldexp(x, -(exponent // 2)), exponent // 2 - exponent)
    length = x.norm(dim=1, keepdim=True)
    unit = x / torch.where(length > 0, length, 1)
    i, j = edge_index
    # half the squared distance of unit vectors: no cancellation where they are close
    distance = (unit[i] - unit[j]).square().sum(1) / 2
    empty = ((length[i] == 0) ^ (length[j] == 0)).squeeze(1)
    distance = torch.where(empty, 1.0, distance)
    if form == "sum":
        return distance.sum() / len(x)
    total = x.new_zeros(len(x)).index_add(0, i, distance)
    count = x.new_zeros(len(x)).index_add(0, i, (distance > 0).to(x.dtype))
    some = count > 0
    return (total[some] / count[some]).mean() if bool(some.any()) else x.new_zeros(())


def edge_homophily(edge_index: Tensor, y: Tensor) -> float:
    """The share of edges whose ends have the same label; loops count as edges.

    Shapes: edge_index (2, E), y (N,) labels.
    """
    if y.dim() != 1:
        raise InputError(f"y must have shape (N,), one label per node; got {tuple(y.shape)}.")
    check_graph(y[:, None], edge_index)
    if edge_index.shape[1] == 0:
        raise InputError("edge homophily is a share of edges; the graph has none.")
    return float((y[edge_index[0]] == y[edge_index[1]]).double().mean())


def grid(rows: int, columns: int) -> Tensor:
    """Edges of a rectangular grid with 4 neighbours per inner node, each both ways, row after row.

    Example:
        >>> grid(1, 3)
        tensor([[0, 1, 1, 2],
                [1, 2, 0, 1]])
    """
    if rows < 1 or columns < 1:
        raise InputError(f"a grid needs at least one row and one column; got {rows} and {columns}.")
    node = torch.arange(rows * columns).view(rows, columns)
    right = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()])
    down = torch.stack([node[:-1].flatten(), node[1:].flatten()])
    one_way = torch.cat([right, down], 1)
    return torch.cat([one_way, one_way.flip(0)], 1)
