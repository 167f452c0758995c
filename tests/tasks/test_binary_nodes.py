"""Minesweeper and Tolokers: the area under the ROC curve against pairs counted one by one, and the parts."""

import math
from typing import Any

import pytest
import torch
from loaded_tasks import with_data

from physml.data.store import Store
from tasks.binary_nodes import GRAPHS, BinaryNodes, ordered_pairs
from tasks.large_graphs import pairs_in_order


def counted(score: list[float], positive: list[bool]) -> tuple[float, int]:
    pairs = [(a, b) for a, p in zip(score, positive, strict=True) if p
             for b, q in zip(score, positive, strict=True) if not q]  # fmt: skip
    return sum((a > b) + (a == b) / 2 for a, b in pairs), len(pairs)


COUNTERS = {  # of the pairs in which a positive has the greater score, and of all pairs
    "binary_nodes": ordered_pairs,
    "large_graphs": lambda score, positive: pairs_in_order(score, positive.long()),
}


@pytest.mark.parametrize("count", COUNTERS.values(), ids=COUNTERS)
def test_pairs_in_order_are_those_counted_one_by_one(count: Any) -> None:
    rng = torch.Generator().manual_seed(0)
    for n, levels in ((1, 3), (2, 2), (13, 4), (40, 6), (40, 1000)):  # with many ties, and with few
        score = torch.randint(0, levels, (n,), generator=rng).double()
        positive = torch.rand(n, generator=rng) < 0.3
        assert count(score, positive) == pytest.approx(counted(score.tolist(), positive.tolist()))
    assert count(torch.zeros(3), torch.ones(3).bool()) == (0.0, 0), "one class has no pairs"
    ordered, pairs = count(torch.tensor([0.0, 1.0, torch.nan]), torch.tensor([True, False, False]))
    assert math.isnan(ordered) and pairs == 2, "a score that is no number shows"


@pytest.mark.parametrize("graph", GRAPHS)
def test_metrics_of_a_part(store: Store, graph: str) -> None:
    task = with_data(BinaryNodes(graph=graph, protocol="clean"), store)
    (batch,) = task.batches("test", 1)
    logits = torch.randn(len(batch.target), 2, generator=torch.Generator().manual_seed(1))
    metrics = task.finish(task.score(logits, batch))
    label = batch.target[batch.index]
    difference = (logits[:, 1].double() - logits[:, 0].double())[batch.index]
    ordered, pairs = counted(difference.tolist(), (label == 1).tolist())
    assert metrics["roc_auc"] == pytest.approx(ordered / pairs)
    assert metrics["accuracy"] == pytest.approx(((difference > 0).long() == label).double().mean().item())
    assert task.finish(task.score(3 * logits + 1, batch))["roc_auc"] == pytest.approx(metrics["roc_auc"])
    assert task.references()["majority class"]["roc_auc"] == 0.5
    edges = batch.edge_index
    assert {*map(tuple, edges.T.tolist())} == {*map(tuple, edges.flip(0).T.tolist())}
