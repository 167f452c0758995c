"""Traffic of pages of Wikipedia from their nouns and links. Axes: N pages, E edge rows, D nouns."""

from typing import ClassVar

import numpy as np

from physml.base.check import one_of
from physml.base.errors import DataError
from physml.data import graphs
from physml.data.readers import musae, webkb
from physml.data.store import Store
from physml.task.nodes import NodeValues

SETS = {
    "chameleon": (musae.CHAMELEON, webkb.CHAMELEON),
    "squirrel": (musae.SQUIRREL, webkb.SQUIRREL),
}


class Wikipedia(NodeValues):
    r"""Mean monthly traffic of the pages on chameleons or squirrels, over that of the most visited page.

    Input (N, D): 1 where a page has a noun; edges are mutual links, both ways. Target (N,) in [0, 1], over
    five orders of magnitude. The mean of train scores an nmse of 0.207 on Chameleon and 0.143 on Squirrel
    (test, mean over the 10 splits).

    Protocols:
      official: as the code numbers the nodes: node k of the graph is the k-th one that the list of links
        names, while nouns, traffic and splits go by page number. No page of Chameleon and two of Squirrel
        have their own links; the rest have those of another page.
      clean: every page has its own links. Of the pages that test, 46 % on Chameleon and 41 % on Squirrel
        have one in train with the same links and the same traffic (split 0): a leak that remains.

    Splits: the 10 of geom-gcn, 48/32/20 percent; its graphs have the same pages and links.

    Defined in: target: thesis 8.3, "average monthly web-page traffic", normalised "between 0 and 1"; metric:
    "normalized test MSE", caption of Table 8.1; split: "the ten pre-defined splits in Pei et al.", 8.3.

    Source: Rozemberczki et al., 2021, https://arxiv.org/abs/1909.13021; as a regression: Rusch et al.,
    ICLR 2023, https://arxiv.org/abs/2210.00513.

    Args: graph: "chameleon" or "squirrel".
    """

    n_splits: ClassVar[int] = webkb.N_SPLITS

    def __init__(self, *, graph: str, protocol: str) -> None:
        one_of("protocol", protocol, ("official", "clean"))
        one_of("graph", graph, tuple(SETS))
        self.datasets = SETS[graph]
        self.graph, self.protocol = graph, protocol

    def load(self, store: Store, split: int) -> None:
        pages, split_by = (store.read(dataset) for dataset in self.datasets)
        traffic = pages["y"]
        if len(split_by["y"]) != len(traffic):
            raise DataError(
                f"{self.graph}: {len(traffic)} pages of MUSAE, but the splits of geom-gcn are for "
                f"{len(split_by['y'])}. They don't belong together: get both anew with "
                f"`physml data get {self.datasets[0].name} {self.datasets[1].name}`."
            )
        self.place(
            graphs.dense_features(pages),
            graphs.regression_edges(pages["edge_index"], len(traffic), self.protocol),
            (traffic / traffic.max()).astype(np.float32),
            graphs.fixed_split(split_by, split),
            store,
        )
