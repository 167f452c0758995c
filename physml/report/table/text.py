"""A table of results in words: cells, verdicts, claims and facts become a `Document`."""

from collections.abc import Iterator

from physml.report.state import State
from physml.report.stats.claims import Gain
from physml.report.table import ranks_text
from physml.report.table import values as table_values
from physml.report.table.claims import ClaimPart
from physml.report.table.collect import CellResult, Table, Yours
from physml.report.table.fact_text import fact_lines, reason_lines
from physml.report.table.numbers import (
    decimals,
    difference_text,
    gain_text,
    interval_text,
    mean_text,
    memory_text,
    params_text,
    published_text,
    ratio_text,
    solved_text,
    time_text,
)
from physml.report.table.spec import Claim, Column
from physml.report.text.document import NONE, Document, Grid, Reasons, References, Section

HEADS = (
    "model",
    "published",
    "ours",
    "runs",
    "95 % interval",
    "best",
    "difference",
    "settings",
    "outcome",
    "parameters",
    "time, per step",
    "peak memory",
)
FOLDED = ((0, 9, 11), (1, 6), (2, 4), (3, 5), (8, 7, 10))  # heads above each other where it is narrow
BY_WIDTH = (0, 1, 2, 8, 3, 6, 4, 7, 5, 9, 10, 11)  # columns on a terminal, the first four always
ALL_COLUMNS = "All columns: means"  # the heading of a section


def document(table: Table) -> Document:
    spec = table.spec
    reasons = Reasons()
    grids = tuple(_grid(table, column, reasons) for column in spec.columns)
    titles = tuple(f"{c.title} [{c.unit}]" if c.unit else c.title for c in spec.columns)
    overview = (_overview(table, titles),) if table.own and len(titles) > 1 else ()
    made = Document(
        id=spec.id,
        title=spec.title,
        heads=HEADS,
        grids=grids,
        facts=(*fact_lines(table), *reason_lines(spec), *(f"Note: {note}" for note in spec.notes)),
        values=tuple(table_values.values(table)),
        folded=FOLDED,
        by_width=BY_WIDTH,
        reasons=reasons.lines(),
        claim=tuple(claim_lines(table)),
        references=References(titles, tuple(_reference_lines(table))),
        sections=(*overview, *ranks_text.sections(table.ranking)),
    )
    return made.without("published", "difference") if table.own else made


def _overview(table: Table, titles: tuple[str, ...]) -> Section:
    """The means of all columns beside each other."""
    columns = table.spec.columns
    lines = []
    for row in table.spec.rows:
        cells = [next(cell for cell in table.column(c.key) if cell.row == row.label) for c in columns]
        means = (
            NONE if cell.summary is None else f"{cell.summary.mean:.{decimals(table, c)}f}"
            for cell, c in zip(cells, columns, strict=True)
        )
        lines.append((row.label, *means))
    return Section(ALL_COLUMNS, ("model", *titles), tuple(lines))


def _grid(table: Table, column: Column, reasons: Reasons) -> Grid:
    """One column of the paper's table, with a line for every row."""
    places = decimals(table, column)
    lines: list[tuple[str, ...]] = []
    states: list[State | None] = []
    for cell in table.column(column.key):
        lines.append(
            (
                f"{cell.row} (not in the paper)" if cell.extra else cell.row,
                published_text(cell.published),
                mean_text(cell.summary, places) + solved_text(cell, column),
                f"{cell.done}/{cell.wanted}" if cell.wanted else NONE,
                interval_text(cell.summary, places),
                NONE if cell.summary is None else f"{cell.summary.best:.{places}f}",
                difference_text(cell, column, places),
                NONE if cell.settings is None else str(cell.settings),
                reasons.short(cell.state),
                params_text(cell),
                time_text(cell),
                memory_text(cell),
            )
        )
        states.append(cell.state)
        lines += [_yours_line(mine, places) for mine in cell.yours]
        states += [None] * len(cell.yours)
    unit = f" [{column.unit}]" if column.unit else ""
    heading = f"{column.title}{unit}: {column.metric}, {column.better} is better, protocol {column.protocol}"
    return Grid(tuple(lines), tuple(states), heading)


def _yours_line(mine: Yours, places: int) -> tuple[str, ...]:
    split = f", split {mine.split}" if mine.split else ""
    value = NONE if mine.value is None else f"{mine.value:.{places}f}"
    gaps = [NONE] * (len(HEADS) - 9)
    label = f"your run (seed {mine.seed}{split})"
    return (label, NONE, value, "1", NONE, NONE, NONE, NONE, str(mine.state), *gaps)


def _reference_lines(table: Table) -> Iterator[tuple[str, ...]]:
    """Trivial predictions on the same splits, one line each; then each row's gain over the best of them."""
    for name, scores in table.references.items():
        line = [name]
        for column in table.spec.columns:
            places = decimals(table, column)
            if column.key not in scores:
                line.append(NONE)
                continue
            line.append(mean_text(scores[column.key], places))
        yield tuple(line)
    for row in table.spec.rows:
        cells = [next(c for c in table.column(k.key) if c.row == row.label) for k in table.spec.columns]
        if any(cell.over for cell in cells):
            texts = (
                _over_text(cell, decimals(table, c))
                for cell, c in zip(cells, table.spec.columns, strict=True)
            )
            yield f"{row.label}: gain", *texts


def _over_text(cell: CellResult, places: int) -> str:
    if cell.over is None:
        return NONE
    name, found = cell.over
    return f"{gain_text(found.mean, found.low, found.high, places)} over {name}"


def claim_lines(table: Table) -> list[str]:
    claim = table.spec.claim
    if claim is None:
        return []
    if not isinstance(claim, Claim):
        return [f"Claim: {claim}. Not put into numbers."]
    tested = "ranking and amounts" if claim.amounts else "ranking"
    lines = [f"Claim: {claim.text}. Its {tested}: {table.claim_verdict or 'no verdict yet'}."]
    columns = {c.key: c for c in table.spec.columns}
    for part in table.claim:
        column = columns[part.column]
        text = "no comparable runs" if part.gain is None else _part_text(part, part.gain, column, table)
        lines.append(f"{part.text} ({column.key}): {text}")
    return lines


def _part_text(part: ClaimPart, found: Gain, column: Column, table: Table) -> str:
    places = decimals(table, column)
    unit = f" in {column.unit}" if column.unit else ""
    if part.ratio:
        text = f"ratio {ratio_text(found)}, n = {found.n}"
    else:
        text = f"gain {gain_text(found.mean, found.low, found.high, places)}{unit}, n = {found.n}"
    if part.p is not None:
        text += f", p = {part.p:.2g}" if part.p >= 1e-4 else ", p < 0.0001"
    if found.new_low is not None and not part.ratio:
        text += f"; on new splits {gain_text(found.mean, found.new_low, found.new_high, places)}"
    return f"{part.verdict or 'no verdict'} ({text})"
