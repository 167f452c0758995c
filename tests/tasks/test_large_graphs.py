"""Snap-patents, arXiv-year, genius: splits, edges, the area under ROC, and what is trivial."""

import math
from typing import Any

import pytest
import torch
from loaded_tasks import with_data

from physml.data import graphs
from physml.data.readers.large_graphs import ARXIV_YEAR, GENIUS_GRAPH, SNAP_PATENTS
from physml.data.store import Store
from physml.task.trivial import score_reference
from tasks.large_graphs import Genius, LargeGraph

SETS = {"snap_patents": SNAP_PATENTS, "arxiv_year": ARXIV_YEAR, "genius": GENIUS_GRAPH}


def loaded(store: Store, graph: str, split: int = 0, **changes: Any) -> LargeGraph | Genius:
    if graph == "genius":
        return with_data(Genius(**({"edges": "undirected", "protocol": "official"} | changes)), store, split)
    arguments = {"graph": graph, "edges": "stored", "protocol": "official"}
    return with_data(LargeGraph(**arguments | changes), store, split)


@pytest.mark.parametrize("graph", SETS)
def test_splits_and_edges_are_those_of_the_data(store: Store, graph: str) -> None:
    arrays = store.read(SETS[graph])
    for k in range(5):
        task = loaded(store, graph, k)
        for part, nodes in graphs.fixed_split(arrays, k).items():
            assert next(task.batches(part, 1)).index.tolist() == nodes.tolist()
    stored = arrays["edge_index"]
    for edges, expected in (("stored", stored), ("undirected", graphs.undirected(stored))):
        edge_index = next(loaded(store, graph, edges=edges).batches("train", 1)).edge_index
        assert edge_index is not None and edge_index.tolist() == expected.tolist()


def test_the_area_is_that_of_scikit_learn(store: Store) -> None:
    from sklearn.metrics import roc_auc_score

    task = loaded(store, "genius")
    batch = next(task.batches("test", 1))
    assert batch.index is not None
    logits = torch.randn(len(batch.target), 2, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    metrics = score_reference(task, lambda b: logits)
    score = torch.softmax(logits[batch.index].double(), 1)[:, 1].numpy().round(12)
    assert metrics["roc_auc"] == pytest.approx(roc_auc_score(batch.target[batch.index].numpy(), score))
    assert math.isnan(score_reference(task, lambda b: logits * math.nan)["roc_auc"])
    assert task.references()["majority class"]["roc_auc"] == 0.5, "a constant"
    assert task.finish({}) == {}, "a part without items"
