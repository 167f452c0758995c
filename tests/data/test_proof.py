"""How far recorded data are proved, and what is known of data whatever file they come from."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from physml.base.errors import DataError
from physml.data import proof
from physml.data.datasets import Statistic, Upstream, upstream
from physml.data.proof import ONE_COPY, PINNED, doubt
from physml.data.readers.ecg5000 import name
from physml.data.statistics import check

WORKERS = upstream("heterophilous_tolokers").files[0]


BEATS = name("test")


def recorded(
    dataset: str, name: str, verified: str = "first seen", sha256: str | None = "0" * 64
) -> dict[str, Any]:
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
def test_what_is_not_proved_of_recorded_data(data: dict[str, Any], reason: str | None) -> None:
    assert doubt(data) == reason


def test_the_weakest_file_counts() -> None:
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
        ({"first": (1.0, 2.1)}, "the first values of x must be"),
        ({"first": (1.0, 2.0, 2.0, 5.0, 1.0)}, "the first values of x must be"),
    ],
)
def test_an_array_must_have_the_statistics_that_are_known_of_it(known: Any, says: str | None) -> None:
    about = Upstream("Set", "x", "CC0", (), name="set", statistics={"x": Statistic("a book", **known)})
    with pytest.raises(DataError, match=says) if says else nullcontext():
        check(about, {"x": np.array([[1, 2], [2, 5]]), "y": np.array([0, 1, 1, 0, 0, 0])})
