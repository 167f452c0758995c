"""Our runs held against a printed number: a difference with its interval, and what came out. No torch.

delta = quality of ours - quality of theirs, in the column's unit and positive where ours is better. A
printed number is read in every way that the paper leaves open (`readings`); each reading gives an interval of
delta, and an outcome by two rules:

- `agrees`: the 90 % interval lies within ± (margin + half the last printed digit), two one-sided tests;
- `better`, `worse`: it does not, and the 95 % interval, widened by half that digit, leaves out 0;
- else `cannot be told apart`.

Outcomes that differ between the readings give `not decidable`. How often each comes out when the truth is
known: docs/verdicts.md, recomputed by tests/report/stats/test_error_rates.py.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from physml.base.check import non_negative
from physml.base.errors import InputError
from physml.records.searches import SearchSpread
from physml.report.stats.summary import N_FOR_VERDICT, Better, Published, Summary, t_quantile

Outcome = Literal["agrees", "better", "worse", "cannot be told apart", "not decidable"]

Offsets = Callable[[float], tuple[float, float]]  # level -> ends of an interval, less the estimate
LEVELS = (0.95, 0.90)  # of the interval of delta, and of the one that must lie within the margin
BEST_OF = (5, 10)  # how many runs a best is taken to be of, where the paper does not say
FEWEST_WITH_SD = 3  # runs behind a printed mean ± sd, where the paper does not say


@dataclass(frozen=True)
class Margin:
    """How far apart two results may be and still count as the same: the sum of what is given."""

    value: float = 0.0  # in the unit of the column
    relative: float = 0.0  # as a part of the printed value
    sds: float = 0.0  # in printed standard deviations; nothing where none is printed
    reason: str = ""  # why so much, in a few words

    def __post_init__(self) -> None:
        for name in ("value", "relative", "sds"):
            non_negative(f"margin: {name}", getattr(self, name))
        if (self.value or self.relative or self.sds) and not self.reason:
            raise InputError("margin: reason must say why so much; got none.")

    def of(self, published: Published) -> float:
        return self.value + self.relative * abs(published.value) + self.sds * (published.sample_sd or 0.0)


@dataclass(frozen=True)
class Reading:
    """One way to read a printed number, and what follows."""

    assumption: str  # `mean of 10`, `best of 5`
    low: float  # lower end of the 95 % interval of delta
    high: float  # upper end
    outcome: Outcome  # as above


@dataclass(frozen=True)
class Comparison:
    """delta, in the unit of the column and positive where ours is better, with all readings."""

    delta: float
    readings: tuple[Reading, ...]

    @property
    def outcome(self) -> Outcome:
        outcomes = {reading.outcome for reading in self.readings}
        return outcomes.pop() if len(outcomes) == 1 else "not decidable"


def compare(
    ours: Summary, published: Published, margin: float, better: Better, search: SearchSpread | None = None
) -> Comparison | None:
    """Ours against a printed number, by every reading of it. None below three runs.

    Args:
        ours: Summary of what is independent: runs, or means over the starts of a split.
        margin: Equivalence margin, in the unit of the column; 0 if none is declared, then nothing agrees.
        search: Final scores, in the column's unit, of repeats of the search that found our settings. Their
            spread widens each interval: another search would have found other settings.

    Example:
        >>> ours = Summary(n=5, mean=92.0, sd=0.5, low=91.4, high=92.6, best=92.8)
        >>> compare(ours, Published(92.1, digits=1, sd=0.6, n=5, statistic="mean"), 1.0, "higher").outcome
        'agrees'
        >>> compare(ours, Published(99.0, digits=1), 1.0, "higher").outcome
        'worse'
    """
    if ours.n < N_FOR_VERDICT or ours.sd is None:
        return None
    delta = (ours.mean - published.value) * (1.0 if better == "higher" else -1.0)
    rounding = 0.0 if published.digits is None else 0.5 * 10.0**-published.digits
    readings = []
    for assumption, offsets in _readings(ours, published):
        ends = []
        for level in LEVELS:
            half = t_quantile(len(search.values) - 1, level) * search.sd if search else 0.0
            below, above = offsets(level)
            ends.append((delta + (below - half), delta + (above + half)))
        (low, high), inner = ends
        outcome = _outcome(low - rounding, high + rounding, inner, margin and margin + rounding)
        readings.append(Reading(assumption, low - rounding, high + rounding, outcome))
    return Comparison(delta, tuple(readings))


def _outcome(low: float, high: float, inner: tuple[float, float], margin: float) -> Outcome:
    most = (1 + 1e-9) * margin  # 0.2 + 0.05 must hold 0.25
    if margin and -most <= inner[0] and inner[1] <= most:
        return "agrees"
    return "better" if low > 0 else "worse" if high < 0 else "cannot be told apart"


def _readings(ours: Summary, published: Published) -> Iterator[tuple[str, Offsets]]:
    """Each reading of a printed number, with the ends of delta's interval at a level, less the estimate."""
    n, sd, theirs = ours.n, ours.sd or 0.0, published.sample_sd
    k = published.independent or published.n or (1 if theirs is None else FEWEST_WITH_SD)
    if published.statistic != "best" and theirs is not None:
        known = f"mean of {k}" if published.n else f"mean of at least {k}"
        yield known, functools.partial(_welch, sd / math.sqrt(n), n - 1, theirs / math.sqrt(k), k - 1)
    elif published.statistic != "best":
        known = f"mean of {k}, spread as ours" if published.n else "mean of any number, spread as ours"
        yield known, functools.partial(_equal_spread, sd, n, k)
    if published.statistic == "best" or (published.statistic != "mean" and published.sd is None):
        for k in (published.n,) if published.n else BEST_OF:
            yield f"best of {k}, spread as ours", functools.partial(_best_of, sd, n, k)


def _welch(se: float, df: int, se_printed: float, df_printed: int, level: float) -> tuple[float, float]:
    """Welch's interval from the standard errors and degrees of freedom of both sides.

    With at most the degrees of freedom of two samples of the smaller size. Else equal methods are told apart
    in 7.5 % of cases at n = 3 against 20, at a level of 95 %; so in 5.4 %.
    """
    both = se**2 + se_printed**2
    if both == 0.0 or df_printed < 1:
        return (0.0, 0.0) if both == 0.0 else (-math.inf, math.inf)
    welch = both**2 / (se**4 / df + se_printed**4 / df_printed)
    half = t_quantile(min(welch, 2 * min(df, df_printed)), level) * math.sqrt(both)
    return -half, half


def _equal_spread(sd: float, n: int, k: int, level: float) -> tuple[float, float]:
    """A mean of k runs of the same spread as ours: t with n - 1 degrees of freedom."""
    half = t_quantile(n - 1, level) * sd * math.sqrt(1 / n + 1 / k)
    return -half, half


def _best_of(sd: float, n: int, k: int, level: float) -> tuple[float, float]:
    """The best of k runs of the same spread as ours, by the pivot T = (print - our mean) / our sd.

    With delta = 0 the law of T (in the direction of better) is free of mean and spread, so
    delta = sd T - (print - our mean), and the interval's ends are sd times T's quantiles.
    """
    tail = (1 - level) / 2
    return sd * best_quantile(n, k, tail), sd * best_quantile(n, k, 1 - tail)


@functools.lru_cache(maxsize=256)
def best_quantile(n: int, k: int, p: float) -> float:
    """The p-quantile of (M - x) / s: M the best of k, x and s mean and sd of n others, all standard normal.

    P(T <= t) = E Phi(x + t s)^k: x ~ N(0, 1/n) by Gauss-Hermite; s^2 (n - 1) ~ chi^2, by Gauss-Legendre over
    its quantiles.

    Example:
        >>> round(best_quantile(10, 1, 0.975), 2)  # one more run: t_{0.975, 9} sqrt(1 + 1/10)
        2.37
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import chdtri, ndtr

    x, over_x = np.polynomial.hermite_e.hermegauss(24)
    u, over_u = np.polynomial.legendre.leggauss(64)
    x, over_x, over_u = x[:, None] / math.sqrt(n), over_x / over_x.sum(), over_u / 2
    s = np.sqrt(chdtri(n - 1, (u + 1) / 2) / (n - 1))

    def excess(t: float) -> float:
        return float(over_x @ ndtr(x + t * s) ** k @ over_u) - p

    return float(brentq(excess, -200.0, 200.0, xtol=1e-6))
