"""Tables that fit a terminal: the columns that matter most, short forms of long cells, folded rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from physml.report.text.document import Document, Grid

ALWAYS = 4  # the first columns by importance are shown whatever the width
LABELS = (12, 30)  # characters of a row's name before it is wrapped: a fifth of the width, within these
FOLDED = ("quoted", "no printed number, not run")  # states of rows that share one line
PUBLISHED = "published"  # the head of the column with the paper's numbers
GAP = 2  # between columns, with what rich adds


@dataclass(frozen=True)
class Fitted:
    """Columns that fit, in their usual order, the lines of each grid, and what is said of the rest."""

    label: int  # characters of a row's name before it is wrapped
    heads: tuple[str, ...]
    grids: tuple[tuple[tuple[str, ...], ...], ...]
    notes: tuple[str, ...] = ()


def short(text: str) -> str:
    """A cell without what stands in brackets, but for the letter of a reason.

    Example:
        >>> short("82.43 ± 6.14 (mean of 10)"), short("-3.58 [-9.1, +2.0]"), short("blocked (c)")
        ('82.43 ± 6.14', '-3.58', 'blocked (c)')
    """
    return re.sub(r" (\((?![a-z]{1,2}\))[^()]*\)|\[[^\[\]]*\])$", "", text)


def fitted(document: Document, grids: Sequence[Grid], width: int) -> Fitted:
    """The columns for which there is room, the same in every grid.

    First the most important columns in short forms, then more columns, then their full forms.
    """
    lines = [line for grid in grids for line in grid.lines]
    full = [[line[i] for line in lines] for i in range(len(document.heads))]
    brief = [list(map(short, column)) for column in full]
    chosen = {i: brief[i] for i in document.by_width[:ALWAYS]}

    label = min(LABELS[1], max(LABELS[0], width // 5))

    def fits(columns: dict[int, list[str]]) -> bool:
        widths = [max(map(cell_len, [document.heads[i], *column])) for i, column in columns.items()]
        widths[0] = min(widths[0], label)
        return sum(widths) + GAP * (len(widths) - 1) <= width

    for i in document.by_width[ALWAYS:]:
        if fits(chosen | {i: brief[i]}):
            chosen[i] = brief[i]
    for i in document.by_width:
        if i in chosen and fits(chosen | {i: full[i]}):
            chosen[i] = full[i]
    shown = sorted(chosen)
    rows = iter(zip(*(chosen[i] for i in shown), strict=True))
    parts = tuple(tuple(next(rows) for _ in grid.lines) for grid in grids)
    return Fitted(label, tuple(document.heads[i] for i in shown), parts, _notes(document, full, chosen))


def _notes(
    document: Document, full: Sequence[Sequence[str]], chosen: dict[int, list[str]]
) -> tuple[str, ...]:
    """Notes: what all published numbers leave out alike, and the columns that do not fit."""
    notes = []
    if PUBLISHED in document.heads:
        published = document.heads.index(PUBLISHED)
        pairs = zip(full[published], chosen[published], strict=True)
        cut = {long.removeprefix(brief).strip(" ()") for long, brief in pairs if long != brief}
        notes += [f"{PUBLISHED}: {cut.pop()}"] if len(cut) == 1 else []
    if hidden := [head for i, head in enumerate(document.heads) if i not in chosen]:
        notes.append(f"For {', '.join(hidden)} a wider terminal is needed.")
    return tuple(notes)


def folded_rows(grid: Grid) -> tuple[Grid, str]:
    """The grid without rows that were not run here and need not be, and one line for all of them."""
    states = grid.states or (None,) * len(grid.lines)
    rows = list(zip(grid.lines, states, strict=True))
    quoted = [line for line, state in rows if state is not None and state.word == "quoted"]
    found = [(float(match[0]), line[0]) for line in quoted if (match := re.match(r"-?[\d.]+", line[1]))]
    kept = [(line, state) for line, state in rows if state is None or state.word not in FOLDED]
    others = len(rows) - len(kept) - len(quoted)
    if not kept or len(rows) - len(kept) < 2 or len(found) < len(quoted):
        return grid, ""
    said = []
    if found:
        (low, first), (high, last) = min(found), max(found)
        span = f"{low:g} ({first}) to {high:g} ({last})" if len(found) > 1 else f"{low:g} ({first})"
        said.append(f"{len(quoted)} quoted: {span}")
    said += [f"{others} not run, without a printed number"] if others else []
    note = f"More rows (--all-rows): {'; '.join(said)}"
    return Grid(tuple(line for line, _ in kept), tuple(state for _, state in kept), grid.heading), note
