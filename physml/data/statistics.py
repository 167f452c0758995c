"""Statistics of data, whatever file they come from: counts, ranges, means, first values. No torch here."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from physml.base.errors import DataError
from physml.data.datasets import Arrays, Statistic, Upstream

NEAR = 1e-5  # of statistics, relative, where they are not printed with fewer digits


def check(dataset: Upstream, arrays: Arrays) -> None:
    """DataError where an array is not as conf/dataset describes it: other counts, another range or start."""
    for name, wanted in dataset.statistics.items() if arrays else ():  # none: an optional file is absent
        for what, got, want in _compared(arrays[name], wanted):
            raise DataError(
                f"{dataset.name}: {what} of {name} must be {want} ({wanted.source}); got {got}. These are "
                f"other data. Get them again: `physml data get {dataset.name}`."
            )


def _compared(array: np.ndarray, wanted: Statistic) -> Iterator[tuple[str, object, object]]:
    """The statistics that are not as wanted: the name, the array's, the wanted one."""
    if wanted.shape not in (None, array.shape):
        yield "the shape", array.shape, wanted.shape
        return
    if wanted.counts is not None:
        values, counts = np.unique(array, return_counts=True)
        got = dict(zip(values.tolist(), counts.tolist(), strict=True))
        if got != dict(wanted.counts):
            yield "counts", got if len(got) <= 20 else f"{len(got)} different values", dict(wanted.counts)
    if wanted.low is not None and not array.min() >= wanted.low:
        yield "the least value", array.min(), f"at least {wanted.low}"
    if wanted.high is not None and not array.max() <= wanted.high:
        yield "the greatest value", array.max(), f"at most {wanted.high}"
    if wanted.first is not None:
        yield from _near("the first values", array.reshape(-1)[: len(wanted.first)].tolist(), wanted.first)
    if wanted.mean is not None:
        yield from _near("the mean", array.mean(dtype=np.float64), wanted.mean)
    if wanted.sd is not None:
        yield from _near("the standard deviation", array.std(dtype=np.float64), wanted.sd)


def _near(what: str, got: Any, want: Any) -> Iterator[tuple[str, object, object]]:
    digits = [Decimal(repr(x)).as_tuple().exponent for x in np.atleast_1d(want).tolist()]
    half = 0.5 * 10.0 ** np.array(digits)  # a unit of the last digit that is written
    if np.shape(got) != np.shape(want) or not np.allclose(got, want, rtol=NEAR, atol=half):
        yield what, got, want
