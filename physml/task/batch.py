"""One batch, for every kind of task. Axes: B batch, T time, D features, N nodes, E edges."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One batch as the trainer gets it.

    Sequences: input (B, T, D) or token ids (B, T); target as the loss wants it.
    Graphs: input (N, D) node features, edge_index (2, E), batch (N,) the graph of each node.
    """

    input: Tensor
    target: Tensor
    index: Tensor | None = None  # (B,) positions of the items in their part; or of its nodes in the graph
    lengths: Tensor | None = None  # (B,) true lengths of padded sequences
    mask: Tensor | None = None  # which targets count: (N,) nodes or (B, T) steps
    edge_index: Tensor | None = None
    edge_weight: Tensor | None = None
    batch: Tensor | None = None
    carry: bool = False  # whether the state after the last batch is the state before this one

    def to(self, device: torch.device | str) -> "Batch":
        moved: dict[str, Any] = {
            f.name: value.to(device)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)
