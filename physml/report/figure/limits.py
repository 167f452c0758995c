"""The frame of a panel: limits that one diverging line does not set, and lines that leave the frame."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from physml.report.figure.collect import Curve

FARTHEST = 300.0  # decades from 1 that a number can be
MARGIN = 0.05  # of the frame, above and below
DECADES = 0.5  # that a line may be above the calmer half of the lines, on a logarithmic axis
TIMES = 3.0  # the extent of the calmer half that it may be away from it, on a linear one
SHOWN = 0.25  # of that extent is shown of a line which is further away


def scaled(values: np.ndarray, log: bool) -> np.ndarray:
    """Values as they lie on the axis; what a logarithmic axis cannot show is minus infinity."""
    if not log:
        return np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(values) > 0, np.log10(values), np.where(np.isnan(values), np.nan, -np.inf))


def limits(curves: Sequence[Curve], others: Iterable[float], log: bool) -> tuple[float, float] | None:
    """Least and greatest y of a panel; None where nothing can be shown.

    A curve that is far above the calmer half of the curves (on a linear axis also far below) does not widen
    the frame on that side. others: further values that the frame must hold, such as published ones.
    """
    extents = [extent for curve in curves if (extent := _extent(curve, log))]
    fixed = scaled(np.array(list(others), float), log)
    fixed = fixed[np.isfinite(fixed)]
    calm = sorted(extents, key=lambda e: e[1] - e[0])[: math.ceil(len(extents) / 2)]
    ends = [*fixed]
    if calm:
        low, high = min(e[0] for e in calm), max(e[1] for e in calm)
        reach = DECADES if log else TIMES * max(high - low, abs(high), abs(low))
        shown = reach if log else SHOWN * reach
        ends += [e[0] if log or e[0] >= low - reach else low - shown for e in extents]
        ends += [e[1] if e[1] <= high + reach else high + shown for e in extents]
    return _roomy(ends, log)


def bounds(values: Iterable[float], log: bool) -> tuple[float, float] | None:
    """Limits that hold all values that the axis can show, with room beside them; None without values."""
    places = scaled(np.array(list(values), float), log)
    return _roomy(list(places[np.isfinite(places)]), log)


def _roomy(ends: Sequence[float], log: bool) -> tuple[float, float] | None:
    if not ends:
        return None
    low, high = float(min(ends)), float(max(ends))
    room = MARGIN * (high - low) or (0.1 if log else MARGIN * abs(high) or 1.0)
    low, high = low - room, high + room
    return (10 ** max(low, -FARTHEST), 10 ** min(high, FARTHEST)) if log else (low, high)


def _extent(curve: Curve, log: bool) -> tuple[float, float] | None:
    arrays = [a for a in (curve.y, curve.low, curve.high) if a is not None] + [y for _, y in curve.each]
    if not arrays or (curve.x is None and not curve.each):
        return None
    values = scaled(np.concatenate(arrays), log)
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else None


@dataclass(frozen=True)
class Leaving:
    """A line as far as it is drawn, and where it leaves the frame: x, and whether above."""

    x: np.ndarray
    y: np.ndarray
    exits: tuple[tuple[float, bool], ...] = ()


def within(
    x: np.ndarray, y: np.ndarray, frame: tuple[float, float], log: bool, x_log: bool = False
) -> Leaving:
    """The line up to where it leaves for good; one that comes back is whole, with its first exits.

    A line leaves for good where it later is further out than the frame is high, and ends outside or grows: it
    is furthest out in its last quarter, and outside for most of that, even if it crosses the frame again.
    """
    place, (low, high) = scaled(y, log), scaled(np.array(frame), log)
    place = np.where(np.isnan(place) & ~np.isnan(y), -np.inf, place)
    over = np.fmax(place - high, low - place)
    out = over > 0
    if not out.any():
        return Leaving(x, y)
    above, across = place > high, scaled(x, x_log)

    def crossing(i: int) -> tuple[float, bool]:
        """Its x at the frame, on the straight line from the point before, and whether above."""
        at, edge = across[i], high if above[i] else low
        if i and math.isfinite(place[i - 1]) and math.isfinite(across[i - 1]):
            share = (edge - place[i - 1]) / (place[i] - place[i - 1])
            at = across[i - 1] + share * (at - across[i - 1])
        return float(10**at if x_log else at), bool(above[i])

    first, furthest = int(out.argmax()), int(np.nanargmax(over))
    stays = bool(out[-1]) or not math.isfinite(y[-1])
    last = 3 * len(x) // 4
    grows = furthest >= last and out[last:].mean() > 0.5
    if over[furthest] > high - low and (stays or grows):
        return Leaving(x[: first + 1], y[: first + 1], (crossing(first),))
    sides = (out & above, out & ~above)
    return Leaving(x, y, tuple(crossing(int(side.argmax())) for side in sides if side.any()))
