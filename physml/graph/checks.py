"""Checks of an edge list against node features. Axes: N nodes, E edges, H channels."""

import torch
from torch import Tensor

from physml.base.check import Shaped, each, is_tensor
from physml.base.errors import InputError
from physml.graph.cache import cached


def check_graph(x: Shaped, edge_index: Tensor, edge_weight: Tensor | None = None) -> None:
    """InputError unless x (N, H), edge_index (2, E) within [0, N) and edge_weight (E,) belong together.

    The range of an edge list is cached: a change through NumPy or `.data` is not seen.
    """
    each(is_tensor, x=x, edge_index=edge_index)
    if x.dim() != 2 or 0 in x.shape:
        raise InputError(
            f"x must have shape (N, H) with at least one node and one channel; got {tuple(x.shape)}."
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(
            f"edge_index must have shape (2, E), senders above receivers; got {tuple(edge_index.shape)}."
        )
    if edge_index.dtype != torch.long:
        raise InputError(f"edge_index must hold int64 numbers of nodes; got {edge_index.dtype}.")
    if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
        raise InputError(
            f"edge_weight must have shape ({edge_index.shape[1]},), one number per edge; "
            f"got {tuple(edge_weight.shape)}."
        )
    low, high = cached("range", edge_index, (), lambda: _range(edge_index))
    if low < 0 or high >= len(x):
        raise InputError(
            f"edge_index must hold numbers of nodes in [0, {len(x)}); got {low} to {high}. "
            "Does it belong to these features?"
        )


def _range(edge_index: Tensor) -> tuple[int, int]:
    if edge_index.numel() == 0:
        return 0, -1
    low, high = torch.aminmax(edge_index)
    return int(low), int(high)
