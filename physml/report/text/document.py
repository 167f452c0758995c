"""A table, a comparison or a list in words: one document, with writers for Markdown and CSV.

`screen` writes it to a terminal, the site's templates as HTML. The writers know nothing of what it is about.
"""

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from physml.base import files
from physml.base.text import csv_cell, plain
from physml.report.outcome import Outcome, State

Key = TypeVar("Key")
Value = TypeVar("Value")
NONE = "–"  # nothing can stand here
LONG = 32  # characters of a reason that a cell has room for
LONG_TITLE = "All columns, comparisons, references, reasons and notes"
RULES_TITLE = "Rules"


@dataclass(frozen=True)
class Cell:
    """A text with its looks. at: row and column of a table, where it has a page of its own."""

    text: str
    outcome: Outcome | None = None
    bold: bool = False
    quoted: bool = False  # context: grey
    at: tuple[str, str] | None = None


Text = str | Cell


def text_of(text: Text) -> str:
    return text.text if isinstance(text, Cell) else text


@dataclass(frozen=True)
class Grid:
    """A table of lines of equal length."""

    heads: tuple[str, ...]  # heads of the columns
    lines: tuple[tuple[Text, ...], ...]  # texts; one that is a `Cell` has looks of its own
    heading: str = ""  # above it
    outcomes: tuple[Outcome | None, ...] = ()  # outcome of each line, which has its colour on a terminal
    folded: tuple[tuple[int, ...], ...] = ()  # columns that are stacked where the lines do not fit
    narrow: "Grid | None" = None  # the same in less width

    def without(self, dropped: Iterable[int]) -> "Grid":
        """The same without these columns."""
        gone = set(dropped)
        kept = [i for i in range(len(self.heads)) if i not in gone]
        new = {old: i for i, old in enumerate(kept)}
        stacks = [tuple(new[i] for i in stack if i in new) for stack in self.folded]
        return replace(
            self,
            heads=tuple(self.heads[i] for i in kept),
            lines=tuple(tuple(line[i] for i in kept) for line in self.lines),
            folded=tuple(stack for stack in stacks if stack),
        )


@dataclass(frozen=True)
class Lines:
    """Lines of text. look: `strong`, `soft`, or a list with `items`."""

    lines: tuple[str, ...]
    heading: str = ""
    look: str = ""


Block = Grid | Lines


@dataclass(frozen=True)
class Document:
    """The text of a table, ready for each output format."""

    id: str
    title: str
    first: tuple[Block, ...]  # what is shown at first sight
    long: tuple[Block, ...] = ()  # the rest: all columns, comparisons, references, notes
    rules: tuple[Block, ...] = ()  # how verdicts are made
    more: Mapping[str, str] = field(default_factory=dict)  # option of a terminal -> what it adds
    values: tuple[tuple[object, ...], ...] = field(default=(), repr=False)  # heads and lines of the CSV


def blocks(*parts: Block) -> tuple[Block, ...]:
    """Those that have lines."""
    return tuple(block for block in parts if block.lines)


class Reasons:
    """Reasons too long for a cell, each once: the cell has its letter."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def short(self, state: State) -> str:
        """`blocked: <long reason>` as `blocked (a)`; a state that fits stays."""
        if state.word == "quoted":  # from whom stands beside the published number
            return state.word
        if state.reason is None or len(state.reason) <= LONG:
            return str(state)
        if state.reason not in self.reasons:
            self.reasons.append(state.reason)
        return f"{state.word} ({letters(self.reasons.index(state.reason))})"

    def lines(self) -> tuple[str, ...]:
        return tuple(f"({letters(i)}) {reason}" for i, reason in enumerate(self.reasons))


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Values by their keys, both in their order.

    Example:
        >>> grouped([("not run", "A"), ("stale", "B"), ("not run", "C")])
        {'not run': ['A', 'C'], 'stale': ['B']}
    """
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def letters(i: int) -> str:
    """a, b, .., z, aa, ab, ..

    Example:
        >>> letters(0), letters(25), letters(26)
        ('a', 'z', 'aa')
    """
    low = chr(ord("a") + i % 26)
    return low if i < 26 else letters(i // 26 - 1) + low


# --- heads broken into lines, for tables in little width


def short_heads(grid: Grid, least: int) -> Grid:
    """Heads broken into lines as wide as their column."""
    heads = [grid.heads[0]]
    for head, column in zip(grid.heads[1:], list(zip(*grid.lines, strict=True))[1:], strict=True):
        heads.append(broken(head, max(least, *(len(text_of(text)) for text in column))))
    return replace(grid, heads=tuple(heads))


def broken(head: str, width: int) -> str:
    r"""A head in lines of this width: between words, at hyphens, before capitals; what is longer is cut.

    Example:
        >>> broken("FitzHugh-Nagumo [1e-2]", 9), broken("JapaneseVowels", 8)
        ('FitzHugh-\nNagumo\n[1e-2]', 'Japanese\nVowels')
    """
    if len(head) <= width:
        return head
    words = head.split()
    for joint in (r"(?<=\w{3}-)(?=\w{3})", r"(?<=[a-z]{3})(?=[A-Z][a-z])"):
        parted = ([word] if len(word) <= width else re.split(joint, word) for word in words)
        words = [part for parts in parted for part in parts]
    cut = [part if len(part) <= width else f"{part[: width - 1]}." for part in words]
    return "\n".join(textwrap.wrap(" ".join(cut), width, break_long_words=False, break_on_hyphens=False))


# --- Markdown


def markdown(document: Document) -> str:
    """The first sight, and the rest in parts that open."""
    out = [f"# {document.id}: {md(document.title)}", "", *_blocks(document.first, "*{}*")]
    for title, parts in ((LONG_TITLE, document.long), (RULES_TITLE, document.rules)):
        if parts:
            out += ["<details>", f"<summary>{title}</summary>", "", *_blocks(parts), "</details>", ""]
    return "\n".join(out[:-1]) + "\n"


def _blocks(parts: Iterable[Block], heading: str = "## {}") -> list[str]:
    out: list[str] = []
    for block in parts:
        out += [heading.format(md(block.heading)), ""] if block.heading else []
        if isinstance(block, Grid):
            out += [*md_table(block.heads, block.lines), ""]
        elif block.look == "items":
            out += [*(f"- {md(line)}" for line in block.lines), ""]
        else:
            for line in block.lines:
                out += [md(line), ""]
    return out


def md_table(heads: Sequence[str], lines: Iterable[Sequence[Text]]) -> list[str]:
    rows = [map(md, heads), ["---"] * len(heads), *(map(_md_cell, line) for line in lines)]
    return [f"| {' | '.join(row)} |" for row in rows]


def _md_cell(text: Text) -> str:
    """The best of a column is bold, but not its sign."""
    if isinstance(text, Cell) and text.bold:
        number, space, sign = re.fullmatch(r"(.*?)( ?)([^\d%)]?)", md(text.text)).groups()  # type: ignore[union-attr]
        return f"**{number}**{space}{sign}"
    return md(text_of(text)) or " "


def md(text: str) -> str:
    """In one line, without control characters, bars of a table and elements of HTML."""
    return re.sub(r"<(?=[A-Za-z/!?])", r"\<", " ".join(plain(text).split())).replace("|", "\\|")


# --- CSV


def comma_separated(document: Document) -> str:
    """Twelve digits, as many as all processors agree in."""
    return csv_text(document.values, 12)


def csv_text(lines: Iterable[Iterable[object]], digits: int | None = None) -> str:
    """Lines of a CSV file, numbers with so many digits; `NA` where nothing can stand."""

    def cell(value: object) -> object:
        if isinstance(value, float) and digits:
            return f"{value:.{digits}g}"
        return "NA" if value is None else csv_cell(value)

    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(cell, line) for line in lines)
    return out.getvalue()


# --- files

FORMS: dict[str, Callable[[Document], str]] = {"md": markdown, "csv": comma_separated}


def write(document: Document, folder: Path) -> list[Path]:
    """Write <id>.md and .csv into `folder`, each whole or not at all; same table, same bytes."""
    paths = [folder / f"{document.id}.{suffix}" for suffix in FORMS]
    for path, form in zip(paths, FORMS.values(), strict=True):
        files.write_text(path, form(document))
    return paths
