"""Statistics of data, whatever file they come from: counts, ranges, means, first values. No torch here."""

from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from physml.base.errors import DataError
from physml.data.datasets import Arrays, Statistic, Upstream


def check(dataset: Upstream, arrays: Arrays) -> None:
    """DataError where an array is not as conf/dataset describes it: other counts, another range or start."""
    for name, wanted in dataset.statistics.items() if arrays else ():  # none: an optional file is absent
        for what, got, want in _compared(arrays[name], wanted, arrays):
            raise DataError(
                f"{dataset.name}: {what} of {name} must be {want} ({wanted.source}); got {got}. These are "
                f"other data. Get them again: `physml data get {dataset.name}`."
            )


def _compared(array: np.ndarray, wanted: Statistic, arrays: Arrays) -> Iterator[tuple[str, object, object]]:
    """The statistics that are not as wanted: the name, the array's, the wanted one."""
    if wanted.shape not in (None, array.shape):
        yield "the shape", array.shape, wanted.shape
    if wanted.counts is not None:
        values, counts = np.unique(array, return_counts=True)
        got = dict(zip(values.tolist(), counts.tolist(), strict=True))
        if got != dict(wanted.counts):
            yield "counts", got if len(got) <= 20 else f"{len(got)} different values", dict(wanted.counts)
    if wanted.low is not None and not array.min() >= wanted.low:
        yield "the least value", array.min(), f"at least {wanted.low}"
    if wanted.high is not None and not array.max() <= wanted.high:
        yield "the greatest value", array.max(), f"at most {wanted.high}"
    for what, want, of in (
        ("the first values", wanted.first, lambda: array.reshape(-1)[: len(wanted.first or ())].tolist()),
        ("the mean", wanted.mean, lambda: array.mean(dtype=np.float64)),
        ("the standard deviation", wanted.sd, lambda: array.std(dtype=np.float64)),
        ("the homophily", wanted.homophily, lambda: np.equal(*arrays["y"][array]).mean()),
    ):
        if want is not None:
            found, digits = of(), [Decimal(repr(x)).as_tuple().exponent for x in np.atleast_1d(want).tolist()]
            half = 0.5 * 10.0 ** np.array(digits)  # half a unit of the last digit that is written
            if np.shape(found) != np.shape(want) or not np.allclose(found, want, rtol=1e-5, atol=half):
                yield what, found, want
