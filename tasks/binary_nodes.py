"""Graphs of two classes whose neighbours are often of the other. Axes: N nodes, C = 2 classes."""

from typing import ClassVar

import torch
from torch import Tensor

from physml.base.check import one_of
from physml.data.readers import heterophilous
from physml.data.store import Store
from physml.task.base import Better, Metrics, Sums
from physml.task.batch import Batch
from physml.task.nodes import NodeClasses

GRAPHS = {"minesweeper": heterophilous.MINESWEEPER, "tolokers": heterophilous.TOLOKERS}


class BinaryNodes(NodeClasses):
    r"""Is a cell of a grid a mine, of which some neighbours' counts are known; was a worker banned.

    Minesweeper: 10,000 cells, an edge to each of the eight around; the features are the number of mines
    around, hidden for half of the cells. Tolokers: 11,758 workers, an edge between two of one project.
    Protocol clean: files and the 10 splits of Platonov et al., 50/25/25 percent; edges both ways.

    Metrics: roc_auc, the share of pairs of a node of class 1 and one of class 0 that the difference of the
    two logits puts in this order, ties by half; and those of `NodeClasses`.

    Defined in: target, metric and split: Platonov et al., section 4: which cells are mines,
    which workers were banned; ROC AUC for both graphs; 10 random splits, 50/25/25 percent, stored in their
    files.

    Source: Platonov et al., ICLR 2023, https://arxiv.org/abs/2302.11640.

    Args: graph: "minesweeper" or "tolokers".
    """

    n_splits: ClassVar[int] = 10
    metric: ClassVar[str] = "roc_auc"
    better: ClassVar[Better] = {"roc_auc": "higher", **NodeClasses.better}

    def __init__(self, *, graph: str, protocol: str) -> None:
        one_of("protocol", protocol, ("clean",))
        one_of("graph", graph, tuple(GRAPHS))
        self.datasets = (GRAPHS[graph],)
        self.n_classes = self.d_out = 2
        self.graph, self.protocol = graph, protocol

    def load(self, store: Store, split: int) -> None:
        self.place_published(store.read(self.datasets[0]), split, "undirected", store)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        """A part is one batch, so that its pairs are all of it."""
        logits, label = self.judged(output.detach().double(), batch)
        ordered, pairs = ordered_pairs(logits[:, 1] - logits[:, 0], label == 1)
        return super().score(output, batch) | {"ordered_sum": ordered, "pair_n": pairs}

    def finish(self, sums: Sums) -> Metrics:
        metrics = super().finish(sums)
        if not metrics:
            return {}
        auc = sums["ordered_sum"] / sums["pair_n"] if sums["pair_n"] else float("nan")
        return {"roc_auc": auc, **metrics}


def ordered_pairs(score: Tensor, positive: Tensor) -> tuple[float, int]:
    """Pairs of a positive and another in which the positive has the greater score, ties by half; all pairs.

    A score that is no number makes the first of the two NaN.
    Shapes: score (N,), positive (N,) bool.
    """
    _, group, size = torch.unique(score, return_inverse=True, return_counts=True)
    below = torch.cumsum(size, 0) - size
    middle = below[group].double() + (size[group] - 1).double() / 2  # those below, and half of its equals
    n = int(positive.sum())
    ordered = middle[positive].sum().item() - n * (n - 1) / 2
    return float("nan") if score.isnan().any() else ordered, n * (len(score) - n)
