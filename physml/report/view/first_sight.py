"""A table at first sight: what came out, a line for each model, and what was trained."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from physml.report.outcome import NO_VERDICT, NOT_RUN, SIX, Outcome, outcome_of, signed, words_of
from physml.report.stats.summary import Summary
from physml.report.table.collect import CellResult, Table
from physml.report.table.fact_text import group_lines, search_lines
from physml.report.table.numbers import (
    BRIEF,
    bare_mean,
    brief_mean,
    decimals,
    labelled,
    mean_text,
    printed_text,
    value_text,
)
from physml.report.table.spec import Column, Row
from physml.report.text.document import (
    NONE,
    Block,
    Cell,
    Grid,
    Lines,
    Text,
    blocks,
    grouped,
    short_heads,
    text_of,
)
from physml.report.view.finding import Coverage, finding_text, is_short

MORE = {"--long": "all columns, comparisons, reasons, notes", "--rules": "verdicts"}
OWN = "own"  # the source of a table that no paper has
QUOTED = "†"
HEADS = (7, 12)  # characters of a head in a narrow table, at least
MOST = 48  # lines of a matrix; of a longer one rows without a printed number stand in --long
NAMED = 5  # of these rows at most; more are counted
Form = Callable[[Summary | None, int], str]  # a number with so many digits
Value = Callable[[Row, Column], Cell]
TRIED = {"failed": "failed", "diverged": "div.", "running": "runs"}  # states that are words in a matrix


def first_sight(table: Table) -> tuple[Block, ...]:
    view = View(table)
    return blocks(
        Lines(("Own table" if table.spec.source == OWN else table.spec.source,), look="soft"),
        Lines((finding_text(table),), look="strong"),
        *view.grids(),
        *View(table, short=True).grids(),
        Lines(tuple(view.below())),
    )


@dataclass(frozen=True)
class View:
    """The rows and columns that are shown at first sight, in their forms.

    short: the cells whose budget was cut, and nothing else; else those without them.
    """

    table: Table
    short: bool = False

    @cached_property
    def columns(self) -> list[Column]:
        """Those with a printed number; in a table of our own all; of short runs those that they have."""
        columns = self.table.spec.columns
        if not self.table.own:
            printed = {cell.column for cell in self.table.printed}
            columns = tuple(column for column in columns if column.key in printed)
        return [c for c in columns if not self.short or any(map(is_short, self.table.column(c.key)))]

    def cells(self, row: Row) -> list[CellResult]:
        return [self.table.of[row.label, column.key] for column in self.columns]

    def counted(self, cell: CellResult) -> Summary | None:
        """The numbers of a cell, if it is one of those that are shown."""
        return cell.summary if is_short(cell) == self.short else None

    def _happened(self, cell: CellResult) -> bool:
        """A cell with a number, with a run of the reader's own, or with a run that ended without one."""
        tried = cell.state.word in TRIED or bool(cell.yours) or (cell.extra and not is_short(cell))
        return self.counted(cell) is not None or (tried and not self.short)

    @cached_property
    def rows(self) -> list[Row]:
        """Rows with something to show, in the order of the paper; those of our own by their mean rank. Where
        nothing was run, those with a printed number.
        """
        rows = [row for row in self._with_runs if row not in self.left]
        if self.table.own:
            return sorted(rows, key=lambda row: self.ranks.get(row.label, math.inf))
        every = () if rows or self.short else self.table.spec.rows
        return rows or [row for row in every if any(cell.published for cell in self.cells(row))]

    @cached_property
    def _with_runs(self) -> list[Row]:
        return [row for row in self.table.spec.rows if any(map(self._happened, self.cells(row)))]

    @cached_property
    def left(self) -> list[Row]:
        """Rows of our own that a long matrix leaves to --long."""
        own = [r for r in self._with_runs if not (r.extra or any(c.published for c in self.cells(r)))]
        lines = 2 * len(self._with_runs) - len(own)  # a printed number has a line of its own
        return own if len(self.columns) > 1 and not (self.table.own or self.short) and lines > MOST else []

    @cached_property
    def shown(self) -> list[CellResult]:
        return [cell for row in self.rows for cell in self.cells(row)]

    @property
    def run(self) -> bool:
        """True if any row was run."""
        return any(map(self._happened, self.shown))

    @property
    def printed(self) -> bool:
        """True if printed numbers are shown."""
        return not self.short and any(cell.published for cell in self.shown)

    @property
    def ranks(self) -> dict[str, float]:
        return {} if self.short else self.table.mean_ranks

    @cached_property
    def usual(self) -> int:
        """The number of runs that most cells have."""
        return statistics.mode([summary.n for summary in map(self.counted, self.shown) if summary] or [0])

    @cached_property
    def quoted(self) -> set[str]:
        """Rows whose printed numbers all come from other work."""
        printed = [] if self.short else [cell for cell in self.shown if cell.published]
        own = {cell.row for cell in printed if cell.published and not cell.published.quoted}
        return {cell.row for cell in printed} - own

    # --- grids

    def grids(self) -> Iterator[Grid]:
        if self.rows:
            yield self._list(self.columns[0]) if len(self.columns) == 1 else self._matrix()

    def _label(self, row: Row) -> Cell:
        text = labelled(row.label, row.extra)
        quoted = row.label in self.quoted
        at = (row.label, self.columns[0].key)
        return Cell(f"{text} {QUOTED}" if quoted else text, quoted=quoted, at=at)

    def _list(self, column: Column) -> Grid:
        """One column: a line for each model."""
        places = decimals(self.table, column)
        lines: list[tuple[Text, ...]] = []
        for row in self.rows:
            cell = self.table.of[row.label, column.key]
            summary, bare = self.counted(cell), self._printed(row, column)
            lines.append(
                (
                    self._label(row),
                    bare,
                    replace(bare, text=mean_text(summary, places), bold=row.label in self._best[column.key]),
                    replace(bare, text=str(summary.n) if summary else NONE),
                    _looks(cell, self._outcome(cell)),
                )
            )
            lines += [(m.label, "", value_text(m.value, places), "1", str(m.state)) for m in cell.yours]
        heads = ("model", "printed", "ours", "n", "outcome")
        grid = Grid(heads, tuple(lines), self._heading(column.heading))
        return grid.without(i for i in range(1, 5) if self._says_nothing(grid, i))

    def _outcome(self, cell: CellResult) -> str:
        # A sign is about a printed number.
        said = signed(cell.state) if cell.published else words_of(cell.state)
        words = filter(None, (said, self.table.below(cell)))
        return "; ".join(words) if self._happened(cell) else NONE

    def _says_nothing(self, grid: Grid, i: int) -> bool:
        """An empty column, numbers of runs that are all alike, or what a section of short runs leaves out."""
        texts = {text_of(line[i]) for line in grid.lines} - {"", NONE}
        return not texts or (i == 3 and texts == {str(self.usual)}) or (self.short and i in (1, 4))

    def _matrix(self) -> Grid:
        """Columns side by side, and narrower forms: without spreads, with narrow heads, with printed numbers
        on lines of their own, or with shorter numbers.
        """
        narrow, wide = HEADS
        if self.printed and self.run:
            forms = [self._pairs(True), self._pairs(False), self._stacked(wide), self._stacked(narrow)]
        elif self.printed:
            values = self._lines(partial(self._printed, spread=False))
            whole = self._lines(self._printed)
            forms = [whole, values, short_heads(values, wide), short_heads(values, narrow)]
        else:
            means = self._means(bare_mean)
            forms = [self._means(mean_text), means, short_heads(means, wide), self._brief()]
        grid = forms.pop()
        while forms:
            grid = replace(forms.pop(), narrow=grid)
        return grid

    @cached_property
    def _unit(self) -> str | None:
        """The unit of all columns; None where they differ."""
        units = {column.unit for column in self.columns}
        return units.pop() if len(units) == 1 else None

    def _heading(self, what: str) -> str:
        """The line above a grid: its unit and what is better; for short runs their budget, which is no result
        on a printed number.
        """
        directions = {column.better for column in self.columns}
        better = f"{directions.pop()} is better" if len(directions) == 1 else ""
        text = ", ".join(filter(None, [what, better]))
        if not self.short:
            return text
        shorts = self.table.facts.shorts
        why = "; ".join([*(shorts if len(shorts) == 1 else ()), f"n = {self.usual}"])
        kind = "Short budget" if self.table.own else "Short budget, no result"
        return f"{kind} ({why}): {text}"

    @property
    def _caption(self) -> str:
        numbers = "printed numbers" if self.printed and not self.run else ""
        return self._heading(" ".join(filter(None, [numbers, f"[{self._unit}]" if self._unit else ""])))

    def _head(self, column: Column) -> str:
        return column.heading if self._unit is None else column.title

    def _printed(self, row: Row, column: Column, spread: bool = True) -> Cell:
        """The printed number, which has no outcome."""
        cell = self.table.of[row.label, column.key]
        return replace(_looks(cell, _printed(cell, spread)), outcome=None)

    def _ours(self, row: Row, column: Column, form: Form) -> Cell:
        """Our number with the sign of its outcome, and its runs where they are not as many as usual."""
        cell = self.table.of[row.label, column.key]
        summary = self.counted(cell)
        text = form(summary, decimals(self.table, column))
        if summary and summary.n != self.usual:
            text += f" ({summary.n})"
        outcome = outcome_of(cell.state)
        if cell.state.word in TRIED:
            text = TRIED[cell.state.word]
        elif cell.published and outcome not in (NOT_RUN, NO_VERDICT):
            text += f" {outcome.sign}"
        return replace(_looks(cell, text), bold=row.label in self._best[column.key])

    def _means(self, form: Form) -> Grid:
        return self._lines(partial(self._ours, form=form))

    def _lines(self, value: Value, heads: Sequence[str] = (), before: Value | None = None) -> Grid:
        """A line for each model, with a value for each column, and another one before it if there is one."""
        ranks = self.ranks
        lines: list[tuple[Text, ...]] = []
        for row in self.rows:
            values = [each(row, column) for column in self.columns for each in (before, value) if each]
            rank = [f"{ranks[row.label]:.2f}" if row.label in ranks else NONE] if ranks else []
            lines += [(self._label(row), *rank, *values), *self._yours(row, before is not None)]
        heads = ("model", *(["mean rank"] if ranks else []), *(heads or map(self._head, self.columns)))
        return Grid(heads, tuple(lines), self._caption)

    def _brief(self) -> Grid:
        """Numbers of few characters below short heads, whose units the heading has."""
        heads = ("model", *(["rank"] if self.ranks else []), *(c.short or c.title for c in self.columns))
        units = _grouped(self.columns) if self._unit is None else ()
        caption = "; ".join(filter(None, [self._caption, *units]))
        grid = replace(self._means(brief_mean), heads=heads, heading=caption)
        return short_heads(grid, BRIEF + 1)

    def _pairs(self, spread: bool) -> Grid:
        """The printed number and ours for each column."""
        ours = partial(self._ours, form=mean_text if spread else bare_mean)
        names = [self._head(c) if spread else c.short or self._head(c) for c in self.columns]
        heads = [text for name in names for text in (f"{name}:\nprinted", "\nours")]
        return self._unranked(self._lines(ours, heads, partial(self._printed, spread=spread)))

    def _unranked(self, grid: Grid) -> Grid:
        return grid.without([1]) if self.ranks else grid

    def _stacked(self, width: int) -> Grid:
        """Ours on a line, and the printed numbers below it."""
        means = self._unranked(self._means(bare_mean))
        lines: list[tuple[Text, ...]] = []
        mean_lines = iter(means.lines)
        for row in self.rows:
            lines += [next(mean_lines) for _ in (row, *self._yours(row))]
            if any(cell.published for cell in self.cells(row)):
                printed = [Cell(_printed(cell, False), quoted=True) for cell in self.cells(row)]
                lines.append((Cell("  printed", quoted=True), *printed))
        heads = ("model", *(c.short or c.title for c in self.columns))
        return short_heads(replace(means, heads=heads, lines=tuple(lines)), width)

    def _yours(self, row: Row, paired: bool = False) -> Iterator[tuple[Text, ...]]:
        """The reader's own runs of a row, a line each. paired: below printed numbers cells stay empty."""
        cells = self.cells(row)
        runs = sorted({(mine.seed, mine.split, mine.label) for cell in cells for mine in cell.yours})
        for *_, label in runs:
            line = [label, *([""] if self.ranks else [])]
            for cell, column in zip(cells, self.columns, strict=True):
                value = next((mine.value for mine in cell.yours if mine.label == label), None)
                line += [*([""] if paired else []), value_text(value, decimals(self.table, column))]
            yield tuple(line)

    @cached_property
    def _best(self) -> dict[str, set[str]]:
        """The rows with the best mean of each column, as it is shown; none of a single number."""
        best = {}
        for column in self.columns:
            places = decimals(self.table, column)
            cells = [self.table.of[row.label, column.key] for row in self.rows]
            eligible = {cell.row: cell.eligible for cell in cells if self.counted(cell)}
            means = {row: round(mean, places) for row, mean in eligible.items() if mean is not None}
            best[column.key] = column.best(means) if len(means) > 1 else set()
        return best

    # --- lines below

    def below(self) -> Iterator[str]:
        if legend := self._legend():
            yield legend
        yield from group_lines(self.table, self.columns, NAMED)
        yield from search_lines(self.table, self.columns)
        yield from self._without_runs()
        if self.left:
            names = "; ".join(row.label for row in self.left)
            some = f"({len(self.left)}): --long" if len(self.left) > NAMED else f"(--long): {names}"
            yield f"Rows without printed numbers {some}"
        if others := [column.title for column in self.table.spec.columns if column not in self.columns]:
            yield f"Without printed numbers (--long): {'; '.join(others)}"
        yield from self.table.unlike
        if len(self.columns) > 1:
            titles = {column.key: column.title for column in self.columns}
            weak = [(cell, self.table.below(cell)) for cell in self.shown]
            yield from (f"{cell.row}, {titles[cell.column]}: {text}" for cell, text in weak if text)
        yield Coverage(self.table).text()

    def _without_runs(self) -> Iterator[str]:
        shown = {row.label for row in (*self.rows, *self.left)}
        rows = [row for row in self.table.spec.rows if row.label not in shown]
        if absent := [self._absent(row) for row in rows if not any(map(is_short, self.cells(row)))]:
            yield f"Not run: {'; '.join(absent)}"
        if blocked := sum(cell.state.word == "blocked" for cell in self.table.cells):
            cells = "1 cell" if blocked == 1 else f"{blocked} cells"
            yield f"Blocked on this machine: {cells} (why: --long)"
        failed = [cell.state.reason or "" for cell in self.table.cells if cell.state.word == "failed"]
        for reason, n in Counter(failed).items():
            yield f"Failed, {n} {'cell' if n == 1 else 'cells'}: {reason}"

    def _absent(self, row: Row) -> str:
        """A row that was not run, with its printed number where the table has one column."""
        cell = self.table.of[row.label, self.columns[0].key]
        return f"{row.label} {_printed(cell)}" if len(self.columns) == 1 and cell.published else row.label

    def _legend(self) -> str:
        """The signs of a matrix, and what else is not said in words."""
        cells = self.shown
        parts = [f"{QUOTED} quoted by the paper from other work"] if self.quoted else []
        if len(self.columns) > 1:
            used = {outcome_of(cell.state) for cell in cells if cell.published and self.counted(cell)} - {
                NOT_RUN
            }
            signs = [f"{outcome.sign} {outcome.name}" for outcome in SIX if outcome in used]
            ended = (cell for cell in cells if cell.state.word not in TRIED)
            odd = any(summary.n != self.usual for cell in ended if (summary := self.counted(cell)))
            diverged = any(cell.state.word == "diverged" for cell in cells)
            parts = [*signs, *parts, *(["div.: some runs diverged"] if diverged else [])]
            parts += [f"(k): k runs, else {self.usual}"] if odd else []
        return "  ".join(parts)


def _printed(cell: CellResult, spread: bool = True) -> str:
    text = printed_text(cell.published)
    return text if spread else text.partition(" ±")[0]


def _grouped(columns: Sequence[Column]) -> Iterator[str]:
    """Names of columns by their unit: `adding, FHN [1e-2]`."""
    by_unit = grouped((column.unit, column.short or column.title) for column in columns)
    yield from (f"{', '.join(names)} [{unit}]" for unit, names in by_unit.items() if unit)


def _looks(cell: CellResult, text: str) -> Cell:
    outcome: Outcome | None = outcome_of(cell.state)
    outcome = None if outcome in (NOT_RUN, NO_VERDICT) else outcome
    quoted = cell.published is not None and cell.published.quoted is not None
    return Cell(text, outcome, quoted=quoted, at=(cell.row, cell.column))
