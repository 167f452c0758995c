"""Citation graphs: counts, splits, features, nodes without label, and the trivial references."""

from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from refusals import refuses

from physml.base.errors import DataError, InputError
from physml.data import graphs
from physml.data.readers import planetoid
from physml.data.store import Store
from tasks.citation import PLANETOID, Citation

SMALL: dict[str, Any] = {
    **{"graph": "cora", "split_of": "random", "features": "raw", "protocol": "official"},
    **{"n_per_class": 4, "n_development": 80},
}
FULL = {**SMALL, "n_per_class": 20, "n_development": 1500}
PARTS = ("train", "valid", "test")
NEEDED = "planetoid"


def loaded(store: Store, split: int = 0, base: dict[str, Any] = SMALL, **change: Any) -> Citation:
    return with_data(Citation(**{**base, **change}), store, split)


def check_parts(task: Citation, n_per_class: int) -> None:
    count = torch.bincount(whole(task).target[whole(task, "train").index], minlength=task.n_classes)
    assert count.tolist() == [n_per_class] * task.n_classes


@pytest.mark.parametrize("graph", PLANETOID)
def test_each_class_trains_alike(graph: str, store: Store) -> None:
    for split in (0, 4):
        task = loaded(store, split, graph=graph)
        check_parts(task, 4)
        assert task.sizes["train"] + task.sizes["valid"] == 80
    refuses(InputError, "must train", loaded, store, n_per_class=80, graph=graph)


def test_the_public_split_comes_with_the_data_edges_go_both_ways_and_features_tell_the_class(store) -> None:
    task, arrays = loaded(store, split_of="public"), store.read(planetoid.CORA)
    for part in PARTS:
        assert whole(task, part).index.tolist() == np.flatnonzero(arrays[f"split_{part}"][0]).tolist()
    check_parts(task, planetoid.FIXTURE_PER_CLASS)
    assert task.n_splits == 1
    for split_of in ("random", "public"):
        edges = whole(loaded(store, split_of=split_of)).edge_index
        pairs = set(zip(*edges.tolist(), strict=True))
        assert len(pairs) == edges.shape[1]
        assert all((b, a) in pairs and a != b for a, b in pairs)
    raw, shares = whole(loaded(store)).input, whole(loaded(store, features="row_sum")).input
    torch.testing.assert_close(shares * raw.sum(1, keepdim=True), raw)
    references = loaded(store).references()
    assert references["linear (features)"]["accuracy"] > references["majority class"]["accuracy"]


@pytest.mark.parametrize(
    ("graph", "largest", "public", "n_classes", "n_words"),
    [("cora", (2485, 10_138), (2708, 10_556), 7, 1433), ("citeseer", (2120, 7358), (3327, 9104), 6, 3703)],
)
def test_graphs_have_the_published_counts(graph, largest, public, n_classes, n_words, real: Store) -> None:
    """Nodes and edges of the largest component, which is split at random, and of all for the public split."""
    train = 20 * n_classes
    drawn = [(loaded(real, k, FULL, graph=graph), largest, 1500 - train, largest[0] - 1500) for k in range(5)]
    published = (loaded(real, 0, FULL, graph=graph, split_of="public"), public, 500, 1000)
    for task, counts, n_valid, n_test in (*drawn, published):
        facts = task.facts()
        assert (facts["n_nodes"], facts["n_edges"], task.d_in, task.d_out) == (*counts, n_words, n_classes)
        assert task.sizes == {"train": train, "valid": n_valid, "test": n_test}
        check_parts(task, 20)


def test_papers_without_label_are_of_class_0_or_of_no_part(real: Store) -> None:
    arrays = real.read(planetoid.CITESEER)
    kept = graphs.largest_component(arrays["edge_index"], len(arrays["y"]))
    unknown = set(np.flatnonzero(arrays["y"][kept] < 0).tolist())
    assert len(unknown) == 10
    official = loaded(real, 0, FULL, graph="citeseer")
    assert unknown <= {node for part in PARTS for node in whole(official, part).index.tolist()}
    assert (whole(official).target[sorted(unknown)] == 0).all()
    clean = loaded(real, 0, FULL, graph="citeseer", protocol="clean")
    assert unknown.isdisjoint(node for part in PARTS for node in whole(clean, part).index.tolist())
    assert sum(clean.sizes.values()) == 2110


def test_pubmed_needs_a_file_more_and_says_which(real) -> None:
    if (real.data / "planetoid" / "ind.pubmed.allx").is_file():
        task = loaded(real, 0, FULL, graph="pubmed")
        assert (task.facts()["n_nodes"], task.d_in, task.d_out) == (19_717, 500, 3)
        assert task.sizes == {"train": 60, "valid": 1440, "test": 18_217}
    else:
        refuses(DataError, r"ind\.pubmed\.allx", loaded, real, 0, FULL, graph="pubmed")


def test_the_reading_that_is_best_on_validation_nodes_is_scored_in_every_part(store: Store) -> None:
    task = loaded(store)
    label = whole(task).target
    right = torch.nn.functional.one_hot(label.clamp(min=0), task.n_classes).float()
    wrong = right.roll(1, 1)
    valid = right.where(torch.isin(torch.arange(len(label)), whole(task, "valid").index)[:, None], wrong)
    late = torch.stack([wrong, valid, 2 * valid])  # right where it validates, and nowhere else

    def accuracy(output: torch.Tensor, part: Any) -> float:
        return task.finish(task.score(output, whole(task, part)))["accuracy"]

    assert accuracy(late, "valid") == 1 and accuracy(late, "test") == 0
    assert accuracy(torch.stack([right, valid]), "test") == 1  # of equals the first
    assert accuracy(torch.stack([valid, right]), "test") == 0
