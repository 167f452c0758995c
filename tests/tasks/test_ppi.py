"""PPI: whole graphs in each part, functions of nodes, micro-F1, and what is trivial."""

from typing import Any

import pytest
import torch
from loaded_tasks import whole, with_data

from physml.data import graphs
from physml.data.readers.ppi import PPI as SET
from physml.data.store import Store
from physml.task.trivial import score_reference
from tasks.ppi import PPI


@pytest.fixture(scope="module")
def task(store: Store) -> PPI:
    return with_data(PPI(protocol="paper"), store)


def test_each_graph_is_in_one_part_as_stored_and_the_loss_is_a_mean(task: PPI, store: Store) -> None:
    assert task.sizes == {"train": 3, "valid": 1, "test": 1}
    arrays, g = store.read(SET), 0
    for part in ("train", "valid", "test"):
        for batch in task.batches(part, 1):
            raw = graphs.one(arrays, g)
            assert batch.input.tolist() == raw["x"].tolist() and batch.target.tolist() == raw["y"].tolist()
            assert batch.edge_index is not None and batch.edge_index.tolist() == raw["edge_index"].tolist()
            g += 1
    assert g == 5
    batch = next(task.batches("test", 1))
    logits = torch.randn(30, 121, generator=torch.Generator().manual_seed(0))
    p = torch.sigmoid(logits)
    by_hand = -(batch.target * p.log() + (1 - batch.target) * (1 - p).log()).mean()
    assert task.loss(logits, batch).item() == pytest.approx(by_hand.item(), rel=1e-5)
    references = task.references()
    density = next(task.batches("test", 1)).target.mean().item()
    assert references["every function"]["micro_f1"] == pytest.approx(2 * density / (1 + density), rel=1e-5)
    share = references["share of each function"]
    assert share["cross_entropy"] < references["every function"]["cross_entropy"]


def test_micro_f1_counts_all_functions_together(task: PPI) -> None:
    sums = {"right_n": 0.0, "said_n": 0.0, "there_n": 0.0, "cross_entropy_sum": 0.0, "n": 4.0}
    assert task.finish({**sums, "right_n": 1, "said_n": 2, "there_n": 3})["micro_f1"] == pytest.approx(0.4)
    assert task.finish({**sums, "right_n": 3, "said_n": 3, "there_n": 3})["micro_f1"] == 1
    assert task.finish(sums)["micro_f1"] == 0

    def answer(batch: Any) -> torch.Tensor:
        return torch.sin(batch.input[:, :1] + torch.arange(121.0))

    batch = whole(task)
    said, present = answer(batch) > 0, batch.target == 1
    right = (said & present).sum().item()
    precision, recall = right / said.sum().item(), right / present.sum().item()
    f1 = score_reference(task, answer, part="train", size=2)["micro_f1"]
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall), rel=1e-12)
