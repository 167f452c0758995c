"""EigenWorms: the splits, the sub-sampling, the inputs of Morrill et al."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from refusals import refuses

from physml.base.errors import InputError
from physml.base.paths import own_folders
from physml.cli import main
from physml.config.compose import compose
from physml.data import splits
from physml.data.readers.eigenworms import EIGENWORMS
from physml.data.store import Store
from physml.queue import planning
from physml.records import record
from physml.report.table.spec import experiments_of, find_table, load_table
from physml.run.spec import spec_of
from physml.task.base import Part
from tasks.eigenworms import EigenWorms, pooled

PARTS: tuple[Part, ...] = ("train", "valid", "test")
STEPS = 24  # of the fixture


def made(store: Store, split: int = 0, **changes: Any) -> EigenWorms:
    arguments = {"split_of": "lem", "inputs": "raw", "entries": None, "keep": "last", "protocol": "official"}
    return with_data(EigenWorms(**(arguments | changes)), store, split)


def positions(x: np.ndarray, of: torch.Tensor) -> list[int]:
    """Which worms these are, by their numbers."""
    known = {row.tobytes(): i for i, row in enumerate(x)}
    return [known[row.tobytes()] for row in of.numpy()]


@pytest.mark.parametrize("split_of", ["lem", "nrde"])
def test_the_official_splits_are_what_scikit_learn_draws(split_of: str, store: Store) -> None:
    from sklearn.model_selection import train_test_split

    x, y = pooled(store.read(EIGENWORMS))
    worms = np.arange(259)
    if split_of == "lem":
        train, held = train_test_split(worms, test_size=0.3, random_state=1234)
        valid, test = train_test_split(held, test_size=0.5, random_state=1234)
    else:
        np.random.seed(0)
        rest, test = train_test_split(worms, test_size=0.15)
        train, valid = train_test_split(rest, test_size=0.15 / 0.85)
    task = made(store, split_of=split_of)
    assert task.sizes == {"train": 181, "valid": 39, "test": 39}
    for part, indices in zip(PARTS, (train, valid, test), strict=True):
        batch = whole(task, part)
        assert sorted(positions(x, batch.input)) == sorted(indices)
        assert batch.target.tolist() == y[positions(x, batch.input)].tolist()


@pytest.mark.parametrize("split", range(5))
def test_the_clean_splits_have_every_class_in_every_part(split: int, store: Store) -> None:
    x, y = pooled(store.read(EIGENWORMS))
    task = made(store, split, split_of="stratified", protocol="clean")
    by_part = {part: positions(x, whole(task, part).input) for part in PARTS}
    assert {part: len(worms) for part, worms in by_part.items()} == {"train": 181, "valid": 39, "test": 39}
    assert sorted(i for worms in by_part.values() for i in worms) == list(range(259))
    share = np.bincount(y) / 259
    for worms in by_part.values():
        assert np.abs(np.bincount(y[worms], minlength=5) - len(worms) * share).max() < 2


@pytest.mark.parametrize("inputs", ["raw", "nrde"])
def test_the_last_entries(inputs: str, store: Store) -> None:
    full, some = made(store, inputs=inputs), made(store, inputs=inputs, entries=5)
    for part in PARTS:
        assert torch.equal(whole(some, part).input, whole(full, part).input[:, -5:])


def test_random_entries_stand_in_order_and_differ_from_worm_to_worm(store: Store) -> None:
    full, some = made(store, inputs="nrde"), made(store, inputs="nrde", entries=10, keep="random")
    x = whole(some).input
    assert x.shape == (181, 10, 7) and torch.equal(whole(some).target, whole(full).target)
    steps = (x[..., 0] * (STEPS - 1)).round().long()  # the first channel is time
    assert (steps.diff(dim=1) > 0).all()
    assert len({tuple(row) for row in steps.tolist()}) > 170
    assert torch.equal(x, whole(full).input.gather(1, steps[..., None].expand(-1, -1, 7)))
    assert set(steps.flatten().tolist()) == set(range(STEPS))
    every = made(store, inputs="nrde", entries=STEPS, keep="random")
    assert torch.equal(whole(every, "test").input, whole(full, "test").input)


def test_inputs_of_morrill_have_time_and_standardised_channels(store: Store) -> None:
    task = made(store, split_of="nrde", inputs="nrde")
    assert task.d_in == 7
    x = whole(task).input
    torch.testing.assert_close(x[:, :, 0], torch.linspace(0, 1, STEPS).expand(181, -1))
    torch.testing.assert_close(x[..., 1:].mean((0, 1)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(x[..., 1:].std((0, 1), correction=0), torch.ones(6))
    raw_train, raw_test = (whole(made(store, split_of="nrde"), part).input for part in ("train", "test"))
    mean, std = raw_train.mean((0, 1)), raw_train.std((0, 1), correction=0)
    x = whole(task, "test").input
    torch.testing.assert_close(x[..., 1:], (raw_test - mean) / std, atol=1e-5, rtol=0)


def test_raw_inputs_are_as_in_the_files_and_what_they_lack_is_refused(store: Store) -> None:
    arrays, task = store.read(EIGENWORMS), made(store)
    assert task.d_in == 6 and task.d_out == 5
    inputs = torch.cat([whole(task, part).input for part in PARTS]).numpy()
    both = np.concatenate([arrays["x_train"], arrays["x_test"]])
    np.testing.assert_array_equal(inputs, both[splits.load_index("eigenworms-lem")])
    says = f"entries must be at most the {STEPS} steps of a worm; got {STEPS + 1}"
    refuses(InputError, says, made, store, entries=STEPS + 1)
    refuses(InputError, "protocol=official has one split.*Use protocol=clean", made, store, 1)


@pytest.mark.usefixtures("small_data")
@pytest.mark.parametrize("folder", [".", "EigenWorms"])
def test_placing_the_two_files_unblocks_the_table(folder: str, tmp_path: Path, monkeypatch) -> None:
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PHYSML_DATA", str(tmp_path / "data"))
    of_the_table = experiments_of(load_table(find_table("lem-2")))
    specs = [spec_of(compose([f"experiment={e}", "profile=full"])) for e in of_the_table]
    blocked = "blocked: EigenWorms_TRAIN.ts missing, get it with `physml data get eigenworms`"
    assert [planned.said for planned in planning.plan(specs)] == [blocked] * 11
    EIGENWORMS.fixture(tmp_path / "data" / folder)
    assert {planned.state for planned in planning.plan(specs)} == {"missing"}
    short = ("trainer.epochs=1", "trainer.max_steps=1", "tracker=none")
    assert main.main(["run", "experiment=lem/eigenworms-lem", *short]) == 0
    (path,) = tmp_path.rglob("eigenworms-lem/*-seed0.json")
    data = record.read(path)["data"]
    assert data["kind"] == "pinned" and data["sizes"] == {"train": 181, "valid": 39, "test": 39}
