"""Statistics of data, whatever file they come from: counts, ranges, means, first values. No torch here."""

from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from physml.base.errors import DataError
from physml.data.datasets import Arrays, Statistic, Upstream


def check(dataset: Upstream, arrays: Arrays) -> None:
    """DataError where an array is not as conf/dataset describes it: other counts, another range or start."""
    for name, expected in dataset.statistics.items() if arrays else ():  # none: an optional file is absent
        for what, got, want in _compared(arrays[name], expected, arrays):
            raise DataError(
                f"{dataset.name}: {what} of {name} must be {want} ({expected.source}); got {got}. These are "
                f"other data. Get them again: `physml data get {dataset.name}`."
            )


def _compared(array: np.ndarray, expected: Statistic, arrays: Arrays) -> Iterator[tuple[str, object, object]]:
    """The statistics that are not as expected: the name, the array's, the expected one."""
    if expected.shape not in (None, array.shape):
        yield "the shape", array.shape, expected.shape
    if expected.counts is not None:
        values, counts = np.unique(array, return_counts=True)
        got = dict(zip(values.tolist(), counts.tolist(), strict=True))
        if got != dict(expected.counts):
            yield "counts", got if len(got) <= 20 else f"{len(got)} different values", dict(expected.counts)
    if expected.low is not None and not array.min() >= expected.low:
        yield "the least value", array.min(), f"at least {expected.low}"
    if expected.high is not None and not array.max() <= expected.high:
        yield "the greatest value", array.max(), f"at most {expected.high}"
    for what, want, of in (
        ("the first values", expected.first, lambda: array.reshape(-1)[: len(expected.first or ())].tolist()),
        ("the values nearest to those known", expected.has, lambda: _nearest(array, expected.has or ())),
        ("the mean", expected.mean, lambda: array.mean(dtype=np.float64)),
        ("the standard deviation", expected.sd, lambda: array.std(dtype=np.float64)),
        ("the homophily", expected.homophily, lambda: np.equal(*arrays["y"][array]).mean()),
    ):
        if want is not None:
            value, digits = of(), [Decimal(repr(x)).as_tuple().exponent for x in np.atleast_1d(want).tolist()]
            half = 0.5 * 10.0 ** np.array(digits)  # half a unit of the last digit that is written
            if np.shape(value) != np.shape(want) or not np.allclose(value, want, rtol=1e-5, atol=half):
                yield what, value, want


def _nearest(array: np.ndarray, values: tuple[float, ...]) -> list[float]:
    flat = array.reshape(-1)
    return [float(flat[abs(flat - value).argmin()]) for value in values]
