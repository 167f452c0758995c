"""Rows compared across columns: mean ranks, and the interquartile mean of all runs. No torch."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from physml.base.errors import InputError
from physml.report.stats.summary import LEVEL, N_FOR_VERDICT, Better

if TYPE_CHECKING:
    import numpy as np

FEWEST_COLUMNS = 5  # below, ranks say next to nothing
RESAMPLES = 2000
TIED_DIGITS = 12


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of rows over columns, 1 the best.

    Two rows whose mean ranks differ by more than the critical difference q sqrt(k (k + 1) / (6 N)), for k
    rows and N columns, are told apart at 5 % (Nemenyi; Demsar 2006, section 3.2.2).
    """

    mean: dict[str, float]  # row -> mean rank, the best first
    n_columns: int  # over how many columns
    p: float  # friedman's test of "all rows are alike"
    critical: float  # the critical difference

    def groups(self) -> list[tuple[str, ...]]:
        """Rows that are not told apart: the bars of a critical-difference diagram.

        Example:
            >>> Ranks({"a": 1.0, "b": 1.8, "c": 3.0}, 6, 0.01, 1.4).groups()
            [('a', 'b'), ('b', 'c')]
        """
        rows = list(self.mean)
        groups: list[tuple[str, ...]] = []
        for i, first in enumerate(rows):
            near = [row for row in rows[i:] if self.mean[row] - self.mean[first] <= self.critical]
            if len(near) > 1 and not (groups and groups[-1][-1] == near[-1]):
                groups.append(tuple(near))
        return groups


def mean_ranks(scores: Mapping[str, Sequence[float]], better: Sequence[Better]) -> Ranks:
    """Ranks of rows in each column, ties sharing their mean rank, averaged over the columns.

    Scores that are equal in twelve digits are tied: means of the same values differ in the last bits. So are
    those that are not numbers, behind all others.

    Args:
        scores: Row -> its score in each column; nan: behind all others.

    Raises:
        InputError: There are fewer than five columns or three rows, or a row lacks a score.
    """
    import numpy as np
    from scipy.stats import friedmanchisquare, rankdata

    if len(better) < FEWEST_COLUMNS or len(scores) < 3:
        raise InputError(
            f"ranks need at least {FEWEST_COLUMNS} columns and 3 rows; got {len(better)} and {len(scores)}."
        )
    if short := [row for row, values in scores.items() if len(values) != len(better)]:
        raise InputError(f"each row needs a score in each of {len(better)} columns; {short[0]} has fewer.")
    signs = [_sign(direction) for direction in better]
    ranks = rankdata(
        [[_tied(sign * x) for sign, x in zip(signs, row, strict=True)] for row in scores.values()], axis=0
    )
    k, n = ranks.shape
    with np.errstate(invalid="ignore"):
        p = float(friedmanchisquare(*ranks).pvalue)
    p = 1.0 if math.isnan(p) else p  # all rows are tied in all columns
    mean = dict(zip(scores, (ranks.sum(axis=1) / n).tolist(), strict=True))
    ordered = {row: mean[row] for row in sorted(mean, key=mean.__getitem__)}
    return Ranks(ordered, n, p, _tukey(k, math.inf) * math.sqrt(k * (k + 1) / (6 * n)))


def _sign(better: Better) -> float:
    return -1.0 if better == "higher" else 1.0


def _tied(score: float) -> float:
    return math.inf if math.isnan(score) else float(f"{score:.{TIED_DIGITS}g}")


@dataclass(frozen=True)
class Middle:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def interquartile_mean(columns: Sequence[Sequence[float]]) -> Middle:
    """The mean of the middle half of all runs of all columns, with a bootstrap stratified by column.

    Runs are drawn anew within each column, so that the interval says how much the seeds matter on these very
    tasks (Agarwal et al. 2021, section 4.3). Columns must be in one unit.

    Example:
        >>> found = interquartile_mean([[1.0, 2.0, 3.0, 100.0], [2.0, 2.0, 3.0, 3.0]])
        >>> found.mean, found.low <= found.mean <= found.high
        (2.5, True)
    """
    import numpy as np
    from scipy.stats import trim_mean

    if not columns or any(len(runs) < N_FOR_VERDICT for runs in columns):
        raise InputError(f"an interquartile mean needs at least {N_FOR_VERDICT} runs in each column.")
    rng = np.random.default_rng(0)
    samples = [np.asarray(runs, float) for runs in columns]
    drawn = [runs[rng.integers(len(runs), size=(RESAMPLES, len(runs)))] for runs in samples]
    middles: np.ndarray = trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    sizes = [len(runs) for runs in samples]
    return _interval(float(trim_mean(np.concatenate(samples), 0.25)), middles, sizes, rows=2)


@functools.cache
def _tukey(rows: int, degrees: float) -> float:
    """The quantile for the difference of any two of so many rows, in its standard errors; 0.1 s each."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(LEVEL, rows, degrees)) / math.sqrt(2)


def _interval(point: float, drawn: "np.ndarray", sizes: Sequence[int], rows: int) -> Middle:
    """A 95 % interval about `point` from bootstrap draws, as wide as few runs ask for.

    Draws of n runs spread by a factor sqrt((n - 1) / n) too little, and their spread is known from
    sum(n - 1) degrees of freedom. Of several rows one is the first by luck too: the quantile is Tukey's, for
    all pairs of rows; of two rows it is that of t.

    Args:
        sizes: n of each column.
        rows: How many rows are compared.
    """
    import numpy as np
    from scipy.stats import norm

    degrees = sum(n - 1 for n in sizes)
    fewer = max(n / (n - 1) for n in sizes) ** 0.5
    wider = _tukey(rows, degrees) / float(norm.ppf(0.5 + LEVEL / 2))
    low, high = np.percentile(drawn, (50 * (1 - LEVEL), 50 * (1 + LEVEL))) - drawn.mean()
    return Middle(point, point + fewer * wider * float(low), point + fewer * wider * float(high))


def rank_gaps(
    runs: Mapping[str, Sequence[Sequence[float] | None]], better: Sequence[Better], first: str | None = None
) -> dict[str, Middle]:
    """By how much the mean rank of each row is behind that of `first`, with a paired bootstrap by column.

    Runs are drawn anew within each column, the same for all rows, and all rows are ranked again: the interval
    says how much the seeds, or splits, matter on these very columns, where a critical difference speaks of
    new ones. It is wider for more rows, as one of them is the first by luck too.

    Args:
        runs: Row -> its runs in each column, those of all rows in one order; None: behind all others.
        better: The direction of each column.
        first: The row that the others are held against; None: the one with the best mean rank.

    Returns:
        Row -> gap, the least first, without the row itself; empty where the rows of a column have unequal
        numbers of runs, or fewer than three.

    Example:
        >>> runs = {"a": [[1.0, 1.1, 1.2]] * 5, "b": [[2.0, 2.1, 2.2]] * 5, "c": [[3.0, 3.1, 3.2]] * 5}
        >>> rank_gaps(runs, ["lower"] * 5)["c"]
        Middle(mean=2.0, low=2.0, high=2.0)
    """
    import numpy as np
    from scipy.stats import rankdata

    rng = np.random.default_rng(0)
    total, point, numbers = np.zeros((len(runs), RESAMPLES)), np.zeros(len(runs)), []
    for k, direction in enumerate(better):
        column = [row[k] for row in runs.values()]
        sizes = {len(runs_of_row) for runs_of_row in column if runs_of_row is not None}
        if len(sizes) != 1 or (n := sizes.pop()) < N_FOR_VERDICT:
            return {}
        numbers.append(n)
        values = np.array(
            [[np.inf] * n if sample is None else _sign(direction) * np.array(sample) for sample in column]
        )
        drawn = values[:, rng.integers(n, size=(RESAMPLES, n))].mean(2)
        total += rankdata(drawn, axis=0)
        point += rankdata([_tied(mean) for mean in values.mean(1)])
    first = first or list(runs)[point.argmin()]
    start = list(runs).index(first)
    gaps, apart = (total - total[start]) / len(better), (point - point[start]) / len(better)
    behind = {row: _interval(float(apart[i]), gaps[i], numbers, len(runs)) for i, row in enumerate(runs)}
    return {row: behind[row] for row in sorted(behind, key=lambda row: behind[row].mean) if row != first}
