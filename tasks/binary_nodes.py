"""Graphs of two classes whose neighbours are often of the other. Axes: N nodes, C = 2 classes."""

from typing import ClassVar

from physml.base.check import one_of
from physml.data.readers import heterophilous
from physml.data.store import Store
from physml.task.nodes import TwoClasses

GRAPHS = {"minesweeper": heterophilous.MINESWEEPER, "tolokers": heterophilous.TOLOKERS}


class BinaryNodes(TwoClasses):
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

    def __init__(self, *, graph: str, protocol: str) -> None:
        one_of("protocol", protocol, ("clean",))
        one_of("graph", graph, tuple(GRAPHS))
        self.datasets = (GRAPHS[graph],)
        self.graph, self.protocol = graph, protocol

    def load(self, store: Store, split: int) -> None:
        self.place_published(store.read(self.datasets[0]), split, "undirected", store)
