"""Tables for the terminal, for Markdown, CSV and LaTeX. All four say the same; no cell is empty."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from physml import atomic
from physml.stats import LEVEL, N_FOR_VERDICT, Published, Summary
from physml.table import CellResult, Table, Yours
from physml.tablespec import Claim, Column

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

NONE = "–"  # nothing can stand here

RULE = (
    f"Ours: mean ± sd over runs, {LEVEL:.0%} t-interval of the mean, best single run. "
    "Tolerance: half the last printed digit, plus the paper's own interval where it prints sd and n, else "
    "plus the margin of the column. `agrees`: our interval lies inside published ± tolerance; `better`, "
    "`worse`: it lies outside, on that side; else `inconclusive`. "
    f"No verdict below n = {N_FOR_VERDICT}. A published best of n is held against our best of n; where the "
    "paper does not say what its number is (`mean or best?`), our mean is. "
    "A claim is judged by the t-interval of differences between runs of equal split and seed."
)
HEADS = (
    "model",
    "published",
    "ours",
    "runs",
    "95 % interval",
    "best",
    "delta",
    "state",
    "parameters",
    "time, per step",
)


# --- words for numbers


def decimals(table: Table, column: Column) -> int:
    """How many digits after the point: two more than the paper prints in this column, or in this unit."""
    if column.decimals is not None:
        return column.decimals
    alike = [c.key for c in table.spec.columns if c.unit == column.unit]

    def printed(keys: Iterable[str]) -> list[int]:
        found = (cell.published for cell in table.cells if cell.column in keys)
        return [p.digits for p in found if p is not None and p.digits is not None]

    digits = printed([column.key]) or printed(alike)
    return max(digits) + 2 if digits else 4


def published_text(published: Published | None) -> str:
    """The printed number with what is known of it: `1.2 (mean or best?)`, `92.3 ± 1.8 (mean of 5)`."""
    if published is None:
        return "none printed"
    digits = published.digits
    value = f"{published.value:g}" if digits is None else f"{published.value:.{digits}f}"
    if published.sd is not None:
        value += f" ± {published.sd:g}" if digits is None else f" ± {published.sd:.{digits}f}"
    if published.quoted:
        return f"{value} (quoted: {published.quoted})"
    if published.statistic == "unknown":
        return f"{value} (mean or best?)"
    return f"{value} ({published.statistic} of {published.n or 'unknown n'})"


def mean_text(summary: Summary | None, places: int) -> str:
    if summary is None:
        return NONE
    mean = f"{summary.mean:.{places}f}"
    return mean if summary.sd is None else f"{mean} ± {summary.sd:.{places}f}"


def interval_text(summary: Summary | None, places: int) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return NONE
    return f"[{summary.low:.{places}f}, {summary.high:.{places}f}]"


def delta_text(cell: CellResult, places: int) -> str:
    if cell.delta is None or cell.published is None:
        return NONE
    text = _signed(cell.delta, f".{places}f")
    if not cell.published.value:
        return text
    share = cell.delta / cell.published.value
    return f"{text} ({_signed(share, '.0%' if abs(share) >= 0.1 else '.1%')})"


def _signed(value: float, form: str) -> str:
    """With its sign, but no minus before zeros."""
    text = f"{value:+{form}}"
    return text.replace("-", "+") if not text.strip("+-0.%") else text


def params_text(cell: CellResult) -> str:
    ours = NONE if cell.params_ours is None else f"{cell.params_ours:,}"
    return f"{ours} (paper {cell.params_paper})" if cell.params_paper else ours


def span_text(seconds: float) -> str:
    """A duration, as short as a person would say it.

    Example:
        >>> span_text(0.0123), span_text(42.4), span_text(812.4), span_text(9000)
        ('12.3 ms', '42 s', '14 min', '2.5 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def time_text(cell: CellResult) -> str:
    """The mean over runs of the whole training, and of one step."""
    if cell.train_s is None or cell.ms_per_step is None:
        return NONE
    return f"{span_text(cell.train_s)}, {span_text(cell.ms_per_step / 1000)}"


# --- lines that all forms share


@dataclass(frozen=True)
class Block:
    """One column of the paper's table, with a line for every row."""

    column: Column
    heading: str
    lines: list[list[str]]
    states: list[str]


def blocks(table: Table) -> list[Block]:
    return [_block(table, column) for column in table.spec.columns]


def _block(table: Table, column: Column) -> Block:
    places = decimals(table, column)
    lines, states = [], []
    for cell in table.column(column.key):
        lines.append(
            [
                f"{cell.row} (not in the paper)" if cell.extra else cell.row,
                published_text(cell.published),
                mean_text(cell.summary, places),
                f"{cell.done}/{cell.wanted}" if cell.wanted else NONE,
                interval_text(cell.summary, places),
                NONE if cell.summary is None else f"{cell.summary.best:.{places}f}",
                delta_text(cell, places),
                cell.state,
                params_text(cell),
                time_text(cell),
            ]
        )
        states.append(cell.state)
        for mine in cell.yours:
            lines.append(_yours_line(mine, places))
            states.append("yours")
    unit = f" [{column.unit}]" if column.unit else ""
    heading = f"{column.title}{unit}: {column.metric}, {column.better} is better, protocol {column.protocol}"
    return Block(column, heading, lines, states)


def _yours_line(mine: Yours, places: int) -> list[str]:
    split = f", split {mine.split}" if mine.split else ""
    value = NONE if mine.value is None else f"{mine.value:.{places}f}"
    gaps = [NONE] * (len(HEADS) - 8)
    return [f"your run (seed {mine.seed}{split})", NONE, value, "1", NONE, NONE, NONE, mine.state, *gaps]


def reference_lines(table: Table) -> list[list[str]]:
    """Trivial references, one line each; least to greatest where rows were scored on different data."""
    lines = []
    for name, scores in table.references.items():
        line = [name]
        for column in table.spec.columns:
            places = decimals(table, column)
            if column.key not in scores:
                line.append(NONE)
                continue
            low, high = (f"{value:.{places}f}" for value in scores[column.key])
            line.append(low if low == high else f"{low} to {high}")
        lines.append(line)
    return lines


def claim_lines(table: Table) -> list[str]:
    claim = table.spec.claim
    if claim is None:
        return []
    if not isinstance(claim, Claim):
        return [f"Claim: {claim}. Not put into numbers."]
    lines = [f"Claim: {claim.text}. Its ranking: {table.claim_verdict or 'no verdict yet'}."]
    columns = {c.key: c for c in table.spec.columns}
    for part in table.claim:
        column = columns[part.column]
        if part.gain is None:
            said = "no runs to compare"
        else:
            places = decimals(table, column)
            unit = f" in {column.unit}" if column.unit else ""
            gain = f"gain {part.gain.mean:+.{places}f}, interval {interval_text(part.gain, places)}{unit}"
            said = f"{part.verdict or 'no verdict'} ({gain}, n = {part.gain.n})"
        lines.append(f"{part.text} ({column.key}): {said}")
    return lines


UNPROVEN = {
    "content": "content-verified, with other bytes than published and the same content",
    "first seen": "without a published checksum, pinned when first seen",
    "off": "unverified",
}


def fact_lines(table: Table) -> list[str]:
    """What stands below a table, as (word, value) in one string each."""
    spec, facts = table.spec, table.facts
    seeds = ", ".join(map(str, spec.seeds))
    splits = f"; splits {', '.join(map(str, spec.splits))}" if len(spec.splits) > 1 else ""
    spread = "sd over splits of the mean over seeds" if spec.spread == "splits" else "sd over runs"
    lines = [f"Source: {spec.source}", f"Runs: seeds {seeds}{splits}; {spread}", f"Verdicts: {RULE}"]
    for column in spec.columns:
        if all(cell.published is None for cell in table.column(column.key)):
            continue
        if column.margin:
            lines.append(f"Margin ({column.key}): {column.margin:g} {column.unit}".rstrip())
        elif column.relative_margin:
            lines.append(f"Margin ({column.key}): {column.relative_margin:.0%} of the published value")
    protocols = ", ".join(f"{c.key}: {c.protocol}" for c in spec.columns)
    lines.append(f"Protocol: {protocols}")
    if facts.rules:
        lines.append(f"Selection: {'; '.join(facts.rules)}")
    if any(" test/" in rule for rule in facts.rules):
        lines.append("Selection on TEST data in at least one row, because the paper did so")
    if facts.commits:
        lines.append(f"Commit: {', '.join(commit[:10] for commit in facts.commits)}")
    if facts.dirty:
        many = "run was" if facts.dirty == 1 else "runs were"
        lines.append(f"{facts.dirty} {many} made on uncommitted code: no commit holds what produced them")
    if facts.devices:
        device = ", ".join(facts.devices)
        extra = [*facts.precisions, *facts.backends]
        lines.append(f"Device: {device}" + (f" ({', '.join(extra)})" if extra else ""))
    if facts.dates:
        lines.append(f"Trained: {' to '.join(facts.dates)}")
    searched = [e for e, kind in facts.provenance.items() if kind == "searched-here"]
    if searched:
        lines.append(f"Settings not published, searched or chosen here: {', '.join(searched)}")
    lines += [f"Short budget: {short}" for short in facts.shorts]
    lines += [f"Data {UNPROVEN[how]}: {', '.join(names)}" for how, names in facts.unproven.items()]
    return lines


# --- the four forms


def render_markdown(table: Table) -> str:
    spec = table.spec
    out = [f"# {spec.id}: {spec.title}", ""]
    for block in blocks(table):
        out += [f"## {_md(block.heading)}", "", *_md_table(HEADS, block.lines), ""]
    if lines := claim_lines(table):
        out += [_md(lines[0]), "", *(f"- {_md(line)}" for line in lines[1:]), ""]
    out += ["## Trivial references, on the same test data", ""]
    if references := reference_lines(table):
        heads = ["reference", *(_unit_title(c) for c in spec.columns)]
        out += [*_md_table(heads, references), ""]
    else:
        out += ["None recorded yet.", ""]
    out += [f"- {_md(line)}" for line in fact_lines(table)]
    out += [f"- Note: {_md(note)}" for note in spec.notes]
    return "\n".join(out) + "\n"


def _unit_title(column: Column) -> str:
    return f"{column.title} [{column.unit}]" if column.unit else column.title


def _md_table(heads: Iterable[str], lines: Iterable[list[str]]) -> list[str]:
    heads = list(heads)
    rows = [heads, ["---"] * len(heads), *lines]
    return [
        "| " + " | ".join(_md(text) if i != 1 else text for text in row) + " |" for i, row in enumerate(rows)
    ]


def _md(text: str) -> str:
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
        rf"\caption{{{_tex(table.spec.title)} ({_tex(table.spec.source)}).}}",
        rf"\label{{tab:{table.spec.id}}}",
        rf"\begin{{tabular}}{{{'l' * len(heads)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
    ]
    for block in blocks(table):
        out += [
            r"\midrule",
            rf"\multicolumn{{{len(heads)}}}{{l}}{{\emph{{{_tex(block.heading)}}}}} \\",
        ]
        out += [" & ".join(_tex(line[i]) for i in keep) + r" \\" for line in block.lines]
    if references := reference_lines(table):
        out += [r"\midrule", rf"\multicolumn{{{len(heads)}}}{{l}}{{\emph{{Trivial references}}}} \\"]
        for name, *scores in references:
            said = "; ".join(
                f"{_unit_title(c)}: {score}" for c, score in zip(table.spec.columns, scores, strict=True)
            )
            out.append(rf"\multicolumn{{{len(heads)}}}{{l}}{{{_tex(name)}: {_tex(said)}}} \\")
    out += [r"\bottomrule", r"\end{tabular}", ""]
    below = [*claim_lines(table), *fact_lines(table), *(f"Note: {note}" for note in table.spec.notes)]
    out += [rf"{_tex(line)}\\" for line in below]
    out += [r"\end{table}"]
    return "\n".join(out) + "\n"


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "²": r"$^2$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in " ".join(text.split())).replace("`", "")


def _colour(state: str) -> str:
    if state == "yours":
        return "cyan"
    for words, colour in {
        ("agrees", "better"): "green",
        ("worse", "failed", "diverged"): "red",
        ("not published", "not run", "quoted", "not in"): "dim",
    }.items():
        if state.startswith(words):
            return colour
    return "yellow"


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
        for block in blocks(self.table):
            parts += [Text(block.heading, style="italic"), _grid(HEADS, block.lines, block.states, folded)]
            parts.append(Text())
        if references := reference_lines(self.table):
            heads = ["trivial reference", *(_unit_title(c) for c in spec.columns)]
            parts += [_grid(heads, references), Text()]
        for i, line in enumerate(claim_lines(self.table)):
            parts.append(Text(line if i == 0 else f"  {line}", style="bold" if i == 0 else ""))
        parts += [Text(line, style="dim") for line in fact_lines(self.table)]
        parts += [Text(f"Note: {note}", style="dim") for note in spec.notes]
        return Group(*parts)


def _grid(
    heads: Sequence[str], lines: Sequence[list[str]], states: Sequence[str] = (), folded: bool = False
) -> "RenderableType":
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    def fold(line: Sequence[str]) -> list[str]:
        return [f"{line[upper]}\n{line[lower]}" for upper, lower in FOLDED] if folded else list(line)

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for i, head in enumerate(fold(heads)):
        grid.add_column(head, no_wrap=i == 0, overflow="fold")
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
        atomic.write_text(path, form(table))
        paths.append(path)
    return paths
