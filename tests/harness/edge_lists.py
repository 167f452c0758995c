"""Small edge lists, and what tests of sums over edges share."""

import torch
from drawn_layers import numbers as draw  # noqa: F401
from torch import Tensor

from physml.graph.edges import Edges

N = 6
ODD = torch.tensor([[0, 0, 1, 1, 2, 3, 3, 0], [1, 1, 0, 2, 2, 4, 0, 3]])  # twice the same, a loop, 5 alone


def edges(edge_index: Tensor, n: int = N) -> Edges:
    return Edges(edge_index[0], edge_index[1], n)


def many(n: int = 40, n_edges: int = 300) -> Edges:
    return edges(torch.randint(0, n, (2, n_edges), generator=torch.Generator().manual_seed(0)), n)
