"""HAR-2: classes, parts, scaling, and the trivial references."""

from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data

from physml.data.readers.har import FIXTURE_SIZES, TOP, UCI_HAR
from physml.data.store import Store
from tasks.har2 import HAR2

NEEDED, VERIFY = TOP, "content"
PAPER: dict[str, Any] = {
    **{"held_out": "subjects", "tested": "subjects", "scaling": "channel", "merge": "text"},
    **{"data_seed": 42, "protocol": "paper"},
}


def loaded(store: Store, split: int = 0, **change: Any) -> HAR2:
    return with_data(HAR2(**{**PAPER, **change}), store, split)


def test_classes_are_merged_as_the_text_says_and_each_split_holds_out_other_subjects(store: Store) -> None:
    # Activities: 1 walking, 2 upstairs, 3 downstairs, 4 sitting, 5 standing, 6 laying.
    activity = store.read(UCI_HAR)["y_test"]
    assert torch.equal(whole(loaded(store), "test").target, torch.tensor(np.isin(activity, [1, 3, 5])).long())
    moving = whole(loaded(store, merge="moving"), "test").target
    assert torch.equal(moving, torch.tensor(activity <= 3).long())
    held = []
    for split in range(2):
        task = loaded(store, split)
        assert task.sizes == {"train": 12, "valid": 12, "test": 12}
        held.append(whole(task, "valid").input)
        everything = torch.cat([whole(task, part).input for part in ("train", "valid")])
        assert len(torch.unique(everything.flatten(1), dim=0)) == FIXTURE_SIZES["train"]
    assert not torch.isin(held[0], held[1]).all()


@pytest.mark.parametrize(
    ("scaling", "axes"), [("channel", (0, 1)), ("point", (0,)), ("once", (0, 1, 2)), ("none", None)]
)
def test_inputs_are_standardised_by_the_training_windows(store: Store, scaling: str, axes) -> None:
    task, raw = loaded(store, scaling=scaling), loaded(store, scaling="none")
    x, u = whole(task, "train").input, whole(raw, "train").input
    if axes is None:
        assert x.mean() > 0.1
        return
    assert torch.allclose(x.mean(axes), torch.zeros(1), atol=1e-5)
    assert torch.allclose(x.std(axes, correction=0), torch.ones(1), atol=1e-4)
    want = (whole(raw, "test").input - u.mean(axes)) / u.std(axes, correction=0)
    assert torch.allclose(whole(task, "test").input, want, atol=1e-4)


def test_random_windows_mix_the_subjects(store: Store) -> None:
    arrays = store.read(UCI_HAR)
    random = {"held_out": "windows", "tested": "windows", "scaling": "none"}
    task, again, other = loaded(store, **random), loaded(store, **random), loaded(store, 1, **random)
    assert task.sizes == {"train": 22, "valid": 2, "test": 12}
    everything = torch.cat([whole(task, part).input for part in ("train", "valid", "test")])
    assert len(torch.unique(everything.flatten(1), dim=0)) == 36
    of_test = torch.from_numpy(arrays["x_test"])
    assert not torch.equal(whole(task, "test").input, of_test)
    assert torch.equal(whole(task, "test").input, whole(again, "test").input)
    assert not torch.equal(whole(task, "test").input, whole(other, "test").input)
    assert torch.equal(whole(loaded(store, held_out="windows", scaling="none"), "test").input, of_test)


def test_trivial_references_and_a_loss_of_one_logit(store: Store) -> None:
    references = loaded(store).references()
    assert references["majority class"]["accuracy"] == 0.5
    assert references["majority class"]["cross_entropy"] == pytest.approx(np.log(2))
    # The level of a fixture's window is 0.2 times its activity, and 0 (2, 4, 6) and 1 (1, 3, 5) alternate.
    assert references["linear (channel means)"]["accuracy"] < 0.9
    # Walking is 1..3: a threshold. 22 windows for 10 weights.
    moving = loaded(store, merge="moving", held_out="windows").references()
    assert moving["linear (channel means)"]["accuracy"] > 0.9
    task = loaded(store)
    batch = whole(task, "test")
    sure = (batch.target.float() * 2 - 1)[:, None] * 20
    assert task.loss(sure, batch).item() < 1e-6
    assert task.finish(task.score(-sure, batch))["accuracy"] == 0.0


def test_the_real_parts(real: Store) -> None:
    subject = real.read(UCI_HAR)["subject_train"]
    task = loaded(real)
    assert task.sizes == {"train": 6220, "valid": 1132, "test": 2947}
    assert task.sizes["valid"] == np.isin(subject, [1, 25, 27]).sum()
    assert sum(loaded(real, split).sizes["valid"] for split in range(7)) == len(subject)
    assert task.references()["majority class"]["accuracy"] == pytest.approx(1499 / 2947)
