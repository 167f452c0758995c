"""Minesweeper and Tolokers: the area under the ROC curve against pairs counted one by one, and the parts."""

import math
from typing import Any

import pytest
import torch
from loaded_tasks import with_data
from torch import nn

from physml.data.store import Store
from physml.task.nodes import ordered_pairs
from physml.training.evaluate import evaluate
from tasks.binary_nodes import GRAPHS, BinaryNodes


def counted(score: list[float], positive: list[bool]) -> tuple[float, int]:
    pairs = [(a, b) for a, p in zip(score, positive, strict=True) if p
             for b, q in zip(score, positive, strict=True) if not q]  # fmt: skip
    return sum((a > b) + (a == b) / 2 for a, b in pairs), len(pairs)


def test_pairs_in_order_are_those_counted_one_by_one() -> None:
    rng = torch.Generator().manual_seed(0)
    for n, levels in ((1, 3), (2, 2), (13, 4), (40, 6), (40, 1000)):  # with many ties, and with few
        score = torch.randint(0, levels, (n,), generator=rng).double()
        positive = torch.rand(n, generator=rng) < 0.3
        assert ordered_pairs(score, positive) == pytest.approx(counted(score.tolist(), positive.tolist()))
    assert ordered_pairs(torch.zeros(3), torch.ones(3).bool()) == (0.0, 0), "one class has no pairs"
    ordered, pairs = ordered_pairs(torch.tensor([0.0, 1.0, torch.nan]), torch.tensor([True, False, False]))
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
    sums = task.score(logits, batch) | {"ordered_sum": 0.0, "pair_n": 0}
    assert math.isnan(task.finish(sums)["roc_auc"]), "of nodes of one class"
    edges = batch.edge_index
    assert {*map(tuple, edges.T.tolist())} == {*map(tuple, edges.flip(0).T.tolist())}


class Silent(nn.Module):
    """Answers no number for one node."""

    def forward(self, x: torch.Tensor, *_edges: Any, **_options: Any) -> torch.Tensor:
        return torch.zeros(len(x), 2).index_fill(0, torch.tensor([3]), math.nan)


def test_a_network_that_answers_no_number_has_no_score(store: Store) -> None:
    """The largest of no numbers is the first class, which most nodes are of."""
    task = with_data(BinaryNodes(graph="tolokers", protocol="clean"), store)
    metrics = evaluate(Silent(), task, task.batches("valid", 1), "cpu")
    assert [*metrics] == ["roc_auc", "accuracy", "cross_entropy"] and all(map(math.isnan, metrics.values()))
    assert task.finish({}) == {}
