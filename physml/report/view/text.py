"""A table of results in words: cells, verdicts, claims and facts become a `Document`."""

import dataclasses
from collections.abc import Iterator

from physml.config.conf_files import shown
from physml.report.outcome import Outcome, outcome_of
from physml.report.stats.claims import Gain, p_text
from physml.report.table.claims import ClaimPart
from physml.report.table.collect import CellResult, Table
from physml.report.table.fact_text import fact_lines, reason_lines, rule_lines
from physml.report.table.numbers import (
    NO_PRINT,
    cell_texts,
    decimals,
    gain_text,
    labelled,
    mean_text,
    ratio_text,
    solved_text,
    value_text,
)
from physml.report.table.ranks import rank_blocks, rank_values
from physml.report.table.spec import Claim, Column
from physml.report.text.document import NONE, Document, Grid, Lines, Reasons, blocks, text_of
from physml.report.view.first_sight import MORE, first_sight

HEADS = {
    "model": "model", "published": "published", "ours": "ours", "runs": "runs", "interval": "95 % interval",
    "best": "best", "difference": "difference", "settings": "settings", "outcome": "outcome",
    "parameters": "parameters", "time": "time, per step", "memory": "peak memory",
}  # fmt: skip
FOLDED = ((0, 9, 11), (1, 6), (2, 4), (3, 5), (8, 7, 10))  # heads above each other where it is narrow
PAPER = (1, 6)  # columns that a table of our own does not have
CSV_HEADS = (
    "table", "row", "column", "metric", "unit", "better", "protocol", "experiment",
    "published", "published_sd", "published_n", "published_statistic",
    "mean", "sd", "n", "low", "high", "within_low", "within_high", "search_sd", "best", "done", "wanted",
    "settings", "gain", "gain_low", "gain_high", "margin", "readings", "state",
    "reference", "over", "over_low", "over_high",
    "parameters", "parameters_printed", "train_s", "ms_per_step",
    "peak_memory_mib", "solved",
)  # fmt: skip


def document(table: Table) -> Document:
    """A table as it stands in a file, on a page and on a terminal."""
    reasons = Reasons()
    grids, alike = _without_constants(
        [_grid(table, column, reasons) for column in table.spec.columns], table.own
    )
    titles = tuple(column.heading for column in table.spec.columns)
    claim = claim_lines(table)
    references = tuple(_reference_lines(table))
    return Document(
        id=table.spec.id,
        title=table.spec.title,
        first=first_sight(table),
        long=blocks(
            *grids,
            Lines((*alike, *reasons.lines()), look="items"),
            Lines(tuple(claim[:1])),
            Lines(tuple(claim[1:]), look="items"),
            Grid(("reference", *titles), references, "Trivial references, on the same test data"),
            *rank_blocks(table.ranking),
            Lines(tuple(fact_lines(table)), "How it was made", "items"),
            Lines(tuple(reason_lines(table.spec)), "Reasons, as far as known", "items"),
            Lines(table.spec.notes, "Notes", "items"),
        ),
        rules=blocks(Lines(tuple(rule_lines(table)), look="items")),
        more=MORE,
        values=tuple(values(table)),
    )


def _without_constants(grids: list[Grid], own: bool) -> tuple[list[Grid], list[str]]:
    """The grids without columns whose texts are all alike, which are said once."""
    lines = [line for grid in grids for line in grid.lines]
    texts = [{text_of(line[i]) for line in lines} for i in range(len(HEADS))]
    gone = [i for i, column_texts in enumerate(texts) if i and len(column_texts) == 1 and len(lines) > 1]
    heads = tuple(HEADS.values())
    alike = [f"{heads[i]}: {text}" for i in gone for text in texts[i] if text not in (NONE, NO_PRINT)]
    dropped = {*gone, *(PAPER if own else ())}
    return [grid.without(dropped) for grid in grids], [f"All rows: {'; '.join(alike)}"] if alike else []


def _grid(table: Table, column: Column, reasons: Reasons) -> Grid:
    """One column of the paper's table, with a line for every row."""
    places = decimals(table, column)
    lines: list[tuple[dict[str, str], Outcome | None]] = []
    for cell in table.column(column.key):
        texts = cell_texts(cell, column, places)
        texts["ours"] += solved_text(cell, column)
        texts |= {"model": labelled(cell.row, cell.extra), "outcome": reasons.short(cell.state)}
        lines.append((texts, outcome_of(cell.state)))
        for mine in cell.yours:
            texts = {"model": mine.label, "ours": value_text(mine.value, places), "runs": "1"}
            lines.append((texts | {"outcome": str(mine.state)}, None))
    heading = f"{column.heading}: {column.metric}, {column.better} is better, protocol {column.protocol}"
    texts_of_lines = tuple(tuple(texts.get(key, NONE) for key in HEADS) for texts, _ in lines)
    return Grid(tuple(HEADS.values()), texts_of_lines, heading, tuple(o for _, o in lines), FOLDED)


def _reference_lines(table: Table) -> Iterator[tuple[str, ...]]:
    """Trivial predictions on the same splits, one line each; then each row's gain over the best of them."""
    columns = [(column.key, decimals(table, column)) for column in table.spec.columns]
    for name, scores in table.references.items():
        yield name, *(mean_text(scores.get(key), places) for key, places in columns)
    for row in table.spec.rows:
        cells = [(table.of[row.label, key], places) for key, places in columns]
        if any(cell.over for cell, _ in cells):
            yield f"{row.label}: gain", *(_over_text(cell, places) for cell, places in cells)


def _over_text(cell: CellResult, places: int) -> str:
    if cell.over is None:
        return NONE
    name, gain = cell.over
    return f"{gain_text(gain.mean, gain.low, gain.high, places)} over {name}"


def claim_lines(table: Table) -> list[str]:
    claim = table.spec.claim
    if not isinstance(claim, Claim):
        return [f"Claim: {claim}. Not put into numbers."] if claim is not None else []
    tested = "ranking and amounts" if claim.amounts else "ranking"
    lines = [f"Claim: {claim.text}. Its {tested}: {table.claim_verdict or 'no verdict yet'}."]
    columns = {c.key: c for c in table.spec.columns}
    for part in table.claim:
        column = columns[part.column]
        none = f"no comparable runs{' with positive values' if part.ratio else ''}"
        text = none if part.gain is None else _part_text(part, part.gain, column, table)
        lines.append(f"{part.text} ({column.key}): {text}")
    return lines


def _part_text(part: ClaimPart, gain: Gain, column: Column, table: Table) -> str:
    places = decimals(table, column)
    unit = f" in {column.unit}" if column.unit else ""
    text = f"gain {gain_text(gain.mean, gain.low, gain.high, places)}{unit}, n = {gain.n}"
    if part.ratio:
        text = f"ratio {ratio_text(gain)}, n = {gain.n}"
    if part.p is not None:
        text += f", {p_text(part.p)}"
    if gain.new_low is not None and not part.ratio:
        text += f"; on new splits {gain_text(gain.mean, gain.new_low, gain.new_high, places)}"
    if part.chance:
        text += f"; the second is not shown to beat {part.chance}"
    return f"{part.verdict or 'no verdict'} ({text})"


# --- the numbers, unrounded, for the CSV file


def values(table: Table) -> Iterator[tuple[object, ...]]:
    """The heads, then a line per row and column, in full precision; trivial references, and ranks."""
    yield CSV_HEADS
    for known in (*_value_lines(table), *rank_values(table.ranking)):
        known |= {"table": table.spec.id}
        yield tuple(known.get(head) for head in CSV_HEADS)


PRINTED = {
    "published": "value", "published_sd": "sd", "published_n": "n", "published_statistic": "statistic"
}  # fmt: skip
OURS = ("mean", "sd", "n", "low", "high", "best")
OVER = {"over": "mean", "over_low": "low", "over_high": "high"}


def _value_lines(table: Table) -> Iterator[dict[str, object]]:
    """Trivial references are rows whose state is `trivial reference`."""
    rows = {row.label: row for row in table.spec.rows}

    def line(label: str, column: Column, **values: object) -> dict[str, object]:
        return {
            "row": label, "column": column.key, "metric": column.metric, "unit": column.unit or "1",
            "better": column.better, "protocol": column.protocol, **values,
        }  # fmt: skip

    for column in table.spec.columns:
        for cell in table.column(column.key):
            comparison = cell.comparison
            within, over = cell.within or (None, None), cell.over or (None, None)
            yield line(
                cell.row, column,
                experiment=shown(table.spec.cell(rows[cell.row], column).experiment or "") or None,
                **{head: getattr(cell.published, name, None) for head, name in PRINTED.items()},
                **{name: getattr(cell.summary, name, None) for name in OURS},
                within_low=within[0], within_high=within[1], search_sd=getattr(cell.search, "sd", None),
                done=cell.done, wanted=cell.wanted, settings=cell.settings,
                gain=comparison and comparison.delta,
                gain_low=comparison and min(r.low for r in comparison.readings),
                gain_high=comparison and max(r.high for r in comparison.readings),
                margin=cell.published and column.margin.of(cell.published),
                readings=comparison
                and "; ".join(f"{r.assumption}: {r.outcome}" for r in comparison.readings),
                state=cell.state, reference=over[0],
                **{head: getattr(over[1], name, None) for head, name in OVER.items()},
                parameters=cell.params_ours,
                parameters_printed=cell.params_paper, train_s=cell.train_s, ms_per_step=cell.ms_per_step,
                peak_memory_mib=cell.peak_memory_mib, solved=cell.solved,
            )  # fmt: skip
            for mine in cell.yours:
                yield line(f"{cell.row}: {mine.label}", column, best=mine.value, state=mine.state)
        for name, scores in table.references.items():
            if column.key in scores:
                score = dataclasses.asdict(scores[column.key]) | {"best": None}
                yield line(name, column, **score, state="trivial reference")
