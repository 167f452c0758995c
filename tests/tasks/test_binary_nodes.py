"""Minesweeper and Tolokers: the area under the ROC curve against pairs counted one by one, and the parts."""

import math
from typing import Any

import pytest
import torch

from physml.base.errors import InputError
from physml.data.store import Store
from tasks.binary_nodes import GRAPHS, BinaryNodes, ordered_pairs


def loaded(store: Store, graph: str = "minesweeper", split: int = 0) -> BinaryNodes:
    task = BinaryNodes(graph=graph, protocol="clean")
    task.load(store, split)
    return task


def counted(score: list[float], positive: list[bool]) -> tuple[float, int]:
    pairs = [(a, b) for a, p in zip(score, positive, strict=True) if p
             for b, q in zip(score, positive, strict=True) if not q]  # fmt: skip
    return sum((a > b) + (a == b) / 2 for a, b in pairs), len(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_in_order_are_those_counted_one_by_one(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    score = torch.randint(0, 6, (40,), generator=rng).double()  # many ties
    positive = torch.rand(40, generator=rng) < 0.3
    assert ordered_pairs(score, positive) == counted(score.tolist(), positive.tolist())


def test_a_part_of_one_class_has_no_pairs() -> None:
    assert ordered_pairs(torch.zeros(3), torch.ones(3).bool()) == (0.0, 0)


def test_a_score_that_is_no_number_shows() -> None:
    ordered, pairs = ordered_pairs(torch.tensor([0.0, 1.0, torch.nan]), torch.tensor([True, False, False]))
    assert math.isnan(ordered) and pairs == 2


@pytest.mark.parametrize("graph", GRAPHS)
def test_metrics_of_a_part(store: Store, graph: str) -> None:
    task = loaded(store, graph)
    (batch,) = task.batches("test", 1)
    logits = torch.randn(len(batch.target), 2, generator=torch.Generator().manual_seed(1))
    found = task.finish(task.score(logits, batch))
    label = batch.target[batch.index]
    difference = (logits[:, 1].double() - logits[:, 0].double())[batch.index]
    ordered, pairs = counted(difference.tolist(), (label == 1).tolist())
    assert found["roc_auc"] == pytest.approx(ordered / pairs)
    assert found["accuracy"] == pytest.approx(((difference > 0).long() == label).double().mean().item())
    shifted = task.finish(task.score(3 * logits + 1, batch))
    assert shifted["roc_auc"] == pytest.approx(found["roc_auc"])
    assert task.references()["majority class"]["roc_auc"] == 0.5


def test_splits_and_edges(store: Store) -> None:
    parts = []
    for split in (0, 9):
        task = loaded(store, split=split)
        nodes = [set(next(task.batches(part, 1)).index.tolist()) for part in ("train", "valid", "test")]
        assert sum(map(len, nodes)) == len(set.union(*nodes))
        parts.append(nodes)
    assert parts[0] != parts[1]
    edges = next(task.batches("train", 1)).edge_index
    assert {*map(tuple, edges.T.tolist())} == {*map(tuple, edges.flip(0).T.tolist())}


@pytest.mark.parametrize("wrong", [{"graph": "questions"}, {"protocol": "official"}])
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        BinaryNodes(**({"graph": "tolokers", "protocol": "clean"} | wrong))
