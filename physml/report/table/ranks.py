"""The rows of a table ranked over its columns, from the runs of those that are complete in all of them; and
their ranks in words: a section below the table, and lines of its CSV file.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from physml.report.stats.across import Middle, Ranks, interquartile_mean, mean_ranks, rank_gaps
from physml.report.stats.claims import p_text
from physml.report.stats.summary import N_FOR_VERDICT, Spread, independent, summarise_runs
from physml.report.table.runs import Runs, incomparable
from physml.report.table.spec import Column, Row, TableSpec
from physml.report.text.document import NONE, Block, Grid, Lines, grouped, letters

FEWEST_ROWS = 3
MEAN_RANK = "mean rank"  # the state of a row's line in the CSV file
TOO_FEW = f"None: fewer than {FEWEST_ROWS} rows have all comparable runs in all of these columns"
RULE = (
    "Ranked by their means in each column, 1 the best; rows of one group are not told apart at 5 %: their "
    "mean ranks differ by no more than the critical difference (Nemenyi's test; Demsar 2006)."
)
BEHIND = (
    "Behind the first: the difference of mean ranks with its 95 % interval, which draws runs anew within "
    "each column, the same for all rows, so it speaks of these columns alone. It is wider for more "
    "rows (Tukey): which of them came out first is luck, too."
)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over the columns that a table names, and the interquartile mean of all their runs.

    behind: row -> by how much its mean rank is behind the first, with an interval over runs. untrained: row
    -> titles of the columns in which it is not shown to beat a constant and has a worse mean than every row
    that is; such rows share the last rank there.
    improving: title of a column -> how many of the ranked rows still improved when their training ended.
    """

    columns: tuple[Column, ...]  # the ranked columns
    rows: dict[str, list[float]]  # row -> its mean in each column, of rows with all comparable runs
    ranks: Ranks | None  # None with fewer than three such rows
    middle: dict[str, Middle]  # row -> interquartile mean; empty where the columns have several units
    left_out: dict[str, str]  # row -> why it has no rank; not of rows that are run in no column
    spread: Spread = "runs"  # of the interquartile means: runs, or means over the starts of a split
    behind: dict[str, Middle] = field(default_factory=dict)
    untrained: dict[str, tuple[str, ...]] = field(default_factory=dict)
    improving: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[list[float] | None]] = field(default_factory=dict)  # row -> runs; None: untrained


def ranked(spec: TableSpec, of: Mapping[str, Runs]) -> Ranking | None:
    """Ranks of the rows of a table, by their runs; None where its config names no columns."""
    if not spec.ranks:
        return None
    columns = tuple(column for column in spec.columns if column.key in spec.ranks)
    alike = len({(column.unit, column.scale, column.better) for column in columns}) == 1
    scores: dict[str, list[float]] = {}
    middle: dict[str, Middle] = {}
    left_out: dict[str, str] = {}
    untrained: dict[str, tuple[str, ...]] = {}
    samples: dict[str, list[list[float] | None]] = {}
    improving: Counter[str] = Counter()
    runs_of: dict[str, dict[Column, Runs]] = {}
    for row in spec.rows:
        if not any(spec.cell(row, column).experiment for column in columns):
            continue
        if reason := _lacking(spec, row, columns, of):
            left_out[row.label] = reason
            continue
        runs = {column: of[spec.cell(row, column).experiment or ""] for column in columns}
        values = {column: known.values(column) for column, known in runs.items()}
        scores[row.label] = [summarise_runs(v, c.better, spec.spread).mean for c, v in values.items()]
        by_column = {column: independent(v, spec.spread) for column, v in values.items()}
        if alike and all(len(sample) >= N_FOR_VERDICT for sample in by_column.values()):
            middle[row.label] = interquartile_mean([*by_column.values()])
        runs_of[row.label], samples[row.label] = runs, [*by_column.values()]
        improving.update(column.title for column, known in runs.items() if known.improving)
    if len(scores) < FEWEST_ROWS:
        return Ranking(columns, scores, None, middle, left_out, spec.spread)
    for k, label in _at_last(columns, scores, runs_of, spec.spread):
        samples[label][k] = None
        untrained[label] = (*untrained.get(label, ()), columns[k].title)
    directions = [column.better for column in columns]
    judged = {row: _judged(means, samples[row]) for row, means in scores.items()}
    ranks, behind = mean_ranks(judged, directions), rank_gaps(samples, directions)
    still = {c.title: improving[c.title] for c in columns if improving[c.title]}
    return Ranking(columns, scores, ranks, middle, left_out, spec.spread, behind, untrained, still, samples)


def _judged(means: Sequence[float], samples: Sequence[list[float] | None]) -> list[float]:
    """Means, NaN in columns where the row shares the last rank."""
    return [math.nan if runs is None else mean for mean, runs in zip(means, samples, strict=True)]


def _at_last(
    columns: Sequence[Column],
    scores: Mapping[str, Sequence[float]],
    runs: Mapping[str, Mapping[Column, Runs]],
    spread: Spread,
) -> Iterator[tuple[int, str]]:
    """The places of columns, each with a row that shares its last rank."""
    for k, column in enumerate(columns):
        for row in _last(column, {row: means[k] for row, means in scores.items()}, runs, spread):
            yield k, row


def _last(
    column: Column, means: Mapping[str, float], runs: Mapping[str, Mapping[Column, Runs]], spread: Spread
) -> list[str]:
    """Rows that are not shown to beat a constant, and whose means are worse than those of all that are."""
    at_chance = [row for row in means if runs[row][column].chance(column, spread)]
    sign = -1.0 if column.better == "higher" else 1.0
    worst = max((sign * mean for row, mean in means.items() if row not in at_chance), default=-math.inf)
    return [row for row in at_chance if sign * means[row] >= worst]


def _lacking(spec: TableSpec, row: Row, columns: Sequence[Column], of: Mapping[str, Runs]) -> str:
    """Why a row cannot be ranked: `not run on Texas, Film`, `3/10 runs on Film`; empty if it can be."""

    def reason(column: Column) -> str | None:
        cell = spec.cell(row, column)
        runs = of.get(cell.experiment or "")
        if runs is None or not (runs.diverged or runs.values(column)):
            return "not run"
        if (done := len(runs.values(column))) < len(runs.places):
            return f"{done}/{len(runs.places)} runs"
        return incomparable(column, cell, runs)

    reasons = grouped((reason(column), column.title) for column in columns)
    return "; ".join(f"{why} on {', '.join(titles)}" for why, titles in reasons.items() if why)


# --- in words


def rank_blocks(ranking: Ranking | None) -> tuple[Block, ...]:
    """Ranks with their groups below a table; none where its config names no columns."""
    if ranking is None:
        return ()
    titles = ", ".join(column.title for column in ranking.columns)
    heading = f"Mean ranks over {len(ranking.columns)} columns: {titles}"
    if (ranks := ranking.ranks) is None:
        return (Lines((TOO_FEW, *_left_out(ranking)), heading, "items"),)
    groups = ranks.groups()
    unit = ranking.columns[0].unit
    middle = f"interquartile mean{f' [{unit}]' if unit else ''}"
    heads = ("model", MEAN_RANK, "groups", middle, "95 % interval", "behind the first")
    places = _places(ranking.middle.values())
    lines = []
    for row, rank in ranks.mean.items():
        within = [letters(i) for i, group in enumerate(groups) if row in group]
        behind = " ".join(dict.fromkeys(_interval(ranking.behind.get(row), 2)))
        middle_of_row = _interval(ranking.middle.get(row), places)
        lines.append((row, f"{rank:.2f}", " ".join(within) or NONE, *middle_of_row, behind))
    grid = Grid(heads, tuple(lines), heading)
    empty = [*(() if ranking.middle else (3, 4)), *(() if ranking.behind else (5,))]
    below = Lines((tests_text(ranks), *_budget(ranking), *_left_out(ranking)), look="items")
    return grid.without(empty), below


def rank_rules(ranking: Ranking | None) -> Iterator[str]:
    """How rows are ranked."""
    if ranking is None or ranking.ranks is None:
        return
    yield RULE
    if ranking.middle:
        starts = ", each split averaged over its starts" if ranking.spread == "splits" else ""
        yield (
            f"Interquartile mean: the middle half of all runs of these columns{starts}; its interval draws "
            "runs anew within each column (Agarwal et al. 2021)."
        )
    if ranking.behind:
        yield BEHIND


def tests_text(ranks: Ranks) -> str:
    test = f"Friedman's test of `all rows are alike`: {p_text(ranks.p)}"
    return f"Critical difference {ranks.critical:.2f}; {test}"


def rank_lines(ranking: Ranking) -> Iterator[str]:
    """A line for each ranked row, the best first, and one for those without a rank."""
    if ranking.ranks is None:
        yield TOO_FEW
    else:
        yield from (f"{row}: mean rank {rank:.2f}" for row, rank in ranking.ranks.mean.items())
        yield tests_text(ranking.ranks)
    yield from _left_out(ranking)


def _places(middles: Iterable[Middle]) -> int:
    """Digits after the point: two of the narrowest interval's half."""
    narrow = min(((middle.high - middle.low) / 2 for middle in middles), default=0.0)
    return min(6, max(0, 1 - math.floor(math.log10(narrow)))) if narrow > 0 else 2


def _interval(middle: Middle | None, places: int) -> tuple[str, str]:
    """A mean and its interval."""
    if middle is None:
        return NONE, NONE
    return f"{middle.mean:.{places}f}", f"[{middle.low:.{places}f}, {middle.high:.{places}f}]"


def _budget(ranking: Ranking) -> Iterator[str]:
    if ranking.untrained:
        rows = "; ".join(f"{row} ({', '.join(titles)})" for row, titles in ranking.untrained.items())
        yield f"Not shown to beat a constant, and so last of a column together: {rows}"
    if ranking.improving:
        columns = ", ".join(f"{title} {n} of {len(ranking.rows)}" for title, n in ranking.improving.items())
        yield (
            "Rows whose runs are mostly best in the last tenth of their training, so that more may move "
            f"ranks: {columns}"
        )


def _left_out(ranking: Ranking) -> Iterator[str]:
    if by_reason := grouped((reason, row) for row, reason in ranking.left_out.items()):
        rows = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
        yield f"Without a rank: {rows}"


def rank_values(ranking: Ranking | None) -> Iterator[dict[str, object]]:
    """Lines of the CSV file by head: mean ranks, interquartile means, critical difference, Friedman's p."""
    if ranking is None or ranking.ranks is None:
        return
    keys = " ".join(column.key for column in ranking.columns)
    n = len(ranking.columns)
    known = {"column": keys, "metric": "rank", "unit": "1", "better": "lower", "n": n}
    for row, rank in ranking.ranks.mean.items():
        yield known | {"row": row, "mean": rank, "state": MEAN_RANK}
    for row, middle in ranking.middle.items():
        column = ranking.columns[0]
        yield {
            "row": row, "column": keys, "metric": column.metric, "unit": column.unit or "1",
            "better": column.better, "mean": middle.mean, "low": middle.low, "high": middle.high, "n": n,
            "state": "interquartile mean",
        }  # fmt: skip
    for state, value in (("critical difference", ranking.ranks.critical), ("Friedman's p", ranking.ranks.p)):
        yield known | {"row": "all ranked rows", "mean": value, "state": state}
