"""Distances in random graphs: targets against a breadth-first search, the families, what is trivial."""

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch

from physml.base.errors import InputError
from physml.data.store import Store
from physml.task.trivial import score_reference
from tasks.graph_properties import (
    FAMILIES,
    FINGERPRINTS,
    TARGETS,
    GraphProperties,
    connected,
    moved,
)

USUAL = {"target": "distance", "n_train": 9, "n_valid": 4, "n_test": 3, "nodes": [25, 35], "data_seed": 1234}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(None, tmp_path_factory.mktemp("cache"))


def task_of(store: Store, **changes: Any) -> GraphProperties:
    task = GraphProperties(**(USUAL | {"protocol": "clean"} | changes))
    task.load(store, 0)
    return task


def searched(neighbours: list[list[int]], start: int) -> list[int]:
    """Steps from a node to each other one, breadth first; -1 where no path leads."""
    steps = [-1] * len(neighbours)
    steps[start] = 0
    queue = deque([start])
    while queue:
        v = queue.popleft()
        for u in neighbours[v]:
            if steps[u] < 0:
                steps[u] = steps[v] + 1
                queue.append(u)
    return steps


def test_targets_are_those_of_a_breadth_first_search(store: Store) -> None:
    tasks = {target: task_of(store, target=target) for target in TARGETS}
    for part, n in tasks["distance"].sizes.items():
        batch = {target: next(task.batches(part, n)) for target, task in tasks.items()}
        graph = batch["distance"].batch
        assert graph is not None and int(graph.max()) == n - 1
        start = 0
        for g in range(n):
            size = int((graph == g).sum())
            assert 25 <= size <= 35
            own = (batch["distance"].edge_index - start)[:, graph[batch["distance"].edge_index[0]] == g]
            neighbours: list[list[int]] = [[] for _ in range(size)]
            for u, v in own.T.tolist():
                neighbours[u].append(v)
            assert all(v not in near and len({*near}) == len(near) for v, near in enumerate(neighbours))
            assert all(v in neighbours[u] for v, near in enumerate(neighbours) for u in near)
            far = [searched(neighbours, v) for v in range(size)]
            here = slice(start, start + size)
            x = batch["distance"].input[here]
            assert x[:, 1].sum() == 1 and x[:, 0].min() >= 0 and x[:, 0].max() < 1
            assert batch["distance"].target[here].tolist() == far[int(x[:, 1].argmax())]
            assert batch["eccentricity"].target[here].tolist() == [max(of) for of in far]
            assert batch["diameter"].target[g] == max(max(of) for of in far)
            start += size


def test_graphs_are_the_same_again_and_do_not_depend_on_how_many_there_are(store: Store) -> None:
    task, more = task_of(store), task_of(store, n_train=12)
    assert task.facts()["fingerprint"] == more.facts()["fingerprint"] == "matches"
    assert torch.equal(next(task.batches("train", 9)).input, next(more.batches("train", 9)).input)
    other = task_of(store, data_seed=7)
    assert other.facts()["fingerprint"] == "none for these arguments"
    changed = {name: array.copy() for name, array in task.make().items()}
    changed["distance"][0] += 1
    assert task.fingerprint(changed).startswith("differs")


def test_a_seed_of_the_tables_has_a_fingerprint() -> None:
    assert {seed for _, _, seed in FINGERPRINTS} == {1, 2, 3, 4, 5, 6, 1234}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [4, 5, 12, 35])
def test_families(family: str, n: int) -> None:
    rng = np.random.RandomState(n)
    A = FAMILIES[family][1](n, rng)
    assert A.shape == (n, n) and (A == A.T).all() and not A.diagonal().any()
    n_edges, degree = A.sum() // 2, sorted(A.sum(0))
    far = searched([np.flatnonzero(row).tolist() for row in A], 0)
    if family != "erdos_renyi":
        assert min(far) == 0 and len(far) == n
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
        assert n_edges == 3 * 3 + 2 * 4 and max(far) == 2 + 3
    if family == "caveman" and n == 12:
        assert n_edges == 3 * 6 + 2


def test_a_caterpillar_is_a_line_without_its_leaves_and_a_lobster_a_caterpillar() -> None:
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


def test_a_tenth_of_the_edges_moves() -> None:
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


def test_references(store: Store) -> None:
    task = task_of(store, target="diameter", n_train=60, n_test=30)
    y = {part: next(task.batches(part, 100)).target for part in task.sizes}
    references = task.references()
    constant = (y["test"] - y["train"].mean()).square().mean().item()
    assert references["mean of train"]["mse"] == pytest.approx(constant, rel=1e-5)
    assert references["linear (counts)"]["mse"] < constant


@pytest.mark.parametrize("nodes", [[3, 8], [9, 8]])
def test_numbers_of_nodes_that_no_graph_has(nodes: list[int]) -> None:
    with pytest.raises(InputError, match="nodes"):
        GraphProperties(**(USUAL | {"protocol": "clean", "nodes": nodes}))
