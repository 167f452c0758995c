"""Cora with links drawn at a wanted homophily. Axes: N nodes, E edge rows, D words."""

from typing import ClassVar

import numpy as np

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.data import graphs, splits
from physml.data.readers import syn_cora
from physml.data.store import Store
from physml.task.nodes import NodeClasses

SEED = 123_456  # of the order of nodes in the official code


class SynCora(NodeClasses):
    """Which of five classes a paper is of, where the share of links within a class is set.

    1490 nodes with 1433 words each, and as many links at every homophily: 0, 0.1, ..., 0.9, 0.99 or 1. There
    are three graphs of each: split 0 to 2 takes one of them. Their nodes are divided alike, 745 train, 372
    validate and 373 test, by the random order of the official code.

    Defined in: target: thesis 8.3, node classes of "the synthetic Cora dataset" of Zhu et al., homophily
    "between 0 and 0.99"; metric: test accuracy, caption of Figure 8.5; split: not in the text: of the code.

    Source: Zhu et al., NeurIPS 2020, https://arxiv.org/abs/2006.11468; the division: code of Rusch et al.,
    ICLR 2023, https://arxiv.org/abs/2210.00513.

    Args: homophily: the share of links between nodes of one class.
    """

    n_splits: ClassVar[int] = len(syn_cora.REPEATS)
    datasets = (syn_cora.SYN_CORA,)

    def __init__(self, *, homophily: float, protocol: str) -> None:
        one_of("protocol", protocol, ("official",))
        if homophily not in syn_cora.LEVELS:
            raise InputError(
                f"homophily must be one of {', '.join(map(str, syn_cora.LEVELS))}; got {homophily}. "
                "There are no graphs of others."
            )
        self.n_classes = self.d_out = syn_cora.N_CLASSES
        self.homophily, self.protocol = float(homophily), protocol

    def load(self, store: Store, split: int) -> None:
        if not 0 <= split < self.n_splits:
            raise InputError(
                f"there are {self.n_splits} graphs, split 0 to {self.n_splits - 1}; got {split}."
            )
        number = syn_cora.graph_number(self.homophily, syn_cora.REPEATS[split])
        graph = graphs.one(store.read(self.datasets[0]), number)
        n = len(graph["y"])
        self.place(
            graphs.dense_features(graph),
            graph["edge_index"],
            graph["y"],
            graphs.cut(_order(n), n // 2, n // 4),
            store,
        )


def _order(n: int) -> np.ndarray:
    """The recorded order of the 1490 nodes; a graph of another size is ordered in the same way."""
    if n == syn_cora.N:
        return splits.load_index(f"syn-cora-{SEED}")
    return np.random.RandomState(SEED).permutation(n)
