"""Distances in random graphs: targets against a breadth-first search, the families, what is trivial."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data

from physml.data.store import Store
from physml.task.trivial import score_reference
from tasks.graph_properties import FAMILIES, FINGERPRINTS, TARGETS, GraphProperties, connected, moved

USUAL: dict[str, Any] = {
    **{"target": "distance", "n_train": 9, "n_valid": 4, "n_test": 3, "nodes": [25, 35]},
    **{"data_seed": 1234, "protocol": "clean"},
}


def task_of(store: Store, **changes: Any) -> GraphProperties:
    return with_data(GraphProperties(**USUAL | changes), store)


def test_targets_are_those_of_a_breadth_first_search(store: Store) -> None:
    tasks = {target: task_of(store, target=target) for target in TARGETS}
    for part, n in tasks["distance"].sizes.items():
        batch: Any = {target: whole(task, part) for target, task in tasks.items()}
        x, of, edges = batch["distance"].input, batch["distance"].batch, batch["distance"].edge_index
        assert int(of.max()) == n - 1
        for g in range(n):
            here = (of == g).nonzero()[:, 0].tolist()
            rows = edges[:, of[edges[0]] == g].T.tolist()
            graph = nx.Graph(rows)
            assert 25 <= len(here) <= 35 and sorted(graph) == here and not nx.number_of_selfloops(graph)
            assert sorted(map(tuple, rows)) == sorted(nx.DiGraph(graph).edges), "both ways, once"
            assert x[here, 1].sum() == 1 and x[here, 0].min() >= 0 and x[here, 0].max() < 1
            far = nx.single_source_shortest_path_length(graph, here[int(x[here, 1].argmax())])
            assert batch["distance"].target[here].tolist() == [far[v] for v in here]
            eccentricity = nx.eccentricity(graph)
            assert batch["eccentricity"].target[here].tolist() == [eccentricity[v] for v in here]
            assert batch["diameter"].target[g] == max(eccentricity.values())


def test_graphs_are_the_same_again_and_do_not_depend_on_how_many_there_are(store: Store) -> None:
    task, more = task_of(store), task_of(store, n_train=12)
    assert task.facts()["fingerprint"] == more.facts()["fingerprint"] == "matches"
    assert torch.equal(next(task.batches("train", 9)).input, next(more.batches("train", 9)).input)
    assert task_of(store, data_seed=7).facts()["fingerprint"] == "none for these arguments"
    changed = {name: array.copy() for name, array in task.make().items()}
    changed["distance"][0] += 1
    assert task.fingerprint(changed).startswith("differs")
    # seeds of the tables
    assert {seed for _, _, seed in FINGERPRINTS} == {1, 2, 3, 4, 5, 6, 1234}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [4, 5, 12, 35])
def test_families_have_their_edges(family: str, n: int) -> None:
    A = FAMILIES[family][1](n, np.random.RandomState(n))
    assert A.shape == (n, n) and (A == A.T).all() and not A.diagonal().any()
    n_edges, degree = A.sum() // 2, sorted(A.sum(0))
    graph = nx.from_numpy_array(A)
    assert nx.is_connected(graph) or family == "erdos_renyi"
    if family in ("tree", "line", "star", "caterpillar", "lobster"):
        assert n_edges == n - 1
    if family == "line":
        assert degree == [1, 1, *[2] * (n - 2)]
    if family == "star":
        assert degree == [*[1] * (n - 1), n - 1]
    if family == "ladder" and n % 2 == 0:
        assert n_edges == 3 * n // 2 - 2 and max(degree) <= 3
    if family == "barabasi_albert":
        m = A[-1].sum()  # what the last node joins
        assert n_edges == m * (n - m)
    if family == "grid" and n == 12:
        assert n_edges == 3 * 3 + 2 * 4 and nx.diameter(graph) == 2 + 3
    if family == "caveman" and n == 12:
        assert n_edges == 3 * 6 + 2


def test_a_caterpillar_has_leaves_on_a_line_a_lobster_on_a_caterpillar_and_a_tenth_moves() -> None:
    def without_leaves(A: np.ndarray) -> np.ndarray:
        inner = A.sum(0) > 1
        return A[np.ix_(inner, inner)]

    for seed in range(20):
        rng = np.random.RandomState(seed)
        for family, times in (("caterpillar", 1), ("lobster", 2)):
            A = FAMILIES[family][1](20, rng)
            for _ in range(times):
                A = without_leaves(A)
            assert len(A) == 0 or A.sum(0).max() <= 2
    rng = np.random.RandomState(0)
    line = FAMILIES["line"][1](30, rng)
    graphs = [moved(line, rng) for _ in range(400)]
    left, new = (np.mean([(keep & A).sum() / 2 for A in graphs]) for keep in (line, ~line))
    assert left == pytest.approx(0.9 * 29, abs=0.3) and new == pytest.approx(0.1 * 29, abs=0.3)
    full = ~np.eye(30, dtype=bool)
    assert (moved(full, rng) == full).all()


def test_each_family_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def recorded(family: str) -> Any:
        share, make = FAMILIES[family]
        return share, lambda n, rng: drawn.append(family) or make(n, rng)

    for family in FAMILIES:
        monkeypatch.setitem(FAMILIES, family, recorded(family))
    monkeypatch.setattr("tasks.graph_properties.moved", lambda A, rng: ~np.eye(len(A), dtype=bool))
    rng = np.random.RandomState(0)
    for _ in range(1000):
        connected(rng, (4, 6))
    for family, (share, _) in FAMILIES.items():
        assert drawn.count(family) / 1000 == pytest.approx(share, abs=0.04)
    assert sum(share for share, _ in FAMILIES.values()) == pytest.approx(1)


@pytest.mark.parametrize("target", TARGETS)
def test_graphs_count_alike_whatever_their_size_and_the_batch(store: Store, target: str) -> None:
    task = task_of(store, target=target)
    (batch,) = task.batches("test", 3)
    off = torch.randn(len(batch.target), generator=torch.Generator().manual_seed(0))
    squares = [off[batch.batch == g].square().mean() for g in range(3)] if target != "diameter" else off**2
    mse = float(sum(squares) / 3)
    output = (batch.target + off)[:, None]
    assert task.loss(output, batch).item() == pytest.approx(mse, rel=1e-5)
    if target == "diameter":
        metrics = score_reference(task, lambda b: (b.target + off[b.index])[:, None], size=1)
        assert metrics["log10_mse"] == pytest.approx(np.log10(mse), rel=1e-5)
    assert task.finish(task.score(output, batch))["mse"] == pytest.approx(mse, rel=1e-5)


def test_the_trivial_references(store: Store) -> None:
    task = task_of(store, target="diameter", n_train=60, n_test=30)
    y = {part: next(task.batches(part, 100)).target for part in task.sizes}
    references = task.references()
    constant = (y["test"] - y["train"].mean()).square().mean().item()
    assert references["mean of train"]["mse"] == pytest.approx(constant, rel=1e-5)
    assert references["linear (counts)"]["mse"] < constant
