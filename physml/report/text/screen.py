"""A document for the terminal, by rich: the first sight, and the rest where it is asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from physml.base.text import GLUE, glued, plain
from physml.report.text.document import Block, Cell, Document, Grid, Text, text_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text as Rich

LABEL = (16, 40)  # characters of a row's name: at least, and before it is cut or wrapped
COMFORT = 24  # characters of a row's name that are worth a wider gap between columns
GAP = 2  # between columns, or 1 where it is narrow
LOOKS = {"strong": "bold", "soft": "dim"}


@dataclass(frozen=True)
class Screen:
    """A document for rich's `Console().print(...)`."""

    document: Document
    long: bool = False
    rules: bool = False

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Lines without blanks at their end; of empty lines one after the other, the first."""
        from rich.console import Group
        from rich.segment import Segment

        before = ""
        for line in console.render_lines(Group(*self._parts(options.max_width)), options, pad=False):
            whole = "".join(segment.text for segment in line).rstrip()
            if whole or before:
                for segment in Segment.adjust_line_length(line, cell_len(whole), pad=False):
                    yield segment._replace(text=segment.text.replace(GLUE, " "))
                yield Segment.line()
            before = whole

    def _parts(self, width: int) -> "Iterator[RenderableType]":
        document = self.document
        yield _rich(glued(f"{document.id}: {document.title}"), "bold")
        shown = [*document.first]
        shown += document.long if self.long else ()
        shown += document.rules if self.rules else ()
        for block in shown:
            yield from _block(block, width)
        shown_already = {"--long": self.long, "--rules": self.rules}
        if more := [f"{name} ({what})" for name, what in document.more.items() if not shown_already[name]]:
            yield _rich(f"More: {', '.join(more)}", "dim")


def _block(block: Block, width: int) -> "Iterator[RenderableType]":
    if isinstance(block, Grid):
        block = fitted(block, width)
    if block.heading:
        yield _rich(f"\n{block.heading}", "italic")
    if isinstance(block, Grid):
        yield from (() if block.heading else (_rich(""),))
        yield from (_table(block, width), _rich(""))
        return
    for line in block.lines:
        yield _rich(glued(f"- {line}" if block.look == "items" else line), LOOKS.get(block.look, ""))


def _width(grid: Grid, label: int, gap: int) -> int:
    """Characters of a line when the first column has no more than `label`."""
    widths = [max(map(_columns, column)) for column in zip(grid.heads, *grid.lines, strict=True)]
    return min(widths[0], label) + sum(widths[1:]) + gap * (len(widths) - 1)


def _columns(text: Text) -> int:
    return max((cell_len(line) for line in plain(text_of(text)).split("\n")), default=0)


def fitted(grid: Grid, width: int) -> Grid:
    """The widest form of a grid that fits, else the narrowest, stacked where it can be."""
    while _width(grid, LABEL[0], GAP) > width and grid.narrow is not None:
        grid = grid.narrow
    if _width(grid, LABEL[0], GAP) <= width or not grid.folded:
        return grid
    fold = grid.folded
    heads = tuple("\n".join(grid.heads[i] for i in stack) for stack in fold)
    lines = tuple(tuple("\n".join(text_of(line[i]) for i in stack) for stack in fold) for line in grid.lines)
    return Grid(heads, lines, grid.heading, grid.outcomes)


def _table(grid: Grid, width: int) -> "RenderableType":
    """Long names of rows are cut where they still differ then, else wrapped."""
    from rich import box
    from rich.table import Table

    gap = GAP if _width(grid, COMFORT, GAP) <= width else 1
    label = max(LABEL[0], min(LABEL[1], width - _width(grid, 0, gap)))
    names = {plain(text_of(line[0])) for line in grid.lines}
    cut = len({name[: label - 1] for name in names}) == len(names) and "\n" not in "".join(names)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0), show_edge=False)
    for i, head in enumerate(grid.heads):
        look: Any = {"max_width": label, "no_wrap": cut, "overflow": "ellipsis" if cut else "fold"}
        table.add_column(_rich(head), **(look if i == 0 else {"overflow": "fold"}))
    for i, line in enumerate(grid.lines):
        outcome = grid.outcomes[i] if i < len(grid.outcomes) else None
        table.add_row(*map(_rich, line), style=outcome.colour if outcome else "")
    return table


def _rich(text: Text, style: str = "") -> "Rich":
    from rich.text import Text as Rich

    if not isinstance(text, Cell):
        return Rich(_plain(text), style=style)
    looks: Sequence[str] = (
        *(["bold"] if text.bold else []),
        *(["dim"] if text.quoted else [text.outcome.colour] if text.outcome else []),
    )
    return Rich(_plain(text.text), style=" ".join(looks))


def _plain(text: str) -> str:
    """A spread stays with its sign: a narrow cell is broken before it."""
    return plain(text).replace("± ", f"±{GLUE}")
