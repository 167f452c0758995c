"""Large graphs of few homophilic edges. Axes: N nodes, E edge rows, D features, C classes."""

from typing import ClassVar

from physml.base.check import one_of
from physml.data import graphs
from physml.data.readers import large_graphs
from physml.data.store import Store
from physml.task.nodes import NodeClasses, TwoClasses

YEARS = {"snap_patents": large_graphs.SNAP_PATENTS, "arxiv_year": large_graphs.ARXIV_YEAR}


class _Large(NodeClasses):
    """Five fixed splits that come with the data: 50 percent of the nodes train, 25 validate, 25 test."""

    n_splits: ClassVar[int] = 5
    edges: str

    def load(self, store: Store, split: int) -> None:
        self.place_published(store.read(self.datasets[0]), split, self.edges, store)


class LargeGraph(_Large):
    r"""Which fifth of the years a patent (snap-patents) or a paper (arXiv-year) is of, by what it cites.

    Protocol official: features, links, labels and splits of Lim et al., whose 5 fixed splits the field uses;
    no code of gradient gating on these graphs is public. Metric: accuracy.

    Defined in: target: thesis 8.3, "large graphs from Lim et al.", 5 classes, Table 8.3; metric: none
    printed; accuracy, as Lim et al. have it for both; split: not in the text: the five of Lim et al.

    Source: Lim et al., NeurIPS 2021, https://arxiv.org/abs/2110.14446.

    Args: graph: "snap_patents", 2,923,922 nodes, or "arxiv_year", 169,343 nodes; edges: "stored", each row
        once, from the work that cites to the cited one, as in the code of Lim et al.; "reversed";
        or "undirected".
    """

    def __init__(self, *, graph: str, edges: str, protocol: str) -> None:
        one_of("protocol", protocol, ("official",))
        one_of("graph", graph, tuple(YEARS))
        one_of("edges", edges, graphs.DIRECTIONS)
        self.datasets = (YEARS[graph],)
        self.n_classes = self.d_out = large_graphs.N_CLASSES
        self.graph, self.edges, self.protocol = graph, edges, protocol


class Genius(_Large, TwoClasses):
    r"""Which accounts of a site about song texts are marked; 421,961 nodes.

    Metrics: roc_auc, the chance that a marked account gets a higher logit than another one, ties counting
    half, which is exact, for a part is one batch; accuracy; cross_entropy (nats). Protocol and source as
    `LargeGraph`.

    Defined in: target: thesis 8.3, Table 8.3, 2 classes; metric: none printed there ("test accuracies" in
    the caption of 8.7); ROC AUC, as Lim et al. have it and as its values are those of their table; split:
    not in the text: the five of Lim et al.

    Args: edges: "undirected", as in the code of Lim et al.; "stored"; or "reversed".
    """

    datasets = (large_graphs.GENIUS_GRAPH,)

    def __init__(self, *, edges: str, protocol: str) -> None:
        one_of("protocol", protocol, ("official",))
        one_of("edges", edges, graphs.DIRECTIONS)
        self.edges, self.protocol = edges, protocol
