"""The claim of a table, judged from the runs of its rows."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from physml.report.stats.claims import (
    ClaimVerdict,
    Gain,
    all_verdict,
    gain,
    holm,
    less,
    log_ratio,
    order_verdict,
    tie_verdict,
    unlike_p,
)
from physml.report.stats.verdict import tried_less, tuned_alike
from physml.report.table.runs import Runs, incomparable
from physml.report.table.spec import Claim, Column, Order, Row, TableSpec, Tie


@dataclass(frozen=True)
class ClaimPart:
    """One comparison of a claim.

    p: adjusted for all comparisons of the table (Holm). ratio: the gain is one of logarithms, so its
    exponential says how many times the first row is better. chance: the constant that the second row is not
    shown to beat with settings of ours, so that to be better than it says little.
    """

    text: str
    column: str
    gain: Gain | None  # None: no runs to compare, or no ratio of values that are not positive
    p: float | None  # of a tie that does not hold that of "unlike by no more than the margin"
    verdict: ClaimVerdict | None
    ratio: bool = False
    chance: str | None = None


@dataclass(frozen=True)
class _Pair:
    """Two rows that a claim compares.

    whole: both rows have all runs that the table asks for; without, there is no verdict. searched: a verdict
    needs both rows searched with equally many trials. margin: that of a tie; None where the first is to be
    better. least: by how much at least; with `ratio` of logarithms.
    """

    text: str
    column: Column
    first: Runs | None
    second: Runs | None
    whole: bool
    searched: bool
    margin: float | None = None
    least: float = 0.0
    ratio: bool = False

    def gain(self, spec: TableSpec) -> Gain | None:
        if self.first is None or self.second is None:
            return None
        ours, theirs = self.first.values(self.column), self.second.values(self.column)
        if not ours.keys() & theirs.keys():
            return None
        difference = log_ratio if self.ratio else gain
        return difference(ours, theirs, self.column.better, spec.spread, self.first.test_to_train)

    def chance(self, spec: TableSpec) -> str | None:
        """The constant that the second row does not beat, with settings of ours."""
        if self.second is None or self.second.settings.settled:
            return None
        return self.second.chance(self.column, spec.spread)

    def verdict(self, gain: Gain, p: float | None, comparisons: int) -> ClaimVerdict | None:
        settings = [runs.settings for runs in (self.first, self.second) if runs is not None]
        settled = all(row_settings.settled for row_settings in settings)
        if self.margin is None:
            verdict = order_verdict(less(gain, self.least), p, settled)
        else:
            verdict = tie_verdict(gain, p, self.margin, settled, comparisons)
        alike = tuned_alike(settings[0], settings[-1], self.searched)
        if self.margin is None and verdict == "holds":
            alike |= tried_less(settings[0], settings[-1])
        elif self.margin is None and verdict == "not seen with our settings":
            alike |= tried_less(settings[-1], settings[0])
        return verdict if p is None or alike else "rows not tuned alike"


def judged(spec: TableSpec, of: Mapping[str, Runs]) -> tuple[tuple[ClaimPart, ...], ClaimVerdict | None]:
    """Each comparison of the claim, from runs of the same split and seed.

    Runs that may not be held against the paper say nothing about its claim either.
    """
    if not isinstance(spec.claim, Claim):
        return (), None
    pairs = list(_pairs(spec, spec.claim, of))
    gains = [pair.gain(spec) for pair in pairs]
    raw = [
        less(pair_gain, pair.least).p_value(pair.margin) if pair.whole and pair_gain else None
        for pair, pair_gain in zip(pairs, gains, strict=True)
    ]
    adjusted = holm({k: p for k, p in enumerate(raw) if p is not None})
    parts = []
    for k, (pair, pair_gain) in enumerate(zip(pairs, gains, strict=True)):
        p = adjusted.get(k)
        word = None if pair_gain is None else pair.verdict(pair_gain, p, len(adjusted))
        if pair_gain and pair.margin is not None and word in ("contradicted", "not seen with our settings"):
            p = unlike_p(pair_gain, pair.margin, len(adjusted))
        parts.append(ClaimPart(pair.text, pair.column.key, pair_gain, p, word, pair.ratio, pair.chance(spec)))
    return tuple(parts), all_verdict([part.verdict for part in parts])


def _pairs(spec: TableSpec, claim: Claim, of: Mapping[str, Runs]) -> Iterator[_Pair]:
    rows = {row.label: row for row in spec.rows}
    columns = {column.key: column for column in spec.columns}

    def runs(row: Row, column: Column) -> tuple[Runs | None, bool]:
        cell = spec.cell(row, column)
        cell_runs = of.get(cell.experiment or "")
        if cell_runs is None or incomparable(column, cell, cell_runs):
            return None, False
        return cell_runs, len(cell_runs.values(column)) == len(cell_runs.places)

    for part, first, second, key in claim.comparisons():
        column = columns[key]
        (ours, all_ours), (theirs, all_theirs) = (runs(rows[label], column) for label in (first, second))
        arguments = column, ours, theirs, all_ours and all_theirs, claim.searched
        unit = f" {column.unit}" if column.unit else ""
        if isinstance(part, Order):
            yield _Pair(f"{first} better than {second}", *arguments)
        elif isinstance(part, Tie):
            text = f"{first} and {second} alike within ±{part.margin:g}{' in' if unit else ''}{unit}"
            yield _Pair(text, *arguments, margin=part.margin)
        elif part.times is not None:
            text = f"{first} at least {part.times:g} times better than {second}"
            yield _Pair(text, *arguments, least=math.log(part.times), ratio=True)
        else:
            text = f"{first} better than {second} by at least {part.points:g}{unit}"
            yield _Pair(text, *arguments, least=part.points or 0.0)
