"""The sum as it is printed. Axes: N nodes, E edges, H channels."""

import torch
from torch import Tensor

from physml.graph.edges import Edges


def gradient_sum(q: Tensor, edges: Edges, p: float) -> Tensor:
    r""":math:`S_i = \sum_{e: i \to j} |q_j - q_i|^p` over the edges that i sends, channel by channel.

    The slope of a term that is 0 is 0, for p < 1 too.

    Shapes: q (N, H), of E edges -> (N, H).
    """
    d = q.index_select(0, edges.receiver) - q.index_select(0, edges.sender)
    none = d == 0
    powers = torch.where(none, 0.0**p, torch.where(none, 1.0, d.abs()) ** p)
    return torch.zeros_like(q).index_add(0, edges.sender, powers)
