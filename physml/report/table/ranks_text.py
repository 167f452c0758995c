"""Ranks over columns in words: a section below a table, and lines of its CSV file."""

import math
from collections.abc import Iterable, Iterator

from physml.report.stats.across import Middle, Ranks
from physml.report.table.ranks import FEWEST_ROWS, Ranking
from physml.report.text.document import NONE, Block, Grid, Lines, letters

MEAN_RANK = "mean rank"  # the state of a row's line in the CSV file
TOO_FEW = f"None: fewer than {FEWEST_ROWS} rows have all comparable runs in all of these columns"
RULE = (
    "Ranked by their means in each column, 1 the best; rows of one group are not told apart at 5 %: their "
    "mean ranks differ by no more than the critical difference (Nemenyi's test; Demsar 2006)."
)
BEHIND = (
    "Behind the first: the difference of mean ranks with its 95 % interval, which draws runs anew within "
    "each column, the same for all rows, so it speaks of these columns alone."
)


def blocks_of(ranking: Ranking | None) -> tuple[Block, ...]:
    """Ranks with their groups below a table; none where its config names no columns."""
    if ranking is None:
        return ()
    titles = ", ".join(column.title for column in ranking.columns)
    heading = f"Mean ranks over {len(ranking.columns)} columns: {titles}"
    ranks = ranking.ranks
    if ranks is None:
        return (Lines((TOO_FEW, *_left_out(ranking)), heading, "items"),)
    groups = ranks.groups()
    unit = ranking.columns[0].unit
    heads: tuple[str, ...] = ("model", MEAN_RANK, "groups")
    if ranking.middle:
        heads = (*heads, f"interquartile mean{f' [{unit}]' if unit else ''}", "95 % interval")
    if ranking.behind:
        heads = (*heads, "behind the first")
    places = _places(ranking.middle.values())
    grid_lines = []
    for row, rank in ranks.mean.items():
        within = [letters(i) for i, group in enumerate(groups) if row in group]
        line: tuple[str, ...] = (row, f"{rank:.2f}", " ".join(within) or NONE)
        if ranking.middle:
            line = (*line, *_interval(ranking.middle.get(row), places))
        if ranking.behind:
            line = (*line, " ".join(dict.fromkeys(_interval(ranking.behind.get(row), 2))))
        grid_lines.append(line)
    below = Lines((tests_text(ranks), *_budget(ranking), *_left_out(ranking)), look="items")
    return Grid(heads, tuple(grid_lines), heading), below


def rule_lines(ranking: Ranking | None) -> Iterator[str]:
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
    p = "p < 0.0001" if ranks.p < 1e-4 else f"p = {ranks.p:.2g}"
    return f"Critical difference {ranks.critical:.2f}; Friedman's test of `all rows are alike`: {p}"


def lines(ranking: Ranking) -> Iterator[str]:
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
        yield f"No better than a constant, and so last of a column together: {rows}"
    if ranking.improving:
        columns = ", ".join(f"{title} {n} of {len(ranking.rows)}" for title, n in ranking.improving.items())
        yield (
            "Rows whose runs are mostly best in the last tenth of their training, so that more may move "
            f"ranks: {columns}"
        )


def _left_out(ranking: Ranking) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for row, reason in ranking.left_out.items():
        by_reason.setdefault(reason, []).append(row)
    if by_reason:
        rows = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
        yield f"Without a rank: {rows}"


def values(ranking: Ranking | None) -> Iterator[dict[str, object]]:
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
