"""MNIST superpixels: parts, inputs, scores and what is trivial."""

from typing import Any

import numpy as np
import pytest
import torch

from physml.config.build import build_net, parts_of
from physml.config.compose import compose
from physml.data import splits
from physml.data.readers.superpixels import SUPERPIXELS
from physml.data.store import Store
from physml.run.record import count_parameters
from physml.task.base import Part
from physml.task.trivial import score_reference
from tasks.superpixels import Superpixels


@pytest.fixture(scope="module")
def task(store: Store) -> Superpixels:
    task = Superpixels(protocol="official")
    task.load(store, 0)
    return task


def everything(task: Superpixels, part: Part) -> Any:
    (batch,) = task.batches(part, 10_000)
    return batch


def test_5000_of_60_000_validate() -> None:
    held = splits.load_index("superpixels-valid-5000")
    assert len(set(held.tolist())) == 5000 and held.min() >= 0 and held.max() < 60_000


def test_the_parts_are_disjoint_and_test_is_that_of_the_files(task: Superpixels, store: Store) -> None:
    assert task.sizes == {"train": 27, "valid": 3, "test": 20}
    arrays = store.read(SUPERPIXELS)
    graphs = {part: everything(task, part) for part in ("train", "valid", "test")}
    np.testing.assert_array_equal(graphs["test"].target.numpy(), arrays["y"][30:])
    np.testing.assert_array_equal(graphs["test"].input[:, :1].numpy(), arrays["x"][30 * 75 :])
    seen = {row.numpy().tobytes() for batch in graphs.values() for row in batch.input.reshape(-1, 75, 3)}
    assert len(seen) == 50


def test_the_input_is_grey_and_place_as_stored(task: Superpixels) -> None:
    batch = everything(task, "train")
    assert task.d_in == 3 and batch.input.shape == (27 * 75, 3) and batch.input.dtype == torch.float32
    assert set(batch.input[:, 0].unique().tolist()) == {0.0, 1.0}
    assert batch.input[:, 1:].max() > 20, "in pixels, not scaled"
    assert batch.batch.bincount().tolist() == [75] * 27
    assert (batch.batch[batch.edge_index[0]] == batch.batch[batch.edge_index[1]]).all()


def test_scores_are_those_of_the_whole_part(task: Superpixels) -> None:
    batch = everything(task, "test")
    logits = torch.sin(batch.index[:, None] + torch.arange(10.0))
    metrics = score_reference(task, lambda batch: logits[batch.index], size=7)
    assert metrics["accuracy"] == (logits.argmax(1) == batch.target).double().mean().item()
    assert metrics["cross_entropy"] == pytest.approx(task.loss(logits, batch).item(), rel=1e-5)


def test_the_trivial_references(task: Superpixels) -> None:
    accuracies = {name: metrics["accuracy"] for name, metrics in task.references().items()}
    # the fixture's digit is the column that is bright
    assert accuracies["linear (grey in 4 x 4 fields)"] > accuracies["majority class"]


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("graphcon_gcn", 135_178),  # these four as the official code counts them
        ("graphcon_gcn-official", 135_178),
        ("graphcon_gat", 531_978),
        ("graphcon_gat-official", 531_978),
        ("gcn_shared-32", 69_386),
    ],
)
def test_experiments_have_the_parameters_of_the_code(task: Superpixels, name: str, n: int) -> None:
    config = compose([f"experiment=graphcon/superpixels-{name}"]).config
    assert count_parameters(build_net(parts_of(config), task)) == n
