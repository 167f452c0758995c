"""Numbers over runs and numbers as printed. No torch."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from physml.base.check import non_negative
from physml.base.errors import InputError

Better = Literal["lower", "higher"]
Statistic = Literal["mean", "best", "unknown"]
Spread = Literal["runs", "splits"]
Values = dict[tuple[int, int], float]  # (split, seed) -> the value of a run
Bounds = tuple[float, float]

N_FOR_VERDICT = 3  # below, an interval is wider than anything it could be held against
LEVEL = 0.95
FEWEST_OF_GROUPS, GAP = 5, 4  # of `two_groups`: values, and how wide the gap is beside them


@dataclass(frozen=True)
class Summary:
    """One number over n runs, or over n means of runs."""

    n: int  # how many
    mean: float  # their mean
    sd: float | None  # standard deviation, denominator n - 1; None for a single run
    low: float | None  # of the 95 % t-interval mean ± t_{0.975, n-1} sd / sqrt(n); None for a single run
    high: float | None  # upper end
    best: float  # the best single run


@dataclass(frozen=True)
class Published:
    """A printed number, in the unit of its column."""

    value: float  # as printed
    digits: int | None = None  # how many digits stand after the point
    sd: float | None = None  # as printed
    n: int | None = None  # how many runs it is over, as printed
    independent: int | None = None  # how many are, if not all: 5 splits of 20 starts each have 5
    sd_denominator: Literal["n - 1", "n"] = "n - 1"  # below the root; n is `numpy.std` without ddof
    statistic: Statistic = "unknown"  # what the paper says the number is
    source: str | None = None  # where it was read, if elsewhere than the table's
    quoted: str | None = None  # the work it was taken from, if the paper did not run it

    def __post_init__(self) -> None:
        if self.digits is not None and round(self.value, self.digits) != self.value:
            raise InputError(f"value {self.value} has more than digits={self.digits} digits after the point.")
        if self.sd is not None:
            non_negative("sd", self.sd)
        for name, number in (("n", self.n), ("independent", self.independent)):
            if number is not None and number < 1:
                raise InputError(f"{name} must be at least 1; got {number}.")

    @property
    def sample_sd(self) -> float | None:
        """The printed sd with n - 1 in its denominator; as printed where n is unknown or 1."""
        if self.sd is None or self.sd_denominator == "n - 1" or self.n is None or self.n < 2:
            return self.sd
        return self.sd * math.sqrt(self.n / (self.n - 1))


@functools.lru_cache(maxsize=4096)
def t_quantile(df: float, level: float = LEVEL) -> float:
    """The factor of the standard error in a two-sided t-interval with df degrees of freedom."""
    from scipy.special import stdtrit  # 0.1 s of import that `physml --help` should not pay

    return float(stdtrit(df, 0.5 + level / 2))


def summarise(values: Sequence[float], better: Better, bounds: Bounds = (-math.inf, math.inf)) -> Summary:
    """Mean, sd, t-interval and best of the values of n runs.

    Args:
        bounds: Values that are possible at all; the interval is cut there.

    Raises:
        InputError: There is no value, or one is not finite: a diverged run has no place in a mean.

    Example:
        >>> s = summarise([1.0, 2.0, 3.0], "lower")
        >>> s.mean, s.sd, s.best, round(s.high, 3)
        (2.0, 1.0, 1.0, 4.484)
    """
    if not values:
        raise InputError("a summary needs at least one value; got none.")
    if bad := [v for v in values if not math.isfinite(v)]:
        raise InputError(f"values must be finite; got {bad[0]}. A diverged run has no place in a mean.")
    n = len(values)
    mean = math.fsum(values) / n
    best = min(values) if better == "lower" else max(values)
    if n == 1:
        return Summary(1, mean, None, None, None, best)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    sd = sd if sd > 1e-9 * max(map(abs, values)) else 0.0  # runs apart by rounding alone have no spread
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    return Summary(n, mean, sd, max(bounds[0], mean - half), min(bounds[1], mean + half), best)


def independent(values: Values, spread: Spread) -> list[float]:
    """The values of runs, or of each split the mean over its starts, in the order of splits and seeds."""
    if spread == "runs":
        return [values[at] for at in sorted(values)]
    return [math.fsum(starts) / len(starts) for starts in _starts(values)]


def two_groups(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """The lower and the higher of at least five values, where their mean is near none of them.

    The gap between is four times as wide as either group, as in 3 % of five normal values and 0 % of ten, and
    a quarter of the largest size.

    Example:
        >>> two_groups([0.3, 8.8, 0.2, 0.4, 0.3])
        ([0.2, 0.3, 0.3, 0.4], [8.8])
    """
    ordered = sorted(values)
    if len(ordered) < FEWEST_OF_GROUPS:
        return None
    gap, i = max((b - a, i) for i, (a, b) in enumerate(itertools.pairwise(ordered), 1))
    low, high = ordered[:i], ordered[i:]
    widest = max(low[-1] - low[0], high[-1] - high[0])
    return (low, high) if gap > max(GAP * widest, 0.25 * max(map(abs, ordered))) else None


def _starts(values: Values) -> list[list[float]]:
    """The values of each split, in the order of splits and seeds."""
    by_number: dict[int, list[float]] = {}
    for split, seed in sorted(values):
        by_number.setdefault(split, []).append(values[split, seed])
    return list(by_number.values())


def summarise_runs(
    values: Values, better: Better, spread: Spread = "runs", bounds: Bounds = (-math.inf, math.inf)
) -> Summary:
    """A summary of runs (split, seed) -> value.

    spread "runs": over all runs alike. "splits": the value of a split is its mean over starts; mean, sd, n
    and interval are those of these means over splits, the best is still that of a single run.

    Example:
        >>> s = summarise_runs({(0, 0): 1.0, (0, 1): 3.0, (1, 0): 4.0, (1, 1): 6.0}, "lower", "splits")
        >>> s.n, s.mean, round(s.sd, 4), s.best
        (2, 3.5, 2.1213, 1.0)
    """
    best = summarise(list(values.values()), better).best
    return dataclasses.replace(summarise(independent(values, spread), better, bounds), best=best)


def within_splits(values: Values) -> tuple[float, float] | None:
    """The 95 % interval of the mean on just these splits: only starts are random. None with a start a split.

    The standard error is sqrt(sum_j s_j^2 / K_j) / J for J splits of K_j starts; the degrees of freedom are
    sum_j (K_j - 1).
    """
    starts = _starts(values)
    df = len(values) - len(starts)
    if not starts or any(len(of_split) < 2 for of_split in starts):
        return None
    parts = [summarise(of_split, "higher") for of_split in starts]
    error = math.sqrt(math.fsum((p.sd or 0.0) ** 2 / p.n for p in parts)) / len(parts)
    mean, half = math.fsum(p.mean for p in parts) / len(parts), t_quantile(df) * error
    return mean - half, mean + half
