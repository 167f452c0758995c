"""Two rows compared by their runs of equal split and seed. No torch, no hydra.

The pairs are splits, after averaging over the starts of each, or runs of equal seed. `claims.gain` gives mean
difference and intervals; here stand the effect size, two tests, and how many pairs a decision would need.
"""

import bisect
import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from physml.base.errors import ConfigError, InputError, suggest
from physml.records.schema import scores_of
from physml.report.stats.claims import ALPHA, DIGITS, Gain, differences, gain, holm
from physml.report.stats.summary import N_FOR_VERDICT, Better, Spread, Values, independent, t_quantile
from physml.report.table.runs import Runs, incomparable
from physml.report.table.spec import Cell, Column, direction

Protocol = Literal["official", "paper", "clean"]
RowVerdict = Literal["first better", "second better", "equal", "cannot be told apart", "too few pairs"]
POWER = 0.8
MOST = 1000  # further pairs; more are called hopeless
NEVER = ("other protocol", "different data")  # no comparison at all; other reasons are caveats
SUBSTITUTE = "substitute data"  # for one row alone
FAR = 6.0  # noncentrality from which a significant difference of the wrong sign is rarer than 1e-9
CERTAIN = 30.0  # noncentrality beside which the mean varies little; SciPy's distribution is nan from 37 on


@dataclass(frozen=True)
class Pair:
    """Two runs of equal split and seed. difference: positive where the first is better."""

    split: int
    seed: int
    first: float
    second: float
    difference: float


@dataclass(frozen=True)
class RowComparison:
    """Two rows in one column."""

    column: Column  # which number of the runs
    pairs: tuple[Pair, ...]  # the common runs, by split and seed
    over: Spread  # what is independent, and counts: "splits" or "runs"
    first: float  # mean of the first row over what counts
    second: float  # mean of the second row
    gain: Gain  # the paired difference, positive where the first row is better
    d_z: float | None  # effect size, mean / sd of the differences; infinite where all are equal and not 0
    p: float | None  # p-value of the paired t-test, two-sided; None below three pairs
    p_wilcoxon: float | None  # p-value of Wilcoxon's signed-rank test, two-sided; None below three pairs
    p_adjusted: float | None = None  # p, corrected for all columns that are compared (Holm)
    needed: int | None = None  # pairs in all that would decide; None where it is decided, or not to be said
    caveats: tuple[str, ...] = ()  # why the rows may differ in more than themselves

    @property
    def verdict(self) -> RowVerdict:
        """By the corrected p-value of the t-test, at 5 %."""
        if self.p_adjusted is None:
            return "too few pairs"
        if all(pair.difference == 0.0 for pair in self.pairs):
            return "equal"
        if self.p_adjusted >= ALPHA:
            return "cannot be told apart"
        return "first better" if self.gain.mean > 0 else "second better"

    @property
    def more(self) -> int | None:
        """How many more pairs would decide; above `MOST`, it is hopeless."""
        return None if self.needed is None else self.needed - self.gain.n


def compare_values(
    column: Column, first: Values, second: Values, spread: Spread = "runs", test_to_train: float | None = None
) -> RowComparison:
    """Two rows in one column, not yet corrected for other columns. Arguments as of `claims.gain`."""
    by_run = differences(first, second, column.better)
    difference = gain(first, second, column.better, spread, test_to_train)
    ours, theirs = (independent({at: row[at] for at in by_run}, spread) for row in (first, second))
    return RowComparison(
        column=column,
        pairs=tuple(Pair(*at, first[at], second[at], value) for at, value in by_run.items()),
        over=spread,
        first=math.fsum(ours) / len(ours),
        second=math.fsum(theirs) / len(theirs),
        gain=difference,
        d_z=effect_size(difference),
        p=difference.p_value(),
        p_wilcoxon=wilcoxon_p(independent(by_run, spread)),
        p_adjusted=difference.p_value(),
    )


def corrected(comparisons: Sequence[RowComparison]) -> list[RowComparison]:
    """p-values corrected for all columns (Holm), and the pairs that a decision needs at 5 % for all of them.

    The latter are for the first step of Holm's test, at 5 % / (number of columns): an undecided column then
    never has enough pairs already.
    """
    raw = {comparison.column.key: comparison.p for comparison in comparisons if comparison.p is not None}
    adjusted = holm(raw)
    rows = [
        dataclasses.replace(comparison, p_adjusted=adjusted.get(comparison.column.key))
        for comparison in comparisons
    ]
    for k, comparison in enumerate(rows):
        if comparison.verdict == "cannot be told apart" and comparison.d_z is not None:
            needed = pairs_needed(comparison.d_z, ALPHA / len(raw), most=comparison.gain.n + MOST)
            rows[k] = dataclasses.replace(comparison, needed=needed)
    return rows


# --- statistics


def effect_size(difference: Gain) -> float | None:
    """Cohen's d of paired differences, d_z = mean / sd; None for one pair."""
    if difference.sd is None:
        return None
    if difference.sd == 0.0:
        return 0.0 if difference.mean == 0.0 else math.copysign(math.inf, difference.mean)
    return difference.mean / difference.sd


def wilcoxon_p(differences: Sequence[float]) -> float | None:
    """Wilcoxon's signed-rank test, two-sided: are positive differences as large as negative ones?

    Zeros are left out. The p-value is exact up to 50 pairs, or up to 13 where sizes are tied; else by the
    normal approximation. None below three pairs; 1 where all differences are 0.

    Example:
        >>> wilcoxon_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])  # 2 of 2^6 sets of signs are as extreme
        0.03125
    """
    import numpy as np
    from scipy.stats import wilcoxon

    if len(differences) < N_FOR_VERDICT:
        return None
    sizes = np.asarray(differences, float)
    sizes = sizes[sizes != 0.0]
    if not len(sizes):
        return 1.0
    sizes = np.round(sizes / np.abs(sizes).max(), DIGITS)  # 2.7 and 2.7000000000001 are tied
    return float(wilcoxon(sizes).pvalue)


def power_of(n: int, d_z: float, alpha: float = ALPHA) -> float:
    """How often a two-sided paired t-test of n pairs finds an effect d_z: by the noncentral t distribution.

    With noncentrality d_z sqrt(n) and n - 1 degrees of freedom, 1 - F(t) + F(-t) for the t-test's own t.

    Example:
        >>> round(power_of(34, 0.5), 2)  # the textbook's 34 pairs for a medium effect
        0.81
    """
    from scipy.special import chdtrc, nctdtr

    if n < 2:
        raise InputError(f"a paired t-test needs at least 2 pairs; got {n}.")
    if math.isinf(d_z):  # equal differences: the sign test
        return float(2.0 ** (1 - n) < alpha)
    t, shift = t_quantile(n - 1, 1 - alpha), abs(d_z) * math.sqrt(n)
    if shift > CERTAIN:  # missed where the sd, by a chi-square law, is drawn too large
        return float(1 - chdtrc(n - 1, (n - 1) * (shift / t) ** 2))
    wrong_sign = nctdtr(n - 1, shift, -t) if shift < FAR else 0.0
    return float(1 - nctdtr(n - 1, shift, t) + wrong_sign)


def pairs_needed(d_z: float, alpha: float = ALPHA, most: int = MOST) -> int:
    """The least number of pairs that finds an effect d_z with the power `POWER`; `most` + 1 if none does.

    Example:
        >>> pairs_needed(0.5), pairs_needed(0.0)
        (34, 1001)
    """
    sizes = range(N_FOR_VERDICT, most + 1)  # power grows with n
    return N_FOR_VERDICT + bisect.bisect_left(sizes, True, key=lambda n: power_of(n, d_z, alpha) >= POWER)


# --- records


@dataclass(frozen=True)
class Side:
    """One of the two rows: its name, and its records."""

    label: str
    runs: Runs


def spread_of(*sides: Side) -> Spread:
    """`splits` where the runs of two experiments have several, else `runs`: what is independent."""
    splits = {split for side in sides for split, _ in side.runs.finished}
    return "splits" if len(splits) > 1 else "runs"


def compare_runs(
    column: Column, first: Side, second: Side, spread: Spread, cells: tuple[Cell, Cell] = (Cell(), Cell())
) -> RowComparison | str:
    """Two rows in one column, or why they cannot be compared there."""
    ours, theirs = first.runs.values(column), second.runs.values(column)
    for side, values in ((first, ours), (second, theirs)):
        if not values:
            stale = f" ({side.runs.stale} of other settings than today's)" if side.runs.stale else ""
            return f"{side.label} has no finished run with {column.metric}{stale}"
    if not ours.keys() & theirs.keys():
        return (
            f"they share no run of equal split and seed: {first.label} has {_which(ours)}; "
            f"{second.label} has {_which(theirs)}"
        )
    caveats, lost = {}, []
    for side, cell in zip((first, second), cells, strict=True):
        if reason := incomparable(column, cell, side.runs):
            caveats[side.label] = reason
        if diverged := side.runs.diverged:
            lost.append(f"{side.label}: {diverged} of {len(side.runs.places)} runs diverged and are left out")
    for label, reason in caveats.items():
        if reason in NEVER or (reason == SUBSTITUTE and list(caveats.values()) != [SUBSTITUTE] * 2):
            return f"{label} has {reason}"
    comparison = compare_values(column, ours, theirs, spread, first.runs.test_to_train)
    known = (f"{row}: {why}" for row, why in caveats.items())
    return dataclasses.replace(comparison, caveats=(*known, *lost))


def _which(values: Values) -> str:
    """`splits 0-4, seed 0`."""
    splits, seeds = ({at[k] for at in values} for k in (0, 1))
    return f"{_numbers('split', splits)}, {_numbers('seed', seeds)}"


def _numbers(what: str, numbers: set[int]) -> str:
    """`seeds 0-4`, `seeds 0, 3, 7`, `seed 2`."""
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return f"{what} {ordered[0]}"
    whole = ordered == list(range(ordered[0], ordered[-1] + 1))
    return f"{what}s {ordered[0]}-{ordered[-1]}" if whole else f"{what}s {', '.join(map(str, ordered))}"


# --- columns for the metrics that two experiments share, where no table says which, and which is better


def columns_of(first: Side, second: Side, metric: str | None, better: Better | None) -> list[Column]:
    """A column for each metric of the test part that both have, except those of unknown direction; or for
    `metric` alone, such as test/rmse, with the direction `better` where physml cannot know it.
    """
    if better and not metric:
        raise ConfigError("--better is the direction of one metric: give --metric too.")
    shared = _scored(first) & _scored(second)
    if metric and metric not in shared:
        raise ConfigError(f"there is no metric {metric} that both have. {suggest(metric, shared)}")
    names = [metric] if metric else sorted(shared)
    directions = {name: better or _direction(name, (first.runs, second.runs)) for name in names}
    if metric and directions[metric] is None:
        raise ConfigError(
            f"whether more of {metric} is better is not known. Add --better higher or --better lower."
        )
    columns = [
        Column(key=name, metric=name, better=known, protocol=_protocol(first.runs, name))
        for name, known in directions.items()
        if known is not None
    ]
    if not columns:
        raise InputError(
            f"a comparison needs a metric of known direction that both have; {first.label} and "
            f"{second.label} share {', '.join(names) or 'none'}. Add --metric and --better."
        )
    return columns


def _scored(side: Side) -> set[str]:
    """The metrics of the test part of finished runs."""
    if not side.runs.finished:
        stale = f", but {side.runs.stale} of other settings than today's" if side.runs.stale else ""
        raise InputError(
            f"a comparison needs finished runs; {side.label} has none{stale}. "
            f"Train it: physml run experiment={side.runs.experiment}"
        )
    scores = (item for record in side.runs.finished.values() for item in scores_of(record).items())
    return {name for name, value in scores if name.startswith("test/") and value is not None}


def _direction(metric: str, of: Iterable[Runs]) -> Better | None:
    """Better direction of a metric, if known: by its name, else by the rule that selected the epochs."""
    name = metric.partition("/")[2]
    selections = (record.get("selected") for runs in of for record in runs.finished.values())
    rules = [selected["rule"] for selected in selections if selected]
    words = [rule.partition(" ")[0] for rule in rules if rule.endswith(f"valid/{name}")]
    by_rule: dict[str, Better] = {"min": "lower", "max": "higher"}
    return direction(metric) or next((by_rule[word] for word in words if word in by_rule), None)


def _protocol(runs: Runs, metric: str) -> Protocol:
    scoring = runs.first.get("scoring") or {}
    return cast(Protocol, scoring.get(metric.partition("/")[2], runs.first.get("protocol")))
