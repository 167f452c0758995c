"""The finding of a table, in one to three sentences, and how much of it was trained.

The sentences are written in its config, or made from its verdicts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from physml import __version__
from physml.base.text import digits
from physml.report.outcome import SHORT_BUDGET, counts
from physml.report.stats.summary import N_FOR_VERDICT, Published, Summary
from physml.report.table.collect import CellResult, Table
from physml.report.table.fact_text import hours_text, rest_text
from physml.report.table.numbers import mean_text, printed_text
from physml.report.table.placeholders import filled
from physml.report.table.spec import Claim

NOTHING = {  # by a state that some cell has
    "failed": "No run of this table has its numbers; why stands below.",
    "stale": "The runs here have other settings, or data, than this table today.",
    "": "Nothing of this table has been trained here yet.",
}
NAMED = 3  # rows or columns that a made sentence names


T = TypeVar("T")


class _Missing(Exception):
    """A number of the sentence is not there."""


def finding_text(table: Table) -> str:
    """The sentences of the config with their numbers; made ones where a number or the outcomes differ."""
    return written(table) or _made(table)


def written(table: Table) -> str | None:
    """The sentences of the config; None without any, or where they are no longer known to hold."""
    spec = table.spec
    if spec.finding is None or spec.finding.outcomes != outcomes(table):
        return None
    labels, keys = [row.label for row in spec.rows], [column.key for column in spec.columns]

    def fill(label: str, key: str, part: str) -> str:
        if part == "rank":
            return f"{_there(table.mean_ranks.get(label)):.1f}"
        if part == "times":
            first, second = (_there(table.of[name, key].summary).mean for name in label.split("//"))
            ratio = first / _there(second or None)
            return digits(ratio, 2)
        return _number(table.of[label, key], part)

    try:
        return filled(" ".join(spec.finding.text.split()), labels, keys, fill)
    except _Missing:
        return None


def outcomes(table: Table) -> str:
    """The outcomes that a sentence rests on: their counts; without printed numbers the best rows."""
    return best_rows(table) if table.own else counts(cell.state for cell in table.printed)


def best_rows(table: Table) -> str:
    """The first rows by mean rank, or the best one of each column."""
    if table.mean_ranks:
        return ", ".join(list(table.mean_ranks)[:NAMED])
    best = []
    for column in table.spec.columns:
        means = {cell.row: mean for cell in table.column(column.key) if (mean := cell.eligible) is not None}
        best += [row for row in means if row in column.best(means)][:1]
    return "; ".join(best)


def _there(value: T | None) -> T:
    if value is None:
        raise _Missing
    return value


def _number(cell: CellResult, part: str) -> str:
    if part == "printed":
        return printed_text(_there(cell.published))
    summary = _there(cell.summary)
    if part == "n":
        return str(summary.n)
    places = said_places(summary, cell.published)
    if part == "ours":
        return mean_text(summary, places)
    return f"{_there(getattr(summary, part)):.{places}f}"


def said_places(summary: Summary, published: Published | None) -> int:
    """Digits after the point in a sentence: one of the spread, two if it begins with 1, and as many as are
    printed; of a number without spread four in all.

    Example:
        >>> said_places(Summary(10, 0.2903, 0.0569, 0.25, 0.33, 0.23), Published(0.2, digits=1))
        2
        >>> said_places(Summary(5, 31.9, 0.0, 31.9, 31.9, 31.9), None)  # 31.90
        2
    """
    printed = published.digits if published and published.digits is not None else 0
    if not summary.sd:
        size = math.floor(math.log10(abs(summary.mean))) if summary.mean else 0
        return max(0, min(2, 3 - size))
    size = math.floor(math.log10(summary.sd))
    leads_with_one = summary.sd < 2 * 10.0**size
    return min(6, max(0, printed, leads_with_one - size))


def _made(table: Table) -> str:
    claim = table.spec.claim
    claimed = f" The paper's claim: {claim.text}." if isinstance(claim, Claim) and not table.own else ""
    if not any(cell.summary for cell in table.cells):
        words = {cell.state.word for cell in table.cells}
        return next(text for word, text in NOTHING.items() if word in words | {""}) + claimed
    if table.own:
        return (
            _best_ranks(table) or "Rows of our own, without printed numbers; the best of each column is bold."
        )
    n = len(table.printed)
    text = f"{n} printed {'number' if n == 1 else 'numbers'}: {outcomes(table)}."
    tested = f" Its ranking here: {table.claim_verdict or 'no verdict yet'}." if claimed else ""
    return text + claimed + tested


def _best_ranks(table: Table) -> str:
    ranks = table.ranking and table.ranking.ranks
    if not ranks:
        return ""
    named = listed([f"{row} ({rank:.1f})" for row, rank in list(ranks.mean.items())[:NAMED]])
    return (
        f"The best mean ranks over {ranks.n_columns} columns have {named}. Rows whose mean ranks differ by "
        f"less than {ranks.critical:.1f} cannot be told apart."
    )


def listed(names: Sequence[str]) -> str:
    """`A, B and C`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


@dataclass(frozen=True)
class Coverage:
    """How many printed cells were trained, with how many runs; of a table of our own all of its cells."""

    table: Table

    @cached_property
    def cells(self) -> list[CellResult]:
        own = [cell for cell in self.table.cells if cell.wanted]
        return own if self.table.own else self.table.printed

    @cached_property
    def trained(self) -> list[CellResult]:
        """Cells with a number that is not of a short budget; a table of our own has no other budget."""
        return [cell for cell in self.cells if cell.summary and (self.table.own or not is_short(cell))]

    @property
    def enough(self) -> int:
        return sum(cell.summary.n >= N_FOR_VERDICT for cell in self.trained if cell.summary)

    def text(self) -> str:
        """`2 of 6 printed cells trained, n = 10; 1.4 core-hours, about 2.8 more to complete`."""
        kind = "cells" if self.table.own else "printed cells"
        text = f"{len(self.trained)} of {len(self.cells)} {kind} trained"
        counts = {cell.summary.n for cell in self.trained if cell.summary}
        if len(counts) == 1:
            text += f", n = {counts.pop()}"
        elif counts:
            text += f", n = {min(counts)} to {max(counts)}"
            if self.enough < len(self.trained):
                text += f" (at least {N_FOR_VERDICT} in {self.enough})"
        states = [cell.state for cell in self.cells if not cell.summary]
        if lost := sum(state.word == "diverged" and state.done == state.wanted for state in states):
            text += f"; in {lost} more all runs diverged"
        facts = self.table.facts
        if hours := hours_text(facts):
            text += f"; {hours}"
        if left := rest_text(self.table.rest):
            text += f", {left} more" if facts.hours.keys() == {"core-hours"} else f"; {left} core-hours"
            text += " to complete"
        if facts.shipped:
            some = "" if facts.shipped == facts.runs else f"{facts.shipped} of {facts.runs} runs "
            text += f"; {some}recorded by physml {__version__}"
        return text


def is_short(cell: CellResult) -> bool:
    return cell.state.word == "not comparable" and cell.state.reason == SHORT_BUDGET
