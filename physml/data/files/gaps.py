"""Missing values of series, NaN in their steps: refused, filled in, or left out with their series. No torch.

Axes: N series, T steps, D dimensions.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from physml.base.errors import DataError

log = logging.getLogger(__name__)

Missing = Literal["refuse", "fill", "drop"]
MISSING: tuple[Missing, ...] = ("refuse", "fill", "drop")


def without_gaps(
    series: Sequence[np.ndarray], missing: Missing, where: str, at: Callable[[int, int, int], str]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Series (T, D) without NaN, and the positions (N,) of those that are left.

    Args:
        series: each (T, D); T may differ.
        missing: "refuse"; "fill": on a straight line between the neighbours in time of the same dimension,
            and as the nearest value before the first and behind the last one; "drop": the series is left out.
        where: the data set and its part, for messages.
        at: the place of a value, by the positions of series, step and dimension, counted from 0.

    Errors: DataError for a gap that is refused or cannot be filled, and where no series is left.
    """
    holes = [np.isnan(x) for x in series]
    those = [i for i, hole in enumerate(holes) if hole.any()]
    if not those:
        return list(series), np.arange(len(series))
    if missing == "refuse":
        step, dimension = np.argwhere(holes[those[0]])[0]
        raise DataError(
            f"{where}: {len(those)} of {len(series)} series have missing values, the first at "
            f"{at(those[0], step, dimension)}. Set task.missing=fill (straight lines) or task.missing=drop "
            "(without these series), or correct the file."
        )
    log.warning("%s: %d of %d series have missing values: %s.", where, len(those), len(series), missing)
    if missing == "drop":
        kept = np.setdiff1d(np.arange(len(series)), those)
        if not len(kept):
            raise DataError(f"{where}: all {len(series)} series have missing values. Set task.missing=fill.")
        return [series[i] for i in kept], kept
    filled = list(series)
    for i in those:
        if holes[i].all(0).any():
            dimension = int(holes[i].all(0).argmax())
            raise DataError(
                f"{where}: no value is known at {at(i, 0, dimension)} and behind it, so nothing can be "
                "filled in. Set task.missing=drop."
            )
        filled[i] = _filled(series[i], holes[i])
    return filled, np.arange(len(series))


def _filled(x: np.ndarray, hole: np.ndarray) -> np.ndarray:
    step = np.arange(len(x))
    columns = [np.interp(step, step[~gap], values[~gap]) for values, gap in zip(x.T, hole.T, strict=True)]
    return np.stack(columns, -1).astype(x.dtype)
