"""A table for the terminal, by rich: a line a row, with as many columns as the terminal is wide.

What is no terminal, such as a pipe or a file, gets all columns, stacked where they do not fit side by side.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from physml.base.text import plain
from physml.report.state import State
from physml.report.text.document import Document
from physml.report.text.narrow import fitted, folded_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.text import Text

WIDEST_LABEL = 30  # characters; longer names of rows are wrapped
COLOURS = {
    "green": {"agrees", "reached", "exceeded", "differs: better", "same", "rounded", "inside"},
    "red": {"differs: worse", "failed", "diverged"},
    "dim": {
        *("not published", "not run here", "quoted", "no printed number, not run"),
        *("no printed value at hand", "no experiment", "no search"),
    },
}


def _colour(state: State | None) -> str:
    if state is None:
        return "cyan"
    return next((colour for colour, words in COLOURS.items() if state.word in words), "yellow")


@dataclass(frozen=True)
class Screen:
    """A document for rich's `Console().print(...)`. all_rows: quoted rows too, each on a line."""

    document: Document
    all_rows: bool = False

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        if console.is_terminal and self.document.by_width:
            yield self._by_width(options.max_width)
            return
        from rich.table import Table

        wide = self._group(False)
        grids = [part for part in wide.renderables if isinstance(part, Table)]
        needed = max(console.measure(grid, options=options.update(width=10_000)).maximum for grid in grids)
        fits = not self.document.folded or needed <= options.max_width
        yield wide if fits else self._group(True)

    def _group(self, folded: bool) -> "Group":
        """Everything, in the order of the files."""
        from rich.console import Group

        document = self.document
        fold = document.folded if folded else ()
        parts: list[RenderableType] = [_text(f"{document.id}: {document.title}", style="bold"), _text()]
        for grid in document.grids:
            parts += [_text(grid.heading, style="italic")] if grid.heading else []
            parts += [_table(document.heads, grid.lines, [_colour(s) for s in grid.states], fold), _text()]
        return Group(*parts, *self._reasons(), *self._references(), *self._claim(0), *self._below())

    def _by_width(self, width: int) -> "Group":
        """The claim first; each row on a line, those that were not run here in one line for all of them."""
        from rich.console import Group

        document = self.document
        parts: list[RenderableType] = [_text(f"{document.id}: {document.title}", style="bold")]
        parts += [*map(_text, document.claim[:1]), _text()]
        kept = [(grid, "") if self.all_rows else folded_rows(grid) for grid in document.grids]
        made = fitted(document, [grid for grid, _ in kept], width)
        for (grid, note), lines in zip(kept, made.grids, strict=True):
            parts += [_text(grid.heading, style="italic")] if grid.heading else []
            parts += [_table(made.heads, lines, [_colour(state) for state in grid.states], label=made.label)]
            parts += [_text(note, style="dim")] if note else []
            parts.append(_text())
        parts += [*(_text(note, style="dim") for note in made.notes), *([_text()] if made.notes else [])]
        return Group(*parts, *self._reasons(), *self._references(), *self._claim(1), *self._below())

    def _reasons(self) -> "list[RenderableType]":
        return [*map(_text, self.document.reasons), _text()] if self.document.reasons else []

    def _references(self) -> "list[RenderableType]":
        found = self.document.references
        if found is None or not found.lines:
            return []
        return [_table(("trivial reference", *found.columns), found.lines), _text()]

    def _claim(self, first: int) -> "list[RenderableType]":
        """The claim and its comparisons, or those alone."""
        claim = self.document.claim
        lines = [_text(f"  {line}") if i else _text(line, style="bold") for i, line in enumerate(claim)]
        return [*lines[first:]]

    def _below(self) -> "list[RenderableType]":
        document, parts = self.document, list["RenderableType"]()
        for section in document.sections:
            parts += [_text(), _text(section.heading, style="italic")]
            parts += [_table(section.heads, section.lines)] if section.lines else []
            parts += map(_text, section.below)
        parts += [_text()] if document.sections else []
        return parts + [_text(fact, style="dim") for fact in document.facts]


def _text(text: str = "", style: str = "") -> "Text":
    from rich.text import Text

    return Text(plain(text), style=style)


def _table(
    heads: Sequence[str],
    lines: Iterable[Sequence[str]],
    styles: Sequence[str] = (),
    folded: Sequence[Sequence[int]] = (),
    label: int = WIDEST_LABEL,
) -> "RenderableType":
    from rich import box
    from rich.table import Table

    def fold(line: Sequence[str]) -> Sequence[str]:
        return ["\n".join(line[k] for k in stacked) for stacked in folded] or line

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for i, head in enumerate(fold(heads)):
        table.add_column(_text(head), overflow="fold", max_width=label if i == 0 else None)
    for i, line in enumerate(lines):
        table.add_row(*map(_text, fold(line)), style=styles[i] if styles else "")
    return table
