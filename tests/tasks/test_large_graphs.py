"""Snap-patents, arXiv-year, genius: splits, edges, the area under ROC, and what is trivial."""

from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.data import graphs
from physml.data.readers.large_graphs import ARXIV_YEAR, GENIUS_GRAPH, SNAP_PATENTS
from physml.data.store import Store
from physml.task.nodes import NodeClasses
from physml.task.trivial import score_reference
from tasks.large_graphs import Genius, LargeGraph, pairs_in_order

SETS = {"snap_patents": SNAP_PATENTS, "arxiv_year": ARXIV_YEAR, "genius": GENIUS_GRAPH}


def loaded(store: Store, graph: str, split: int = 0, **changes: Any) -> LargeGraph | Genius:
    task: LargeGraph | Genius
    if graph == "genius":
        task = Genius(**({"edges": "undirected", "protocol": "official"} | changes))
    else:
        task = LargeGraph(**({"graph": graph, "edges": "stored", "protocol": "official"} | changes))
    task.load(store, split)
    return task


@pytest.mark.parametrize("graph", SETS)
def test_splits_are_those_of_the_data(store: Store, graph: str) -> None:
    arrays = store.read(SETS[graph])
    tested = []
    for k in range(5):
        task = loaded(store, graph, k)
        nodes = [next(task.batches(part, 1)).index for part in ("train", "valid", "test")]
        for part, found in zip(("train", "valid", "test"), nodes, strict=True):
            assert found is not None and found.tolist() == graphs.fixed_split(arrays, k)[part].tolist()
        assert len(set(torch.cat([n for n in nodes if n is not None]).tolist())) == sum(task.sizes.values())
        tested.append(tuple(nodes[2].tolist() if nodes[2] is not None else ()))
    assert len(set(tested)) == 5
    with pytest.raises(InputError, match="there are 5 splits, 0 to 4; got 5"):
        loaded(store, graph, 5)


@pytest.mark.parametrize("graph", SETS)
def test_edges_go_as_they_are_stored_or_both_ways(store: Store, graph: str) -> None:
    stored = store.read(SETS[graph])["edge_index"]
    for edges, wanted in (("stored", stored), ("undirected", graphs.undirected(stored))):
        there = next(loaded(store, graph, edges=edges).batches("train", 1)).edge_index
        assert there is not None and there.tolist() == wanted.tolist()


def test_pairs_in_order_against_every_pair() -> None:
    rng = torch.Generator().manual_seed(0)
    for n, levels in ((1, 3), (2, 2), (13, 4), (40, 1000)):
        score = torch.randint(0, levels, (n,), generator=rng).double()
        label = torch.randint(0, 2, (n,), generator=rng)
        one, other = score[label == 1].tolist(), score[label == 0].tolist()
        right = sum((a > b) + (a == b) / 2 for a, b in product(one, other))
        assert pairs_in_order(score, label) == (pytest.approx(right), len(one) * len(other))


def test_the_area_is_that_of_scikit_learn(store: Store) -> None:
    from sklearn.metrics import roc_auc_score

    task = loaded(store, "genius")
    batch = next(task.batches("test", 1))
    assert batch.index is not None
    logits = torch.randn(len(batch.target), 2, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    found = score_reference(task, lambda b: logits)
    score = torch.softmax(logits[batch.index].double(), 1)[:, 1].numpy().round(12)
    assert found["roc_auc"] == pytest.approx(roc_auc_score(batch.target[batch.index].numpy(), score))
    nan = score_reference(task, lambda b: logits * float("nan"))["roc_auc"]
    assert nan != nan


def test_a_constant_has_an_area_of_a_half(store: Store) -> None:
    assert loaded(store, "genius").references()["majority class"]["roc_auc"] == 0.5


@pytest.mark.parametrize("graph", SETS)
def test_the_linear_reference_is_that_of_small_graphs(store: Store, graph: str) -> None:
    """D x D equations give what N x N ones give."""
    task = loaded(store, graph)
    known = F.one_hot(next(task.batches("train", 1)).target, task.d_out)
    torch.testing.assert_close(task.ridge(known), NodeClasses.ridge(task, known), rtol=1e-8, atol=1e-8)
    found = task.references()
    scored = set(task.better) - {"noisy_cross_entropy"}
    assert set(found) == {"majority class", "linear (features)"}
    assert all(set(metrics) == scored for metrics in found.values())


@pytest.mark.parametrize(
    ("cls", "given", "says"),
    [
        (LargeGraph, {"graph": "genius"}, "graph must be one of 'snap_patents', 'arxiv_year'"),
        (LargeGraph, {"graph": "arxiv_year", "edges": "directed"}, "edges must be one of"),
        (LargeGraph, {"graph": "arxiv_year", "protocol": "paper"}, "protocol must be one of 'official'"),
        (Genius, {"edges": "both"}, "edges must be one of"),
        (Genius, {"protocol": "clean"}, "protocol must be one of"),
    ],
)
def test_wrong_arguments_are_refused(cls: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        cls(**({"edges": "stored", "protocol": "official"} | given))
