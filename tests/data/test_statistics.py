"""What is known of data: how far recorded ones are proved; statistics in conf/dataset, which refuse noise."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import DataError
from physml.data import proof
from physml.data.catalogue import missing
from physml.data.datasets import Arrays, Statistic, Upstream, dataset_names, upstream
from physml.data.locate import find
from physml.data.proof import ONE_COPY, PINNED, doubt
from physml.data.readers import ecg5000, reader
from physml.data.statistics import check
from physml.data.store import Store

# Of these no public source that could be read says more than their sizes, so noise of the right size passes.
# They are pinned without a checksum, and every verdict on them says so.
SIZES_ALONE = {"bidmc32hr", "bidmc32rr"}


@pytest.mark.parametrize("name", dataset_names())
def test_declared_statistics_hold_for_the_data_at_hand(name: str) -> None:
    store, about = Store.from_env("content"), upstream(name)
    if missing(about, store) or not any(find(file, store) for file in about.files):
        pytest.skip(f"{name} is not in PHYSML_DATA or the cache")
    check(about, store.read(reader(name)))


def noise(name: str, root: Path) -> Arrays:
    """What the reader would return for noise in the right format: the declared sizes, classes and bounds."""
    rng, arrays = np.random.default_rng(0), Store(None, root, fixtures=True).read(reader(name))
    for of, known in upstream(name).statistics.items():
        if of not in ("x_shape", "sizes", "n_graphs"):  # these are sizes
            arrays[of] = _drawn(known, arrays[of], len(arrays["y"]) if "y" in arrays else 0, rng)
        elif known.first is not None:
            arrays[of] = np.array(known.first, arrays[of].dtype)
    return arrays


def _drawn(known: Statistic, like: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """One row for all, where the shape is known: some arrays have 10^8 values."""
    if known.counts is not None:
        return rng.choice(np.array([*known.counts]), sum(known.counts.values())).astype(like.dtype)
    shape = known.shape or like.shape
    if known.homophily is not None:
        return rng.integers(0, n, shape, np.int32)
    low = 0.0 if known.low is None else known.low
    high = low + 1 if known.high is None else known.high
    row = rng.uniform(low, high + (like.dtype.kind in "iu"), shape[-1])
    return np.broadcast_to(row.astype(like.dtype), shape)


def pinned_alone() -> list[str]:
    """Data sets of which neither a checksum nor the content is known: only statistics can refuse a file."""
    abouts = map(upstream, dataset_names())
    return [a.name for a in abouts if not a.content.sha256 and not any(file.checksum for file in a.files)]


@pytest.mark.parametrize("name", sorted({*dataset_names()} - ({*pinned_alone()} - SIZES_ALONE)))
def test_noise_in_the_right_format_is_refused_in_one_line_and_not_pinned(name: str, tmp_path: Path) -> None:
    """Not pinned even where its files come first."""
    about, arrays = upstream(name), noise(name, tmp_path)
    assert about.statistics
    if name in SIZES_ALONE:
        check(about, arrays)
        return
    says = f"{name}: .* These are other data"
    assert "\n" not in refuses(DataError, says, check, about, arrays)
    if name not in pinned_alone():
        return
    for file in about.files:
        (tmp_path / file.name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file.name).write_bytes(np.random.default_rng(0).bytes(64))
    store = Store(tmp_path, tmp_path / "cache")
    assert "\n" not in refuses(DataError, says, store.read, replace(reader(name), read=lambda files: arrays))
    assert not store.used and not (store.cache / "pins").exists()


WORKERS = upstream("heterophilous_tolokers").files[0]
BEATS = ecg5000.name("test")


def recorded(dataset: str, name: str, verified: str = "first seen", sha256: str | None = "0" * 64) -> dict:
    return {"readers": {dataset: 1}, "files": [{"name": name, "sha256": sha256, "verified": verified}]}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (recorded("mnist", "x.gz", "bytes"), None),
        # A checksum that became known after the run counts, if it is that of the run's file.
        (recorded("heterophilous_tolokers", WORKERS.name, sha256=WORKERS.sha256), None),
        (recorded("heterophilous_tolokers", WORKERS.name), PINNED),
        (recorded("eigenworms", "EigenWorms_TEST.ts"), PINNED),
        (recorded("a_set_of_a_family", "OSULeaf_TEST.ts"), PINNED),
        # Content counts where a second source agrees on it.
        (recorded("imdb", "aclImdb_v1.tar.gz", "content"), None),
        (recorded("uci_har", "UCI HAR Dataset.zip", "content"), ONE_COPY),
        (recorded("ecg5000", BEATS, sha256=upstream("ecg5000").content.copies[BEATS]), None),
        (recorded("ecg5000", BEATS), PINNED),
        ({"kind": "pinned"}, PINNED),
        ({"kind": "content-verified"}, ONE_COPY),
        ({"kind": "verified"}, None),
        ({}, None),
    ],
)
def test_what_is_not_proved_of_recorded_data_and_that_the_weakest_file_counts(data, reason) -> None:
    assert doubt(data) == reason
    assert proof.worst([None, ONE_COPY, PINNED]) == PINNED and proof.worst([None]) is None


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"counts": {1: 1, 2: 2, 5: 1}, "low": 1, "high": 5, "sd": 1.5}, None),
        ({"counts": {1: 2, 2: 1, 5: 1}}, "counts of x must be {1: 2, 2: 1, 5: 1} .a book.; got {1: 1,"),
        ({"shape": (2, 2), "mean": 2.5, "first": (1.0, 2.0)}, None),  # to the digits that are printed
        ({"shape": (4,)}, "the shape of x must be .4,. .a book.; got .2, 2."),
        ({"homophily": 0.5}, None),
        ({"homophily": 0.6}, "the homophily of x must be 0.6 .a book.; got 0.5"),
        ({"low": 1.5}, "the least value of x must be at least 1.5"),
        ({"high": 4}, "the greatest value of x must be at most 4"),
        ({"mean": 2.501}, "the mean of x must be 2.501"),
        ({"sd": 1.4}, "the standard deviation of x must be 1.4"),
        ({"has": (5.0, 1.0)}, None),
        ({"has": (5.0, 4.0)}, "values nearest to those known of x must be .5.0, 4.0. .a book.; got .5.0, 5."),
        ({"first": (1.0, 2.1)}, "the first values of x must be"),
        ({"first": (1.0, 2.0, 2.0, 5.0, 1.0)}, "the first values of x must be"),
    ],
)
def test_an_array_must_have_the_statistics_that_are_known_of_it(known: Any, says: str | None) -> None:
    about = Upstream("Set", "x", "CC0", (), name="set", statistics={"x": Statistic("a book", **known)})
    with pytest.raises(DataError, match=says) if says else nullcontext():
        check(about, {"x": np.array([[1, 2], [2, 5]]), "y": np.array([0, 1, 1, 0, 0, 0])})
