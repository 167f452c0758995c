"""A table for a paper in LaTeX (booktabs): chosen rows, a column for each data set, the best in bold."""

import fnmatch
from collections.abc import Sequence

from physml.base.errors import ConfigError, suggest
from physml.base.text import tex
from physml.report.table.collect import CellResult, Table
from physml.report.table.numbers import cell_texts, decimals, printed_text
from physml.report.table.spec import Column
from physml.report.text.document import NONE

FORMS = ("published", "ours", "interval", "best", "runs", "difference", "outcome")
USUAL = ("published", "ours")
OURS = ("ours", "interval", "best", "runs", "difference")  # parts that a run makes


def latex_table(
    table: Table,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    show: Sequence[str] = USUAL,
    *,
    bold_best: bool = False,
) -> str:
    """A table environment.

    Args:
        table: With its results.
        rows: Labels, or patterns such as `G2-*`, in the order wanted; none: all rows. One
            that is not named and has nothing to show is left out.
        columns: Keys of columns; none: all.
        show: Parts of each column that are shown: published, ours, interval, best, runs, difference, outcome.
        bold_best: Whether the best mean of the rows shown is bold, and the best published number.
    Errors: ConfigError for a name that there is not, with near names.
    """
    labels = _labels(table, rows)
    keys = [column.key for column in table.spec.columns]
    for name, known in [*((key, keys) for key in columns), *((form, FORMS) for form in show)]:
        if name not in known:
            raise ConfigError(f"{table.spec.id}: there is no {name!r} to show. {suggest(name, known)}")
    chosen = [column for column in table.spec.columns if column.key in (columns or keys)]
    body = {label: [tex(label)] for label in labels}
    for column in chosen:
        cells = [table.of[label, column.key] for label in labels]
        for form in show:
            best = _best(cells, column, form, decimals(table, column)) if bold_best else set()
            for cell in cells:
                text = _text(cell, column, form, decimals(table, column))
                body[cell.row].append(_bold(text) if cell.row in best else text)
    shown = [line for label, line in body.items() if label in rows or set(line[1:]) != {tex(NONE)}]
    lines = [" & ".join(line) + r" \\" for line in shown]
    closing = (r"\bottomrule", r"\end{tabular}", r"\end{table}")
    counts = (table.of[label, column.key] for label in labels for column in chosen)
    runs = sorted({cell.summary.n for cell in counts if cell.summary and not _unfit(cell)})
    opening = _opening(table, chosen, show, runs, bold_best)
    return "\n".join([*opening, *lines, *closing]) + "\n"


def _text(cell: CellResult, column: Column, form: str, places: int) -> str:
    own = {"published": printed_text(cell.published), "outcome": cell.state.word}
    if _unfit(cell):
        own |= dict.fromkeys(OURS, NONE)
    return tex((cell_texts(cell, column, places) | own)[form])


def _opening(
    table: Table, columns: Sequence[Column], show: Sequence[str], runs: list[int], bold_best: bool
) -> list[str]:
    """The lines above the rows. runs: how many the numbers shown are over."""
    spec, n = table.spec, len(show)
    titles = [tex(column.heading) for column in columns]
    caption = f"{spec.title} ({spec.source})."
    if {"ours", "interval"} & set(show) and runs:
        unit = "split" if spec.spread == "splits" else "run"
        number = str(runs[0]) if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        over = f"mean ± standard deviation over {number} {unit}s" if number != "1" else f"one {unit}"
        caption += f" Ours: {over}."
    caption += " Bold: the best of each column." if bold_best else ""
    caption += "".join(f" {line}." for line in table.unlike)
    head = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(caption)}}}",
        rf"\label{{tab:{spec.id}}}",
        rf"\begin{{tabular}}{{l{'r' * (n * len(columns))}}}",
        r"\toprule",
    ]
    if n == 1:
        return [*head, " & ".join(["Model", *titles]) + r" \\", r"\midrule"]
    spans = [rf"\multicolumn{{{n}}}{{c}}{{{title}}}" for title in titles]
    rules = " ".join(rf"\cmidrule(lr){{{2 + n * i}-{1 + n * (i + 1)}}}" for i in range(len(columns)))
    names = " & ".join(["Model", *len(columns) * [*show]])
    return [*head, " & ".join(["", *spans]) + r" \\", rules, rf"{names} \\", r"\midrule"]


def _labels(table: Table, patterns: Sequence[str]) -> list[str]:
    known = [row.label for row in table.spec.rows]
    labels: dict[str, None] = {}
    for pattern in patterns:
        here = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not here:
            raise ConfigError(f"{table.spec.id}: there is no row {pattern!r}. {suggest(pattern, known)}")
        labels |= dict.fromkeys(here)
    return list(labels) or known


def _best(cells: Sequence[CellResult], column: Column, form: str, places: int) -> set[str]:
    """The rows with the best value; several where they are equal, of ours as they are shown."""
    values: dict[str, float] = {}
    if form == "ours":
        means = {cell.row: cell.eligible for cell in cells if not _unfit(cell)}
        values = {row: round(mean, places) for row, mean in means.items() if mean is not None}
    elif form == "published":
        values = {cell.row: cell.published.value for cell in cells if cell.published}
    return column.best(values)


def _unfit(cell: CellResult) -> bool:
    """True for a number that may not stand beside the printed one."""
    return cell.published is not None and cell.state.word == "not comparable"


def _bold(text: str) -> str:
    """The number in bold, not its spread."""
    number, sign, spread = text.partition(r" $\pm$")
    return rf"\textbf{{{number}}}{sign}{spread}"
