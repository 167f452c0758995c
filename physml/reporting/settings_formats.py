"""Tables of settings for the terminal, for Markdown, CSV and LaTeX. All four say the same."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from physml import files
from physml.reporting.settings_table import NONE, SettingResult, SettingsTable
from physml.reporting.table_formats import md, md_table, tex, text_grid

if TYPE_CHECKING:
    from rich.console import RenderableType

RULE = (
    "`same`: ours is the printed one; `rounded`: it is so to the printed digits. `inside`, `outside`: a "
    "number beside a printed range. `differs` says why. Ours are read from the experiments and searches "
    "themselves."
)


def _heads(table: SettingsTable) -> list[str]:
    code = ["code"] if any(cell.code is not None for cell in table.cells) else []
    return ["row", "setting", "printed", *code, "ours", "state", "read from"]


def _line(table: SettingsTable, cell: SettingResult) -> list[str]:
    said = {
        "row": cell.row, "setting": cell.column.title, "printed": cell.printed, "code": cell.code,
        "ours": cell.ours, "state": cell.state, "read from": cell.where,
    }  # fmt: skip
    return [said[head] or NONE for head in _heads(table)]


def _facts(table: SettingsTable) -> list[str]:
    spec = table.spec
    code = ["`code`: what the official code has, where it differs or the paper's cell cannot be read."]
    return [
        f"Source: {spec.source}",
        f"State: {table.state}",
        f"Verdicts: {RULE}",
        *(code if "code" in _heads(table) else []),
        *([f"Claim: {spec.claim}"] if spec.claim else []),
        *(f"Note: {note}" for note in spec.notes),
    ]


def settings_markdown(table: SettingsTable) -> str:
    lines = (_line(table, cell) for cell in table.cells)
    facts = (f"- {md(fact)}" for fact in _facts(table))
    title = f"# {table.spec.id}: {table.spec.title}"
    return "\n".join([title, "", *md_table(_heads(table), lines), "", *facts]) + "\n"


def settings_csv(table: SettingsTable) -> str:
    """One line per cell; `NA` where nothing can stand."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("table", "row", "column", "printed", "code", "ours", "state", "where"))
    for cell in table.cells:
        values = (cell.printed, cell.code, cell.ours, cell.state, cell.where)
        known = ("NA" if value is None else value for value in values)
        writer.writerow((table.spec.id, cell.row, cell.column.key, *known))
    return out.getvalue()


def settings_tex(table: SettingsTable) -> str:
    """A tabular for booktabs, without where each setting was read, and the facts as text below it."""
    heads = _heads(table)[:-1]
    rows = [" & ".join(map(tex, _line(table, cell)[:-1])) + r" \\" for cell in table.cells]
    out = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        rf"\caption{{{tex(table.spec.title)}.}}",
        rf"\label{{tab:{table.spec.id}}}",
        rf"\begin{{tabular}}{{{'l' * len(heads)}}}",
        r"\toprule",
        " & ".join(tex(head.capitalize()) for head in heads) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        "",
        *(rf"{tex(fact)}\\" for fact in _facts(table)),
        r"\end{table}",
    ]
    return "\n".join(out) + "\n"


def render_settings(table: SettingsTable) -> "RenderableType":
    """The table for rich: print it with `rich.console.Console().print(...)`."""
    from rich.console import Group
    from rich.text import Text

    lines = [_line(table, cell) for cell in table.cells]
    return Group(
        Text(f"{table.spec.id}: {table.spec.title}", style="bold"),
        Text(),
        text_grid(_heads(table), lines, [cell.state for cell in table.cells]),
        Text(),
        *(Text(fact, style="dim") for fact in _facts(table)),
    )


FORMS: dict[str, Callable[[SettingsTable], str]] = {
    "md": settings_markdown,
    "csv": settings_csv,
    "tex": settings_tex,
}


def write_settings(table: SettingsTable, folder: Path) -> list[Path]:
    """Writes <id>.md, .csv and .tex into `folder`, each whole or not at all; same table, same bytes."""
    paths = []
    for suffix, form in FORMS.items():
        path = folder / f"{table.spec.id}.{suffix}"
        files.write_text(path, form(table))
        paths.append(path)
    return paths
