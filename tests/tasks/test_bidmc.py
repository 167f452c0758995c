"""Heart and respiratory rate: which windows, whose, what is scored; the archive's division and its leak."""

from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data

from physml.base.errors import InputError
from physml.data import splits
from physml.data.readers import bidmc, bidmc_tsr
from physml.data.store import Store
from tasks.bidmc import N_TRAIN, N_VALID, SPLITS, ArchiveRates, SubjectRates, subjects, windows

NEEDED, VERIFY = "bidmc_pleth_ii_31subj.npz", "content"
SMALL: dict[str, Any] = {
    **{"window": 125, "stride": 125, "every": 5, "inputs": "standard", "target": "standard"},
    **{"divided": "subjects", "protocol": "clean"},
}


def loaded(store: Store, rate: str = "heart", split: int = 0, **change: Any) -> SubjectRates:
    return with_data(SubjectRates(rate=rate, **{**SMALL, **change}), store, split)


def test_the_archive_is_divided_as_by_random_split_and_no_subject_is_in_two_parts() -> None:
    # As the official code draws it: the rest is divided into test and validation by the same seed.
    first, second = (torch.Generator().manual_seed(123456) for _ in range(2))
    train, rest = torch.utils.data.random_split(range(7949), [5565, 2384], generator=first)
    test, valid = torch.utils.data.random_split(rest, [1192, 1192], generator=second)
    want = [*train, *valid, *test]
    assert splits.load_index("bidmc-lem").tolist() == want
    assert N_TRAIN + 2 * N_VALID == bidmc_tsr.N == len(set(want))
    tested: list[int] = []
    for split in range(SPLITS):
        parts = subjects(np.array(bidmc.SUBJECTS), split)
        assert {part: len(s) for part, s in parts.items()} == {"train": 20, "valid": 5, "test": 6}
        assert sorted(np.concatenate(list(parts.values())).tolist()) == sorted(bidmc.SUBJECTS)
        tested += parts["test"].tolist()
    assert len(set(tested)) == len(tested) == 30


def test_the_archive_goes_in_raw_and_is_scored_in_its_unit(store: Store) -> None:
    arrays = store.read(bidmc_tsr.HEART)
    task = with_data(ArchiveRates(rate="heart", protocol="official"), store)
    assert task.sizes == {"train": 34, "valid": 2, "test": 4}
    first = next(i for i in splits.load_index("bidmc-lem") if i < 40)
    batch = whole(task, "train")
    assert np.array_equal(batch.input[0].numpy(), arrays["x"][first])
    assert batch.target[0].item() == pytest.approx(arrays["y"][first])
    off = task.finish(task.score(batch.target + torch.tensor([[3.0]]), batch))
    assert off == pytest.approx({"rmse": 3.0, "mae": 3.0}, rel=1e-5)
    assert task.loss(batch.target + 3, batch).item() == pytest.approx(9.0, rel=1e-5)


def test_windows_are_cut_from_the_record_and_scaling_is_of_train_alone(store: Store) -> None:
    arrays = store.read(bidmc.BIDMC)
    task = loaded(store, inputs="raw", target="raw")
    subject = subjects(arrays["subject"], 0)["test"].min()  # subjects come in the order of the data
    i = arrays["subject"].tolist().index(subject)
    batch = whole(task, "test")
    assert task.sizes == {"train": 60, "valid": 15, "test": 18}
    assert np.array_equal(batch.input[1].numpy(), arrays["signals"][i, 125:250:5])
    assert batch.target[1].item() == arrays["numerics"][i, 1, 1]
    assert loaded(store, stride=25).sizes["test"] == 6 * 11, "they overlap"
    with pytest.raises(InputError, match="window must be at most 376"):
        loaded(store, window=4000)
    task, raw = loaded(store), loaded(store, inputs="raw", target="raw")
    x = whole(task, "train").input
    assert torch.allclose(x.mean((0, 1)), torch.zeros(2), atol=1e-5)
    assert torch.allclose(x.std((0, 1), correction=0), torch.ones(2), atol=1e-4)
    y = whole(raw, "train").target
    batch = whole(task, "test")
    output = (batch.target + 2 - y.mean()) / y.std(correction=0)
    assert task.finish(task.score(output, batch))["rmse"] == pytest.approx(2.0, rel=1e-4)
    assert task.loss(output, batch).item() == pytest.approx((2 / y.std(correction=0).item()) ** 2, rel=1e-3)


def test_seconds_without_a_value_do_not_count(store: Store) -> None:
    """The fixture's first second has no respiratory rate; its three windows have one second each."""
    task = loaded(store, "respiratory")
    assert task.sizes == {"train": 40, "valid": 10, "test": 12}
    arrays = {k: v.copy() for k, v in store.read(bidmc.BIDMC).items()}
    arrays["numerics"][0, :, 2] = [np.nan, 0, 14, 16]
    task = SubjectRates(rate="respiratory", **{**SMALL, "window": 375})
    assert task._windows(arrays, 0)[1].tolist() == []  # one of three
    arrays["numerics"][0, 1, 2] = 13
    assert task._windows(arrays, 0)[1].tolist() == [13.5]  # the fourth second begins behind the window
    # The clock of the monitor counts, not its rows: some records begin one second before the signals.
    arrays["numerics"][0, :, 0] = [-1, 0, 1, 2]
    arrays["numerics"][0, :, 1] = [50, 60, 70, 80]
    assert SubjectRates(rate="heart", **SMALL)._windows(arrays, 0)[1].tolist() == [60, 70, 80]


def test_windows_at_random_are_of_the_same_people_in_all_parts(store: Store) -> None:
    change = {"divided": "windows", "protocol": "paper", "inputs": "raw"}
    task, again, other = loaded(store, **change), loaded(store, **change), loaded(store, split=1, **change)
    assert task.sizes == {"train": 65, "valid": 14, "test": 14}
    assert sorted(np.concatenate(list(windows(93, 0).values())).tolist()) == list(range(93))
    assert torch.equal(whole(task, "test").input, whole(again, "test").input)
    assert not torch.equal(whole(task, "test").input, whole(other, "test").input)
    assert torch.isin(task._subject["test"], task._subject["train"]).float().mean() > 0.5


@pytest.mark.parametrize("target", ["raw", "standard"])
def test_trivial_references(store: Store, target: str) -> None:
    task = loaded(store, target=target, stride=60)
    references = task.references()
    y, mean = whole(task, "test").target, whole(task, "train").target.mean()
    assert references["constant"]["rmse"] == pytest.approx((y - mean).square().mean().sqrt().item(), rel=1e-4)
    assert references["subject's mean (an oracle)"]["rmse"] < 1e-3, "constant in a fixture"


def test_the_real_parts(real: Store) -> None:
    full = {"window": 4000, "stride": 4000, "every": 8}
    heart, breath = (loaded(real, rate, **full) for rate in ("heart", "respiratory"))
    assert heart.sizes == {"train": 300, "valid": 75, "test": 90}
    assert breath.sizes == {"train": 300, "valid": 75, "test": 79}  # subject 13 has hardly a respiratory rate
    assert whole(heart, "test").input.shape == (90, 500, 2)
    assert heart.facts()["kind"] == "content-verified"
    references = heart.references()
    assert references["constant"]["rmse"] == pytest.approx(15.29, abs=0.01)
    assert references["subject's mean (an oracle)"]["rmse"] == pytest.approx(1.12, abs=0.01)
    assert loaded(real, **{**full, "stride": 400}).sizes == {"train": 2820, "valid": 705, "test": 846}
