"""A table in words, and its forms as files: Markdown and CSV. `screen` has that for the terminal.

Tables of results and tables of settings both become a `Document`; the writers know nothing else of them.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from physml.base import files
from physml.base.text import csv_cell, plain
from physml.report.state import State

NONE = "–"  # nothing can stand here
LONG = 32  # characters of a reason that a cell has room for


@dataclass(frozen=True)
class Grid:
    """Lines of equal length. On a terminal each has the colour of its state."""

    lines: tuple[tuple[str, ...], ...]
    states: tuple[State | None, ...] = ()  # of each line; None: the reader's own run
    heading: str = ""


@dataclass(frozen=True)
class References:
    """Scores of trivial predictions on the same data: lines of a name and a score for each column."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A further table, with a heading and heads of its own, and lines of text below it."""

    heading: str
    heads: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """The text of a table, ready for each output format.

    Args:
        heads: column heads of each grid.
        facts: lines printed below the table.
        values: heads and lines of the CSV file; None in a cell without a value.
        folded: pairs of columns that are stacked in narrow output; empty: none.
        by_width: columns by their importance on a terminal, which shows as many as it is wide; empty: all.
        reasons: reasons that are too long for a cell.
        claim: the text of the claim, then each comparison.
        sections: further tables of another form, below the claim and the references.
    """

    id: str
    title: str
    heads: tuple[str, ...]
    grids: tuple[Grid, ...]
    facts: tuple[str, ...]
    values: tuple[tuple[object, ...], ...]
    folded: tuple[tuple[int, ...], ...] = ()
    by_width: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    claim: tuple[str, ...] = ()
    references: References | None = None
    sections: tuple[Section, ...] = ()

    def without(self, *heads: str) -> "Document":
        """The same without these columns; the CSV file keeps them."""
        kept = [i for i, head in enumerate(self.heads) if head not in heads]
        new = {old: i for i, old in enumerate(kept)}
        grids = [
            replace(g, lines=tuple(tuple(line[i] for i in kept) for line in g.lines)) for g in self.grids
        ]
        return replace(
            self,
            heads=tuple(self.heads[i] for i in kept),
            grids=tuple(grids),
            folded=tuple(tuple(new[i] for i in stack if i in new) for stack in self.folded),
            by_width=tuple(new[i] for i in self.by_width if i in new),
        )


class Reasons:
    """Reasons too long for a cell, each once: the cell has its letter."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def short(self, state: State) -> str:
        """`blocked: <long reason>` as `blocked (a)`; a state that fits stays."""
        if state.word == "quoted":  # from whom stands beside the published number
            return state.word
        if state.reason is None or len(state.reason) <= LONG:
            return str(state)
        if state.reason not in self.found:
            self.found.append(state.reason)
        return f"{state.word} ({letters(self.found.index(state.reason))})"

    def lines(self) -> tuple[str, ...]:
        return tuple(f"({letters(i)}) {reason}" for i, reason in enumerate(self.found))


def letters(i: int) -> str:
    """a, b, .., z, aa, ab, ..

    Example:
        >>> letters(0), letters(25), letters(26)
        ('a', 'z', 'aa')
    """
    low = chr(ord("a") + i % 26)
    return low if i < 26 else letters(i // 26 - 1) + low


# --- Markdown


def markdown(document: Document) -> str:
    out = [f"# {document.id}: {md(document.title)}", ""]
    for grid in document.grids:
        out += [f"## {md(grid.heading)}", ""] if grid.heading else []
        out += [*md_table(document.heads, grid.lines), ""]
    if document.reasons:
        out += [*(f"- {md(line)}" for line in document.reasons), ""]
    if document.claim:
        text, *comparisons = document.claim
        out += [md(text), "", *(f"- {md(line)}" for line in comparisons), ""]
    if document.references:
        table = md_table(("reference", *document.references.columns), document.references.lines)
        out += ["## Trivial references, on the same test data", ""]
        out += [*(table if document.references.lines else ["None recorded yet."]), ""]
    for section in document.sections:
        out += [f"## {md(section.heading)}", ""]
        out += [*md_table(section.heads, section.lines), ""] if section.lines else []
        out += [*(f"- {md(line)}" for line in section.below), ""] if section.below else []
    out += [f"- {md(fact)}" for fact in document.facts]
    return "\n".join(out) + "\n"


def md_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    rows = [map(md, heads), ["---"] * len(heads), *(map(md, line) for line in lines)]
    return [f"| {' | '.join(row)} |" for row in rows]


def md(text: str) -> str:
    return " ".join(plain(text).split()).replace("|", "\\|")


# --- CSV


def comma_separated(document: Document) -> str:
    """Twelve digits, as many as all processors agree in; `NA` where nothing can stand."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(map(_number, line) for line in document.values)
    return out.getvalue()


def _number(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.12g}"
    return "NA" if value is None else csv_cell(value)


# --- files

FORMS: dict[str, Callable[[Document], str]] = {"md": markdown, "csv": comma_separated}


def write(document: Document, folder: Path) -> list[Path]:
    """Write <id>.md and .csv into `folder`, each whole or not at all; same table, same bytes."""
    paths = [folder / f"{document.id}.{suffix}" for suffix in FORMS]
    for path, form in zip(paths, FORMS.values(), strict=True):
        files.write_text(path, form(document))
    return paths
