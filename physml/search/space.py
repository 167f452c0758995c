"""The ranges that a search draws from, and when a bound of one is widened."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from physml.base.check import is_number
from physml.base.errors import InputError
from physml.config.load import structure

NEAR = 0.05  # of the range: a best value as close as this to a bound is on it
STEP = 1 / 3  # of the range, on its scale: how far a bound moves out

Side = Literal["low", "high"]


@dataclass(frozen=True)
class Range:
    """Uniform, or log-uniform, between low and high.

    hard: the bounds that are never passed, since the equation sets them; null where there is none.
    """

    low: float
    high: float
    log: bool = False
    hard: tuple[float | None, float | None] = (None, None)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise InputError(f"low must not be above high; got {self.low} and {self.high}.")
        if self.log and self.low <= 0:
            raise InputError(f"low must be positive for a logarithmic range; got {self.low}.")
        low, high = self.hard
        if (low is not None and self.low < low) or (high is not None and self.high > high):
            raise InputError(f"low and high must lie within hard, {list(self.hard)}.")

    def near(self, value: float) -> Side | None:
        """The bound that a value is on, to a twentieth of the range on its scale.

        Example:
            >>> Range(0.001, 0.1, log=True).near(0.09), Range(0.0, 1.0).near(0.5)
            ('high', None)
        """
        if self.low == self.high:
            return None
        at, low, high = (math.log(x) if self.log else x for x in (value, self.low, self.high))
        part = (at - low) / (high - low)
        return "low" if part <= NEAR else "high" if part >= 1 - NEAR else None

    def beyond(self, side: Side) -> float:
        """New value of a bound that is widened: out by a third of the range on its scale, within `hard`.

        Of three digits, or of more where three would not move it out.

        Example:
            >>> Range(0.001, 0.1, log=True).beyond("high"), Range(0.0, 0.9, hard=(0.0, 1.0)).beyond("high")
            (0.464, 1.0)
        """
        sign = 1 if side == "high" else -1
        bound = getattr(self, side)
        moved = bound + sign * STEP * (self.high - self.low)
        if self.log:
            moved = bound * (self.high / self.low) ** (sign * STEP)
        rounded = (float(f"{moved:.{digits}g}") for digits in range(3, 18))
        moved = next((value for value in rounded if sign * (value - bound) > 0), moved)
        low, high = self.hard
        if side == "low":
            return moved if low is None else max(moved, low)
        return moved if high is None else min(moved, high)


@dataclass(frozen=True)
class Bound:
    """A best value on a bound. widened: where the bound has moved; None: it stays, for the reason given."""

    key: str
    side: Side
    value: Any
    bound: Any
    widened: float | None
    reason: str | None = None

    def __str__(self) -> str:
        what = f"{self.key} {self.value:.3g} at the {self.side} bound {self.bound:.3g}"
        if self.widened is not None:
            return f"{what}, moved to {self.widened:.3g}"
        return f"{what}, which stays: {self.reason}"


def range_of(space: dict[str, Any], key: str, where: str = "space") -> Range | None:
    """The range of `key`, or None if it is a list of choices."""
    value = space[key]
    return None if isinstance(value, list) else structure(Range, value, f"{where}: {key}")


def bounds(space: dict[str, Any], point: dict[str, Any]) -> list[Bound]:
    """The values of a point that are on a bound of their range, or at an end of a list of numbers.

    Ends of lists stay: the next value is a decision of a person.
    """
    on_bound = []
    for key, value in point.items():
        if span := range_of(space, key):
            if side := span.near(value):
                bound, beyond = getattr(span, side), span.beyond(side)
                stays = "the equation sets it" if beyond == bound else None
                on_bound.append(Bound(key, side, value, bound, None if stays else beyond, stays))
            continue
        offered = space[key]
        numbers = list(filter(is_number, offered))
        if len(numbers) == len(offered) > 2 and value in (min(numbers), max(numbers)):
            side = "low" if value == min(numbers) else "high"
            on_bound.append(Bound(key, side, value, value, None, "it is the end of a list"))
    return on_bound


def widened(space: dict[str, Any], on_bound: list[Bound]) -> dict[str, Any]:
    """The space with the bounds moved."""
    moved = dict(space)
    for bound in on_bound:
        if bound.widened is not None:
            moved[bound.key] = moved[bound.key] | {bound.side: bound.widened}
    return moved
