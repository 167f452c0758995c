"""Bases of tasks whose sequences lie in memory: parts, batches, metrics, trivial references, refusals."""

import math

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from refusals import refuses
from torch import Tensor

from physml.base.errors import DataError, InputError
from physml.data.store import Store
from physml.task.sequences import Labelled, Valued

STORE = Store(None, None)  # type: ignore[arg-type]


class Classes(Labelled):
    protocol = "clean"

    def __init__(self, n_classes: int = 3, one_logit: bool = False) -> None:
        self.d_in, self.n_classes, self.one_logit = 2, n_classes, one_logit  # type: ignore[misc]
        self.d_out = 1 if one_logit else n_classes

    def load(self, store: Store, split: int, **changes) -> None:
        labels = {"train": [0, 0, 0, 1, 2], "valid": [0, 1], "test": [0, 1, 1, 1]}
        y = {part: torch.tensor(v).clamp(max=self.n_classes - 1) for part, v in labels.items()}
        x = {part: torch.arange(len(v) * 6, dtype=torch.uint8).reshape(-1, 3, 2) for part, v in y.items()}
        self.place({part: (x[part], y[part]) for part in y} | changes, store)  # type: ignore[arg-type]


class Words(Labelled):
    protocol, tokens, d_in, d_out, n_classes = "clean", True, 9, 2, 2

    def load(self, store: Store, split: int) -> None:
        items = (torch.arange(8).reshape(2, 4), torch.tensor([0, 1]), torch.tensor([2, 3]))
        self.place(dict.fromkeys(("train", "valid", "test"), items), store)


class Numbers(Valued):
    protocol, d_in, d_out = "clean", 1, 1

    def load(self, store: Store, split: int, bad: float = 0.0) -> None:
        y = torch.tensor([1.0, 3.0, 5.0]) + bad
        self.place({part: (torch.zeros(3, 2, 1), y) for part in ("train", "valid", "test")}, store)


def test_batches_are_network_inputs_in_order_or_shuffled_and_cut_to_their_longest_sequence() -> None:
    task = with_data(Classes(), STORE)
    assert [len(b.target) for b in task.batches("train", 2)] == [2, 2, 1] and task.steps_per_epoch(2) == 3
    batch = next(task.batches("train", 5, torch.Generator().manual_seed(0)))
    assert batch.input.dtype == torch.float32 and batch.index.tolist() != list(range(5))
    assert torch.equal(batch.input[:, 0, 0], batch.index * 6.0)
    assert next(task.batches("test", 9, torch.Generator())).index.tolist() == [0, 1, 2, 3]
    first, second = with_data(Words(), STORE).batches("test", 1)
    assert first.input.shape == (1, 2) and second.input.shape == (1, 3)
    assert first.lengths.tolist() == [2]


def test_the_reference_is_the_prior_of_train_and_one_logit_the_same_as_two() -> None:
    metrics = with_data(Classes(), STORE).references()["majority class"]
    assert metrics["accuracy"] == 0.25
    assert metrics["cross_entropy"] == pytest.approx(-(math.log(3 / 5) + 3 * math.log(1 / 5)) / 4)
    task = with_data(Classes(2, one_logit=True), STORE)
    two = with_data(Classes(2), STORE)
    batch = next(task.batches("test", 4))
    z = torch.tensor([[-1.0], [0.3], [2.0], [0.0]])  # a tie is the first class
    both = torch.cat([torch.zeros_like(z), z], 1)
    assert task.loss(z, batch).item() == pytest.approx(two.loss(both, batch).item())
    assert task.score(z, batch) == pytest.approx(two.score(both, batch))
    assert task.references()["majority class"] == pytest.approx(two.references()["majority class"])


def test_absent_parts_have_no_scores_and_a_number_is_scored_in_its_own_unit() -> None:
    task = Numbers()
    y = torch.tensor([1.0, 3.0, 5.0])
    task.place({part: (torch.zeros(3, 2, 1), y) for part in ("train", "test")}, STORE)
    assert list(task.batches("valid", 2)) == list(task.selections("valid", 2, None)) == []
    assert task.finish({}) == {}
    parts = {"train": y, "test": torch.tensor([2.0, 4.0, 9.0])}  # less the mean of train: -1, 1, 6
    task.place({part: (torch.zeros(3, 2, 1), values) for part, values in parts.items()}, STORE)
    assert task.references()["constant"] == pytest.approx({"rmse": math.sqrt(38 / 3), "mae": 8 / 3})
    task = with_data(Numbers(), STORE)
    metrics = task.references()["constant"]
    assert metrics["rmse"] == pytest.approx(math.sqrt(8 / 3)) and metrics["mae"] == pytest.approx(4 / 3)
    batch = next(task.batches("train", 3))
    assert task.loss(batch.target + 2, batch).item() == pytest.approx(4.0)
    facts = task.facts()
    assert facts["sizes"] == {"train": 3, "valid": 3, "test": 3}
    assert facts["kind"] == "verified" and facts["sha256"] == {}


def items(x: Tensor | None = None, y: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return torch.zeros(2, 3, 2) if x is None else x, torch.tensor([0, 1]) if y is None else y


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (items(y=torch.tensor([0, 3])), "labels must be whole numbers from 0 to 2"),
        (items(y=torch.tensor([0, -1])), "labels must be"),
        (items(y=torch.tensor([0.0, 1.0])), "labels must be"),
        (items(y=torch.tensor([0])), "2 inputs need as many targets"),
        (items(torch.zeros(0, 3, 2), torch.zeros(0, dtype=torch.int64)), "there are no items"),
        (items(torch.tensor([[[0, math.nan]], [[0, 0]]])), "NaN or infinite values in 1 item, first at 0"),
    ],
)
def test_data_that_cannot_be_right_are_refused(bad, says) -> None:
    refuses(DataError, f"Classes, part test: .*{says}", Classes().load, STORE, 0, test=bad)


@pytest.mark.parametrize(
    ("part", "labels", "says"),
    [
        ("test", [-1, -1], "part test: all 2 labels are -1: they are hidden"),
        ("test", [0, 2, 2], "test: 2 of 3 items are of no class of train, .* of class 2 .item 1.; train"),
        ("train", [1, 1], "part train: all 2 items are of class 1; a task needs two"),
    ],
)
def test_labels_that_no_score_can_come_from_are_refused(part: str, labels: list[int], says: str) -> None:
    """EricFillion/happy-transformer#248, BIMSBbioinfo/flexynesis#156."""
    train = {"train": items()} if part == "test" else {}
    bad = (torch.zeros(len(labels), 3, 2), torch.tensor(labels))
    refuses(DataError, says, Classes().load, STORE, 0, **{**train, part: bad})


def test_arrays_of_numpy_become_tensors() -> None:
    task = Classes()
    x, y = np.arange(12.0).reshape(2, 3, 2), np.array([0, 1], np.int32)
    task.load(STORE, 0, test=(x, y, np.array([3, 2])))
    batch = next(task.batches("test", 9))
    assert (batch.input.dtype, batch.target.dtype) == (torch.float32, torch.int64)
    assert batch.input.tolist() == x.tolist() and batch.lengths.tolist() == [3, 2]
    task.load(STORE, 0, test=items(y=torch.tensor([0, 1], dtype=torch.int32)))
    x.flags.writeable = False  # of a file that is mapped, say
    for array in (x, x.astype(">f4"), x.astype(np.longdouble)):
        task.load(STORE, 0, test=(array, y.astype(">i2")))
        assert next(task.batches("test", 9)).input.tolist() == x.tolist()
    ages = Numbers()
    ages.place(dict.fromkeys(("train", "test"), (np.zeros((2, 3, 1)), np.array([3, 4]))), STORE)
    assert next(ages.batches("test", 9)).target.tolist() == [[3.0], [4.0]]
    for array in (x * 1j, x.astype(str)):
        refuses(DataError, "arrays must hold real numbers", task.load, STORE, 0, test=(array, y))


def test_wrong_parts_axes_and_values_and_a_task_without_a_width_are_refused() -> None:
    class Bare(Labelled):
        protocol, d_out, n_classes = "clean", 2, 2

        def load(self, store: Store, split: int) -> None:
            self.place(dict.fromkeys(("train", "test"), (torch.ones(2, 4, 1), torch.tensor([0, 1]))), store)

    refuses(InputError, r"Bare has no d_in\. Set it in its constructor or in load", Bare().load, STORE, 0)
    Bare.d_in = 1
    del Bare.n_classes
    refuses(InputError, "Bare has no n_classes", Bare().load, STORE, 0)
    Bare.n_classes = 3
    refuses(InputError, "Bare: d_out must be 3, as n_classes is 3; got 2", Bare().load, STORE, 0)
    refuses(InputError, "Numbers: parts must be a dict, .*; got list", Numbers().place, [items()], STORE)
    uneven = ([[[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]]], [0, 1])
    refuses(DataError, "got rows of unequal lengths. Pad", Classes().load, STORE, 0, test=uneven)
    with pytest.raises(InputError, match=r"named train, valid and test; got 'val'\. Did you mean valid"):
        Classes().load(STORE, 0, val=items())
    refuses(InputError, "there is no part test; got train", Classes().place, {"train": items()}, STORE)
    alone = torch.zeros(2, 3, 2)
    for bad, got in ((alone, "got Tensor"), ((alone,), "got 1 of them"), ([alone] * 4, "got 4 of them")):
        refuses(
            InputError, f"part test: expected inputs, targets .*{got}", Classes().load, STORE, 0, test=bad
        )
    refuses(InputError, r"axes \(N, T, D\)", Classes().load, STORE, 0, test=items(torch.zeros(2, 3)))
    refuses(DataError, "finite", Numbers().load, STORE, 0, bad=math.inf)


def test_items_in_two_parts_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    task = Classes()
    task.load(STORE, 0, test=(torch.arange(6).reshape(1, 3, 2).to(torch.uint8), torch.tensor([1])))
    assert task.facts()["notes"] == ["1 of 1 items of test stand in train or valid too"]
    assert "1 of 1 items of test stand in train or valid too" in caplog.text
