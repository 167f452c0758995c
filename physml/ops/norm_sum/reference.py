"""The sum as it is printed. Axes: N nodes, E edges, H channels."""

import torch
from torch import Tensor

from physml.graph.edges import Edges


def norm_sum(q: Tensor, edges: Edges, p: float) -> Tensor:
    r""":math:`S_i = \sum_{e: i \to j} \|q_j - q_i\|_p` over the edges that i sends, the norm over channels.

    Shapes: q (N, H), of E edges -> (N, 1).
    """
    d = q.index_select(0, edges.receiver) - q.index_select(0, edges.sender)
    norm = torch.linalg.vector_norm(d, p, dim=1, keepdim=True)
    return q.new_zeros(len(q), 1).index_add(0, edges.sender, norm)
