"""The rows of a table ranked over its columns, from the runs of those that are complete in all of them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from physml.report.stats.across import Middle, Ranks, interquartile_mean, mean_ranks, rank_gaps
from physml.report.stats.summary import Spread, by_split, summarise_runs
from physml.report.table.runs import Runs, incomparable
from physml.report.table.spec import Column, Row, TableSpec

FEWEST_ROWS = 3


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over the columns that a table names, and the interquartile mean of all their runs.

    behind: row -> by how much its mean rank is behind the first, with an interval over runs. untrained: row
    -> titles of the columns in which it is no better than a constant; such rows share the last rank there.
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
    for row in spec.rows:
        if not any(spec.cell(row, column).experiment for column in columns):
            continue
        if reason := _lacking(spec, row, columns, of):
            left_out[row.label] = reason
            continue
        runs = [of[spec.cell(row, column).experiment or ""] for column in columns]
        values = [cell_runs.values(column) for cell_runs, column in zip(runs, columns, strict=True)]
        scores[row.label] = [
            summarise_runs(cell_values, column.better, spec.spread).mean
            for cell_values, column in zip(values, columns, strict=True)
        ]
        row_samples = [
            by_split(v) if spec.spread == "splits" else [v[at] for at in sorted(v)] for v in values
        ]
        if alike and all(len(sample) > 1 for sample in row_samples):
            middle[row.label] = interquartile_mean(row_samples)
        learned = [
            cell_runs.chance(column, spec.spread) is None
            for cell_runs, column in zip(runs, columns, strict=True)
        ]
        samples[row.label] = [sample if it else None for sample, it in zip(row_samples, learned, strict=True)]
        improving.update(c.title for c, cell_runs in zip(columns, runs, strict=True) if cell_runs.improving)
        if not all(learned):
            untrained[row.label] = tuple(c.title for c, it in zip(columns, learned, strict=True) if not it)
    directions = [column.better for column in columns]
    if len(scores) < FEWEST_ROWS:
        return Ranking(columns, scores, None, middle, left_out, spread=spec.spread)
    judged = {
        row: [math.nan if samples[row][k] is None else mean for k, mean in enumerate(means)]
        for row, means in scores.items()
    }
    ranks, behind = mean_ranks(judged, directions), rank_gaps(samples, directions)
    still = {c.title: improving[c.title] for c in columns if improving[c.title]}
    return Ranking(columns, scores, ranks, middle, left_out, spec.spread, behind, untrained, still, samples)


def _lacking(spec: TableSpec, row: Row, columns: Sequence[Column], of: Mapping[str, Runs]) -> str:
    """Why a row cannot be ranked: `not run on Texas, Film`, `3/10 runs on Film`; empty if it can be."""
    reasons: dict[str, list[str]] = {}
    for column in columns:
        cell = spec.cell(row, column)
        runs = of.get(cell.experiment or "")
        requested = len(spec.places_of(cell.experiment))
        done = 0 if runs is None else len(runs.values(column))
        reason = None
        if done < requested:
            reason = f"{done}/{requested} runs on" if done else "not run on"
        elif runs is not None and (why := incomparable(column, cell, runs)):
            reason = f"{why} on"
        if reason:
            reasons.setdefault(reason, []).append(column.title)
    return "; ".join(f"{reason} {', '.join(titles)}" for reason, titles in reasons.items())
