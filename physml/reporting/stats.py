"""Numbers over runs, and verdicts: arithmetic only. No torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from physml.check import non_negative, one_of, within
from physml.errors import InputError

Better = Literal["lower", "higher"]
Statistic = Literal["mean", "best", "unknown"]
Spread = Literal["runs", "splits"]
Verdict = Literal["agrees", "better", "worse", "inconclusive"]
ClaimVerdict = Literal["holds", "contradicted", "inconclusive"]

N_FOR_VERDICT = 3  # below, the t-interval is wider than anything it could be held against
LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """Statistics of one number over n runs.

    `sd` has n - 1 in its denominator and is None for a single run, as is the interval. `low` and `high`
    bound the 95 % t-interval of the mean: mean ± t_{0.975, n-1} sd / sqrt(n).
    """

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    best: float

    @property
    def half_width(self) -> float | None:
        return None if self.low is None else self.mean - self.low


@dataclass(frozen=True)
class Published:
    """A printed number, in the unit of its column.

    Args:
        value: as printed.
        digits: number of digits after the point.
        sd: as printed, else None.
        n: as printed, else None.
        statistic: the kind of number according to the paper.
        source: where it was read, if not in the source of the table.
    """

    value: float
    digits: int | None = None
    sd: float | None = None
    n: int | None = None
    statistic: Statistic = "unknown"
    source: str | None = None
    trust: str | None = None
    quoted: str | None = None  # the work it was taken from, if the paper did not run it

    def __post_init__(self) -> None:
        one_of("statistic", self.statistic, ("mean", "best", "unknown"))
        if self.digits is not None and round(self.value, self.digits) != self.value:
            raise InputError(f"value {self.value} has more than digits={self.digits} digits after the point.")
        if self.sd is not None:
            non_negative("sd", self.sd)
        if self.n is not None and self.n < 1:
            raise InputError(f"n must be at least 1; got {self.n}.")


def t_quantile(n: int, level: float = LEVEL) -> float:
    """The factor of sd / sqrt(n) in the two-sided t-interval of a mean of n values."""
    within("level", level, 0.0, 1.0)
    if n < 2:
        raise InputError(f"an interval needs at least 2 values; got {n}.")
    from scipy.special import stdtrit  # 0.1 s of import that `physml --help` should not pay

    return float(stdtrit(n - 1, 0.5 + level / 2))


def summarise(values: Sequence[float], better: Better, level: float = LEVEL) -> Summary:
    """Mean, sd, t-interval and best of the values of n runs.

    Raises InputError without values, or if one is not finite: a diverged run has no place in a mean.

    Example:
        >>> s = summarise([1.0, 2.0, 3.0], "lower")
        >>> s.mean, s.sd, s.best, round(s.half_width, 3)
        (2.0, 1.0, 1.0, 2.484)
    """
    one_of("better", better, ("lower", "higher"))
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
    half = t_quantile(n, level) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half, best)


def summarise_runs(values: dict[tuple[int, int], float], better: Better, spread: Spread = "runs") -> Summary:
    """A summary of runs (split, seed) -> value.

    spread "runs": over all runs alike. "splits": the value of a split is its mean over seeds; mean, sd, n
    and interval are those of these means over splits, the best is still that of a single run.

    Example:
        >>> s = summarise_runs({(0, 0): 1.0, (0, 1): 3.0, (1, 0): 4.0, (1, 1): 6.0}, "lower", "splits")
        >>> s.n, s.mean, round(s.sd, 4), s.best
        (2, 3.5, 2.1213, 1.0)
    """
    one_of("spread", spread, ("runs", "splits"))
    ordered = [values[key] for key in sorted(values)]
    if spread == "runs" or not values:
        return summarise(ordered, better)
    by_split: dict[int, list[float]] = {}
    for split, seed in sorted(values):
        by_split.setdefault(split, []).append(values[split, seed])
    over = summarise([math.fsum(v) / len(v) for v in by_split.values()], better)
    best = min(ordered) if better == "lower" else max(ordered)
    return Summary(over.n, over.mean, over.sd, over.low, over.high, best)


def tolerance(published: Published, margin: float = 0.0, relative_margin: float = 0.0) -> float:
    """The distance from the printed value that still counts as equal, in its unit.

    Half the last printed digit, plus the paper's own 95 % t-interval where it prints sd and n, else plus the
    margin declared for the metric: `margin`, or `relative_margin` times the printed value.

    Example:
        >>> round(tolerance(Published(1.2, digits=1), relative_margin=0.1), 3)
        0.17
        >>> round(tolerance(Published(92.3, digits=1, sd=1.8, n=5)), 3)
        2.285
    """
    non_negative("margin", margin)
    non_negative("relative_margin", relative_margin)
    rounding = 0.0 if published.digits is None else 0.5 * 10.0**-published.digits
    if published.sd is not None and published.n is not None and published.n >= 2:
        return rounding + t_quantile(published.n) * published.sd / math.sqrt(published.n)
    return rounding + margin + relative_margin * abs(published.value)


def verdict(ours: Summary, published: Published, tol: float, better: Better) -> Verdict | None:
    """Our 95 % interval against published ± tol.

    agrees: our interval lies inside; better, worse: it lies outside, on that side; else inconclusive.
    None below three runs. A published best of n is held against our best, which the caller must have
    taken of as many runs: a best has no interval, so it agrees or it does not.
    """
    one_of("better", better, ("lower", "higher"))
    if ours.n < N_FOR_VERDICT or ours.low is None or ours.high is None:
        return None
    low, high = (ours.best, ours.best) if published.statistic == "best" else (ours.low, ours.high)
    floor, ceiling = published.value - tol, published.value + tol
    slack = 1e-9 * max(abs(floor), abs(ceiling), 1e-300)  # 0.2 + 0.05 must hold 0.25
    if floor - slack <= low and high <= ceiling + slack:
        return "agrees"
    if high < floor:
        return "better" if better == "lower" else "worse"
    if low > ceiling:
        return "worse" if better == "lower" else "better"
    return "inconclusive"


def paired(
    first: dict[tuple[int, int], float], second: dict[tuple[int, int], float], better: Better
) -> Summary:
    """By how much `first` is better than `second`, over the runs (split, seed) that both have.

    Positive is better, whatever the direction of the metric.
    Raises InputError if they share no run.
    """
    one_of("better", better, ("lower", "higher"))
    sign = 1.0 if better == "higher" else -1.0
    common = sorted(first.keys() & second.keys())
    if not common:
        raise InputError(
            "a paired comparison needs runs of the same split and seed; the two rows share none."
        )
    return summarise([sign * (first[key] - second[key]) for key in common], "higher")


def order_verdict(gain: Summary) -> ClaimVerdict | None:
    """Whether "first beats second" holds: the interval of the paired gain against 0. None below n = 3."""
    if gain.n < N_FOR_VERDICT or gain.low is None or gain.high is None:
        return None
    if gain.low > 0:
        return "holds"
    return "contradicted" if gain.high < 0 else "inconclusive"


def tie_verdict(gain: Summary, margin: float) -> ClaimVerdict | None:
    """Whether "first and second are alike" holds: the interval of the paired gain against ± margin.

    holds: it lies inside; contradicted: outside; else inconclusive. None below n = 3.
    """
    non_negative("margin", margin)
    if gain.n < N_FOR_VERDICT or gain.low is None or gain.high is None:
        return None
    if -margin <= gain.low and gain.high <= margin:
        return "holds"
    return "contradicted" if gain.low > margin or gain.high < -margin else "inconclusive"


def all_verdict(parts: Sequence[ClaimVerdict | None]) -> ClaimVerdict | None:
    """The verdict on a claim of several parts: it holds if all do, and falls if one is contradicted."""
    if "contradicted" in parts:
        return "contradicted"
    if not parts or None in parts:
        return None
    return "holds" if all(part == "holds" for part in parts) else "inconclusive"
