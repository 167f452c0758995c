"""The sum as it is printed. Axes: N nodes, E edges, A heads, C channels of a head."""

import torch
from torch import Tensor

from physml.graph.edges import Edges


def weighted_sum(x: Tensor, weight: Tensor, edges: Edges) -> Tensor:
    r""":math:`S_{ia} = \sum_{e: j \to i} w_{ea} x_{ja}` over the edges that i receives, head by head.

    Shapes: x (N, A, C), weight (E, A) -> (N, A, C).
    """
    return torch.zeros_like(x).index_add(
        0, edges.receiver, weight[:, :, None] * x.index_select(0, edges.sender)
    )
