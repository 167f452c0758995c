"""Papers that cite each other, to be told by topic. Axes: N nodes, D features, C classes."""

import numpy as np
from torch import Tensor

from physml.base.check import each, one_of, positive
from physml.base.errors import InputError
from physml.data import graphs
from physml.data.readers import planetoid, shchur
from physml.data.store import Store
from physml.task.base import Sums
from physml.task.batch import Batch
from physml.task.nodes import NodeClasses

PLANETOID = {"cora": planetoid.CORA, "citeseer": planetoid.CITESEER, "pubmed": planetoid.PUBMED}
SHCHUR = {"computers": shchur.COMPUTERS, "photo": shchur.PHOTO}
N_CLASSES = {
    **{graph: planetoid.SIZES[graph][2] for graph in PLANETOID},
    **{graph: shchur.SIZES[graph][3] for graph in SHCHUR},
}


class Citation(NodeClasses):
    r"""Which topic a paper is of (Cora, Citeseer, Pubmed), or which kind a product (Computers, Photo).

    Edges go both ways, once; loops are left out.

    Splits:
      random: of the largest component, as Shchur et al. draw them: of `n_development` random nodes,
        `n_per_class` of each class train and the others validate; all other nodes test. Split k is cut from
        the k-th recorded order, k = 0..4.
      public: of the whole graph, the one split of Planetoid: 20 nodes of each class train, 500 validate,
        1000 test.

    Protocols: official: the papers of Citeseer that have no label are of class 0, as the official code of
    GraphCON gets them from PyG; 10 of them are in the largest component. clean: they take part in nothing.
    The protocols differ on Citeseer's random splits alone.

    Defined in: target: thesis 7.3, "node classification tasks, based on the citation networks"; metric: "test
    accuracy (MAP in %)", caption of Table 7.1, read as accuracy, 20 starts on each of 5 random splits; split:
    those of Shchur et al., "only on the largest connected component", 7.3; sizes and draws are of the code.

    Source: Shchur et al. 2018, https://arxiv.org/abs/1811.05868; public: Yang et al., ICML 2016,
    https://arxiv.org/abs/1603.08861.
    Departure: the official code of GraphCON draws its splits with seeds that it does not keep; here five
    orders are recorded.

    A network that is read at several times, output (S, N, C), as `LateCitationGraphCON`, is scored by the
    reading with the best accuracy on validation nodes, in all parts; the first one unless a later is better.

    Args: graph: "cora", "citeseer", "pubmed", "computers" or "photo". split_of: "random" or "public".
        features: "raw", the stored words, or "row_sum", divided by the sum over each node's words.
        n_per_class, n_development: of random splits, see above.
    Errors: InputError for a name that is not there, or a public split of a graph that has none.
    """

    def __init__(
        self,
        *,
        graph: str,
        split_of: str,
        features: str,
        n_per_class: int,
        n_development: int,
        protocol: str,
    ) -> None:
        one_of("graph", graph, tuple(N_CLASSES))
        one_of("split_of", split_of, ("random", "public"))
        one_of("features", features, ("raw", "row_sum"))
        one_of("protocol", protocol, ("official", "clean"))
        each(positive, n_per_class=n_per_class, n_development=n_development)
        if split_of == "public" and graph not in PLANETOID:
            raise InputError(
                f"there is a public split of {', '.join(PLANETOID)} alone; got graph={graph}. "
                "Use split_of=random."
            )
        self.datasets = ((PLANETOID | SHCHUR)[graph],)
        self.n_splits = graphs.N_ORDERS if split_of == "random" else 1  # type: ignore[misc]
        self.n_classes = self.d_out = N_CLASSES[graph]
        self.graph, self.split_of, self.features, self.protocol = graph, split_of, features, protocol
        self.n_per_class, self.n_development = n_per_class, n_development

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(self.datasets[0])
        if self.protocol == "official":
            arrays = {**arrays, "y": np.maximum(arrays["y"], 0)}
        if self.split_of == "random":
            arrays = graphs.subgraph(arrays, graphs.largest_component(arrays["edge_index"], len(arrays["y"])))
            parts = graphs.class_split(
                arrays["y"],
                graphs.node_order(len(arrays["y"]), split),
                n_per_class=self.n_per_class,
                n_development=self.n_development,
            )
        else:
            parts = graphs.fixed_split(arrays, split)
        x = graphs.dense_features(arrays)
        if self.features == "row_sum":
            x = graphs.row_sums_of_one(x)
        edges = graphs.undirected(graphs.without_loops(arrays["edge_index"]))
        self.place(x, edges, arrays["y"], parts, store)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        return super().score(self.reading(output) if output.ndim == 3 else output, batch)

    def reading(self, outputs: Tensor) -> Tensor:
        """The one of S outputs (S, N, C) that is right on most validation nodes; the first of equals."""
        nodes = self._nodes["valid"]
        right = (outputs[:, nodes].argmax(-1) == self._y[nodes]).sum(1).tolist()
        return outputs[right.index(max(right))]
