"""Claims of a paper, as comparisons between rows: paired differences, and Holm's correction. No torch."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from physml.base.errors import InputError
from physml.report.stats.summary import (
    LEVEL,
    N_FOR_VERDICT,
    Better,
    Spread,
    Values,
    independent,
    summarise,
    t_quantile,
)

ClaimVerdict = Literal[  # behind the first one the gravest comes first
    "holds", "contradicted", "not seen with our settings", "cannot be told apart", "rows not tuned alike"
]
Key = TypeVar("Key")
ALPHA = 1 - LEVEL
DIGITS = 9  # of the greatest value: differences below come from rounding, and must not break ties


@dataclass(frozen=True)
class Gain:
    """By how much one row is better than another, over what is independent of their common runs.

    For new splits of the same graph the variance of the mean is (1/n + n_test/n_train) sd^2 instead of
    sd^2/n, as training sets overlap (Nadeau and Bengio 2003, doi:10.1023/A:1024068626366, section 3).
    """

    n: int  # pairs: splits after averaging over starts, or runs of equal seed
    mean: float  # mean difference, positive where the first row is better
    sd: float | None = None  # standard deviation of the differences, denominator n - 1; None for one pair
    low: float | None = None  # lower end of the 95 % t-interval of the mean, on these splits
    high: float | None = None  # upper end
    new_low: float | None = None  # lower end for new splits of the same graph; None without several splits
    new_high: float | None = None  # upper end

    def p_value(self, margin: float | None = None) -> float | None:
        """P-value of "no difference" (two-sided t-test), or with a margin of "not alike" (two one-sided)."""
        if self.n < N_FOR_VERDICT or self.sd is None:
            return None
        from scipy.special import stdtr

        def below(t: float) -> float:
            return float(stdtr(self.n - 1, t))

        error = self.sd / math.sqrt(self.n)
        if margin is None:
            if error == 0.0:  # a t-test would find any difference: the sign test counts
                return 1.0 if self.mean == 0.0 else 2.0 ** (1 - self.n)
            return 2 * below(-abs(self.mean) / error)
        if error == 0.0:
            return 0.0 if abs(self.mean) <= margin * (1 + 10.0**-DIGITS) else 1.0
        return max(below((self.mean - margin) / error), below((-margin - self.mean) / error))


def p_text(p: float) -> str:
    """`p = 0.03`, or `p < 0.0001`."""
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


def gain(
    first: Values, second: Values, better: Better, spread: Spread = "runs", test_to_train: float | None = None
) -> Gain:
    """The paired difference of two rows, positive where `first` is better.

    Args:
        first: (split, seed) -> value.
        second: The same of the other row; only common runs count.
        better: The direction of the metric.
        spread: "splits": differences are averaged over the starts of a split first.
        test_to_train: Nodes or samples for test over those for training, for the interval over new splits.

    Raises:
        InputError: They share no run.

    Example:
        >>> gain({(0, 0): 1.0, (0, 1): 2.0}, {(0, 0): 2.0, (0, 1): 4.0}, "lower").mean
        1.5
    """
    paired = differences(first, second, better)
    if not paired:
        raise InputError("a paired comparison needs runs of equal split and seed; the two rows share none.")
    summary = summarise(independent(paired, spread), "higher")
    difference = Gain(summary.n, summary.mean, summary.sd, summary.low, summary.high)
    if spread == "runs" or test_to_train is None or summary.sd is None:
        return difference
    half = t_quantile(summary.n - 1) * summary.sd * math.sqrt(1 / summary.n + test_to_train)
    return dataclasses.replace(difference, new_low=summary.mean - half, new_high=summary.mean + half)


def differences(first: Values, second: Values, better: Better) -> Values:
    """Differences of common runs, positive where the first is better; 0 where rounding alone makes them."""
    sign = 1.0 if better == "higher" else -1.0
    common = sorted(first.keys() & second.keys())
    largest = max((max(abs(first[at]), abs(second[at])) for at in common), default=0.0)
    by_run = {at: sign * (first[at] - second[at]) for at in common}
    return {at: 0.0 if abs(value) <= 10.0**-DIGITS * largest else value for at, value in by_run.items()}


def mostly_ahead(gains: Sequence[float]) -> bool:
    """True where so many of the gains are positive as by chance in fewer than 5 % of cases: the sign test.

    Example:
        >>> mostly_ahead([5.2, 0.9, 1.1, 1.2, 1.4]), mostly_ahead([5.2, 0.9, 1.1, 1.2, -0.1])
        (True, False)
    """
    from scipy.special import bdtrc

    apart = [gain > 0 for gain in gains if gain != 0]
    return bool(apart) and float(bdtrc(sum(apart) - 1, len(apart), 0.5)) < ALPHA


def log_ratio(
    first: Values, second: Values, better: Better, spread: Spread = "runs", test_to_train: float | None = None
) -> Gain | None:
    """The paired difference of the logarithms of two rows: how many times `first` is better, as `gain`.

    None where a value of a common run is not positive.

    Example:
        >>> found = log_ratio({(0, 0): 1.0, (0, 1): 2.0}, {(0, 0): 3.0, (0, 1): 6.0}, "lower")
        >>> round(math.exp(found.mean), 6)
        3.0
    """
    if any(row[at] <= 0 for row in (first, second) for at in first.keys() & second.keys()):
        return None
    ours, theirs = ({at: math.log(value) for at, value in row.items()} for row in (first, second))
    return gain(ours, theirs, better, spread, test_to_train)


def less(difference: Gain, amount: float) -> Gain:
    """A gain less an amount that is claimed: positive where the gain is more."""
    ends = {name: getattr(difference, name) for name in ("mean", "low", "high", "new_low", "new_high")}
    shifted = {name: end - amount for name, end in ends.items() if end is not None}
    return dataclasses.replace(difference, **shifted)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """p-values adjusted for being several: reject at alpha where the adjusted one is below (Holm 1979).

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for rank, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[key] = largest
    return adjusted


def order_verdict(difference: Gain, p: float | None, settled: bool) -> ClaimVerdict | None:
    """Verdict on "first beats second"; None below three pairs.

    Args:
        p: Its p-value, adjusted for all comparisons of the table.
        settled: Both rows have published settings, or those of the official code. Else a reversed order says
            something of our search, not of the paper.
    """
    if p is None:
        return None
    if p >= ALPHA:
        return "cannot be told apart"
    if difference.mean > 0:
        return "holds"
    return "contradicted" if settled else "not seen with our settings"


def tie_verdict(
    difference: Gain, p: float | None, margin: float, settled: bool, comparisons: int = 1
) -> ClaimVerdict | None:
    """Verdict on "first and second are alike", by the p-value of two one-sided tests.

    Args:
        p: Its p-value, adjusted for all comparisons of the table.
        comparisons: Their number: "unlike by more than the margin" is tested at 5 % / comparisons.
    """
    if p is None:
        return None
    if p < ALPHA:
        return "holds"
    if unlike_p(difference, margin, comparisons) < ALPHA:
        return "contradicted" if settled else "not seen with our settings"
    return "cannot be told apart"


def unlike_p(difference: Gain, margin: float, comparisons: int = 1) -> float:
    """The p-value of "unlike by no more than the margin", corrected for all comparisons (Bonferroni)."""
    if abs(difference.mean) <= margin * (1 + 10.0**-DIGITS):
        return 1.0
    p = less(difference, math.copysign(margin, difference.mean)).p_value()
    return 1.0 if p is None else min(1.0, p * comparisons)


def all_verdict(parts: Sequence[ClaimVerdict | None]) -> ClaimVerdict | None:
    """The verdict on a claim of several parts: it holds if all do; else the gravest part speaks."""
    if not parts or None in parts:
        return "contradicted" if "contradicted" in parts else None
    return next((verdict for verdict in get_args(ClaimVerdict)[1:] if verdict in parts), "holds")
