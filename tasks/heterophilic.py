"""Graphs whose neighbours are mostly of another class. Axes: N nodes, E edge rows, D features, C classes."""

from typing import ClassVar

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.data import graphs
from physml.data.readers import heterophilous, webkb
from physml.data.store import Store
from physml.task.nodes import NodeClasses

OFFICIAL = {
    "texas": webkb.TEXAS,
    "wisconsin": webkb.WISCONSIN,
    "cornell": webkb.CORNELL,
    "cornell_bingzhewei": webkb.CORNELL_BINGZHEWEI,
    "film": webkb.FILM,
    "squirrel": webkb.SQUIRREL,
    "chameleon": webkb.CHAMELEON,
}
FILTERED = {
    "squirrel": heterophilous.SQUIRREL_FILTERED,
    "chameleon": heterophilous.CHAMELEON_FILTERED,
}


class Heterophilic(NodeClasses):
    r"""Which of five classes a page (Texas, Wisconsin, Cornell; Squirrel, Chameleon) or actor (Film) is of.

    Protocols:
      official: files and the 10 fixed splits of geom-gcn, which give 48/32/20 percent of the nodes to train,
        valid and test. Squirrel and Chameleon hold nodes twice, some in train and test.
      clean: Squirrel and Chameleon without the nodes that are there twice, undirected, with their own splits.

    Defined in: target: thesis 7.3 and 8.3, classes of nodes of WebKB, Wikipedia and Film graphs of Pei et
    al.; metric: test accuracy, captions of Tables 7.2 ("(MAP in %)", read as accuracy) and 8.7 (that of 8.2
    names none); split: "10 fixed train/val/test splits" of Pei et al., caption of Table 7.2; 8.3 cites the
    same paper.

    Source: Pei et al., Geom-GCN, ICLR 2020, https://arxiv.org/abs/2002.05287; filtered: Platonov et al.,
    ICLR 2023, https://arxiv.org/abs/2302.11640.

    Args: graph: "texas", "wisconsin", "cornell", "cornell_bingzhewei" (another file of the same name),
        "film", "squirrel" or "chameleon"; edges: "stored", each row once, as both official codes have them:
        an edge goes one way only, and page v receives from page u where a row says "u v"; "reversed", the
        other way, A X with A[u, v] = 1, as in the code of GCNII and GGCN: a page receives from those that
        it links to; or "undirected"; features: "raw", which None is too, or "row_sum", each row divided by
        its sum, as in the same code.
    """

    n_splits: ClassVar[int] = 10

    def __init__(self, *, graph: str, edges: str, protocol: str, features: str | None = None) -> None:
        one_of("protocol", protocol, ("official", "clean"))
        one_of("graph", graph, tuple(OFFICIAL))
        one_of("edges", edges, graphs.DIRECTIONS)
        if features is not None:
            one_of("features", features, ("raw", "row_sum"))
        known = OFFICIAL if protocol == "official" else FILTERED
        if graph not in known:
            raise InputError(
                f"protocol clean is there for {' and '.join(known)} alone; got graph={graph}. "
                "Use protocol=official."
            )
        self.datasets = (known[graph],)
        self.n_classes = self.d_out = webkb.N_CLASSES
        self.graph, self.edges, self.protocol, self.features = graph, edges, protocol, features

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(self.datasets[0])
        arrays = arrays | {"edge_index": graphs.coalesced(arrays["edge_index"])}
        if self.features == "row_sum":
            arrays = arrays | {"x": graphs.row_sums_of_one(graphs.dense_features(arrays))}
        self.place_published(arrays, split, self.edges, store)
