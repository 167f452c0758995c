"""Tables for the terminal, for Markdown, CSV and LaTeX. All four say the same; no cell is empty."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from physml import files
from physml.reporting.table import Table
from physml.reporting.table_spec import Column
from physml.reporting.table_text import (
    HEADS,
    Reasons,
    blocks,
    claim_lines,
    fact_lines,
    reference_lines,
    unit_title,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult


def render_markdown(table: Table) -> str:
    spec = table.spec
    out = [f"# {spec.id}: {spec.title}", ""]
    reasons = Reasons()
    for block in blocks(table, reasons):
        out += [f"## {md(block.heading)}", "", *md_table(HEADS, block.lines), ""]
    if reasons.said:
        out += [*(f"- {md(line)}" for line in reasons.lines()), ""]
    if lines := claim_lines(table):
        out += [md(lines[0]), "", *(f"- {md(line)}" for line in lines[1:]), ""]
    out += ["## Trivial references, on the same test data", ""]
    if references := reference_lines(table):
        heads = ["reference", *(unit_title(c) for c in spec.columns)]
        out += [*md_table(heads, references), ""]
    else:
        out += ["None recorded yet.", ""]
    out += [f"- {md(line)}" for line in fact_lines(table)]
    out += [f"- Note: {md(note)}" for note in spec.notes]
    return "\n".join(out) + "\n"


def md_table(heads: Iterable[str], lines: Iterable[list[str]]) -> list[str]:
    heads = list(heads)
    rows = [heads, ["---"] * len(heads), *lines]
    return [
        "| " + " | ".join(md(text) if i != 1 else text for text in row) + " |" for i, row in enumerate(rows)
    ]


def md(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


CSV_HEADS = (
    "table", "row", "column", "metric", "unit", "better", "protocol", "experiment",
    "published", "published_sd", "published_n", "published_statistic",
    "mean", "sd", "n", "low", "high", "best", "done", "wanted", "delta", "tolerance", "state",
    "parameters", "parameters_printed", "train_s", "ms_per_step",
)  # fmt: skip


def render_csv(table: Table) -> str:
    """One line per row and column, in full precision; `NA` where nothing can stand. Trivial references are
    rows whose state is `trivial reference`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    rows = {row.label: row for row in table.spec.rows}

    def line(label: str, column: Column, **values: object) -> None:
        known: dict[str, object] = {
            "table": table.spec.id, "row": label, "column": column.key, "metric": column.metric,
            "unit": column.unit or "1", "better": column.better, "protocol": column.protocol, **values,
        }  # fmt: skip
        writer.writerow(["NA" if known.get(head) is None else known[head] for head in CSV_HEADS])

    for column in table.spec.columns:
        for cell in table.column(column.key):
            p, s = cell.published, cell.summary
            line(
                cell.row, column,
                experiment=table.spec.cell(rows[cell.row], column).experiment,
                published=p and p.value, published_sd=p and p.sd, published_n=p and p.n,
                published_statistic=p and p.statistic,
                mean=s and s.mean, sd=s and s.sd, n=s and s.n, low=s and s.low, high=s and s.high,
                best=s and s.best, done=cell.done, wanted=cell.wanted, delta=cell.delta,
                tolerance=cell.tolerance, state=cell.state, parameters=cell.params_ours,
                parameters_printed=cell.params_paper, train_s=cell.train_s, ms_per_step=cell.ms_per_step,
            )  # fmt: skip
            for mine in cell.yours:
                line(f"{cell.row}: your run (seed {mine.seed})", column, best=mine.value, state=mine.state)
        for name, scores in table.references.items():
            if column.key in scores:
                low, high = scores[column.key]
                line(name, column, low=low, high=high, state="trivial reference")
    return out.getvalue()


def render_tex(table: Table) -> str:
    """A tabular for booktabs, a part for each column, and claim, facts and notes as text below it."""
    heads = ("Model", "Published", "Ours", "Runs", r"95\,\% interval", "Best", "State", "Parameters")
    keep = (0, 1, 2, 3, 4, 5, 7, 8)
    out = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        rf"\caption{{{tex(table.spec.title)} ({tex(table.spec.source)}).}}",
        rf"\label{{tab:{table.spec.id}}}",
        rf"\begin{{tabular}}{{{'l' * len(heads)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
    ]
    reasons = Reasons()
    for block in blocks(table, reasons):
        out += [
            r"\midrule",
            rf"\multicolumn{{{len(heads)}}}{{l}}{{\emph{{{tex(block.heading)}}}}} \\",
        ]
        out += [" & ".join(tex(line[i]) for i in keep) + r" \\" for line in block.lines]
    if references := reference_lines(table):
        out += [r"\midrule", rf"\multicolumn{{{len(heads)}}}{{l}}{{\emph{{Trivial references}}}} \\"]
        for name, *scores in references:
            said = "; ".join(
                f"{unit_title(c)}: {score}" for c, score in zip(table.spec.columns, scores, strict=True)
            )
            out.append(rf"\multicolumn{{{len(heads)}}}{{l}}{{{tex(name)}: {tex(said)}}} \\")
    out += [r"\bottomrule", r"\end{tabular}", ""]
    below = [
        *reasons.lines(),
        *claim_lines(table),
        *fact_lines(table),
        *(f"Note: {note}" for note in table.spec.notes),
    ]
    out += [rf"{tex(line)}\\" for line in below]
    out += [r"\end{table}"]
    return "\n".join(out) + "\n"


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "²": r"$^2$",
}  # fmt: skip


def tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in " ".join(text.split())).replace("`", "")


def _colour(state: str) -> str:
    if state == "yours":
        return "cyan"
    for words, colour in {
        ("agrees", "better", "same", "rounded", "inside"): "green",
        ("worse", "failed", "diverged"): "red",
        ("not published", "not run", "quoted", "no printed", "no experiment", "no search"): "dim",
    }.items():
        if state.startswith(words):
            return colour
    return "yellow"


WIDEST_LABEL = 30  # characters; longer names of rows are wrapped

# On a narrow terminal a line is folded into two: which of HEADS stand above each other.
FOLDED = ((0, 8), (1, 6), (2, 4), (3, 5), (7, 9))


@dataclass(frozen=True)
class _Console:
    """The table for rich: one line a row where they fit, else two."""

    table: Table

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.table import Table as Grid

        wide = self._group(False)
        grids = [part for part in wide.renderables if isinstance(part, Grid)]
        needed = max(console.measure(grid, options=options.update(width=10_000)).maximum for grid in grids)
        fits = needed <= options.max_width
        yield wide if fits else self._group(True)

    def _group(self, folded: bool) -> "Group":
        from rich.console import Group
        from rich.text import Text

        spec = self.table.spec
        parts: list[RenderableType] = [Text(f"{spec.id}: {spec.title}", style="bold"), Text()]
        reasons = Reasons()
        for block in blocks(self.table, reasons):
            parts.append(Text(block.heading, style="italic"))
            parts += [text_grid(HEADS, block.lines, block.states, folded), Text()]
        if reasons.said:
            parts += [*map(Text, reasons.lines()), Text()]
        if references := reference_lines(self.table):
            heads = ["trivial reference", *(unit_title(c) for c in spec.columns)]
            parts += [text_grid(heads, references), Text()]
        for i, line in enumerate(claim_lines(self.table)):
            parts.append(Text(line if i == 0 else f"  {line}", style="bold" if i == 0 else ""))
        parts += [Text(line, style="dim") for line in fact_lines(self.table)]
        parts += [Text(f"Note: {note}", style="dim") for note in spec.notes]
        return Group(*parts)


def text_grid(
    heads: Sequence[str], lines: Sequence[list[str]], states: Sequence[str] = (), folded: bool = False
) -> "RenderableType":
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    def fold(line: Sequence[str]) -> list[str]:
        return [f"{line[upper]}\n{line[lower]}" for upper, lower in FOLDED] if folded else list(line)

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for i, head in enumerate(fold(heads)):
        grid.add_column(head, overflow="fold", max_width=WIDEST_LABEL if i == 0 else None)
    for i, line in enumerate(lines):
        style = _colour(states[i]) if states else ""
        grid.add_row(*(Text(text) for text in fold(line)), style=style)
    return grid


def render_console(table: Table) -> "RenderableType":
    """The table for rich: print it with `rich.console.Console().print(...)`."""
    return _Console(table)


FORMS: dict[str, Callable[[Table], str]] = {"md": render_markdown, "csv": render_csv, "tex": render_tex}


def write_table(table: Table, folder: Path) -> list[Path]:
    """Writes <id>.md, .csv and .tex into `folder`, each whole or not at all; same table, same bytes."""
    paths = []
    for suffix, form in FORMS.items():
        path = folder / f"{table.spec.id}.{suffix}"
        files.write_text(path, form(table))
        paths.append(path)
    return paths
