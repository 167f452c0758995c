"""MNIST superpixels: parts, inputs, scores and what is trivial."""

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data

from physml.data.readers.superpixels import SUPERPIXELS
from physml.data.store import Store
from tasks.superpixels import Superpixels


@pytest.fixture(scope="module")
def task(store: Store) -> Superpixels:
    return with_data(Superpixels(protocol="official"), store)


def test_parts_are_disjoint_and_grey_and_place_as_stored_tell_the_digit(task, store) -> None:
    assert task.sizes == {"train": 27, "valid": 3, "test": 20}
    arrays = store.read(SUPERPIXELS)
    graphs = {part: whole(task, part) for part in ("train", "valid", "test")}
    np.testing.assert_array_equal(graphs["test"].target.numpy(), arrays["y"][30:])
    np.testing.assert_array_equal(graphs["test"].input[:, :1].numpy(), arrays["x"][30 * 75 :])
    seen = {row.numpy().tobytes() for batch in graphs.values() for row in batch.input.reshape(-1, 75, 3)}
    assert len(seen) == 50
    batch = whole(task, "train")
    assert task.d_in == 3 and batch.input.shape == (27 * 75, 3) and batch.input.dtype == torch.float32
    assert set(batch.input[:, 0].unique().tolist()) == {0.0, 1.0}
    assert batch.input[:, 1:].max() > 20, "in pixels, not scaled"
    assert batch.batch.bincount().tolist() == [75] * 27
    accuracies = {name: metrics["accuracy"] for name, metrics in task.references().items()}
    # the fixture's digit is the column that is bright
    assert accuracies["linear (grey in 4 x 4 fields)"] > accuracies["majority class"]
