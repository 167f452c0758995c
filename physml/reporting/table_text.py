"""A table of results in words: cells, verdicts, claims and facts become a `Document`."""

from collections.abc import Iterable, Iterator

from physml.reporting.document import NONE, Document, Grid, Reasons, References
from physml.reporting.state import State
from physml.reporting.stats import LEVEL, N_FOR_VERDICT, Published, Summary
from physml.reporting.table import CellResult, Table, Yours
from physml.reporting.table_spec import Claim, Column

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
FOLDED = ((0, 8), (1, 6), (2, 4), (3, 5), (7, 9))  # which of HEADS stand above each other where it is narrow
TEX_HEADS = (
    ("Model", 0), ("Published", 1), ("Ours", 2), ("Runs", 3), (r"95\,\% interval", 4), ("Best", 5),
    ("State", 7), ("Parameters", 8),
)  # fmt: skip
CSV_HEADS = (
    "table", "row", "column", "metric", "unit", "better", "protocol", "experiment",
    "published", "published_sd", "published_n", "published_statistic",
    "mean", "sd", "n", "low", "high", "best", "done", "wanted", "delta", "tolerance", "state",
    "parameters", "parameters_printed", "train_s", "ms_per_step",
)  # fmt: skip


def document(table: Table) -> Document:
    spec = table.spec
    reasons = Reasons()
    grids = tuple(_grid(table, column, reasons) for column in spec.columns)
    columns = tuple(f"{c.title} [{c.unit}]" if c.unit else c.title for c in spec.columns)
    return Document(
        id=spec.id,
        title=spec.title,
        caption=f"{spec.title} ({spec.source}).",
        heads=HEADS,
        tex_heads=TEX_HEADS,
        grids=grids,
        facts=(*fact_lines(table), *(f"Note: {note}" for note in spec.notes)),
        values=(CSV_HEADS, *_values(table)),
        folded=FOLDED,
        reasons=reasons.lines(),
        claim=tuple(claim_lines(table)),
        references=References(columns, tuple(_reference_lines(table))),
    )


# --- words for numbers


def decimals(table: Table, column: Column) -> int:
    """The digits after the point: two more than the paper prints in this column, or in this unit."""
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


# --- lines


def _grid(table: Table, column: Column, reasons: Reasons) -> Grid:
    """One column of the paper's table, with a line for every row."""
    places = decimals(table, column)
    lines: list[tuple[str, ...]] = []
    states: list[State | None] = []
    for cell in table.column(column.key):
        lines.append(
            (
                f"{cell.row} (not in the paper)" if cell.extra else cell.row,
                published_text(cell.published),
                mean_text(cell.summary, places),
                f"{cell.done}/{cell.wanted}" if cell.wanted else NONE,
                interval_text(cell.summary, places),
                NONE if cell.summary is None else f"{cell.summary.best:.{places}f}",
                delta_text(cell, places),
                reasons.short(cell.state),
                params_text(cell),
                time_text(cell),
            )
        )
        states.append(cell.state)
        lines += [_yours_line(mine, places) for mine in cell.yours]
        states += [None] * len(cell.yours)
    unit = f" [{column.unit}]" if column.unit else ""
    heading = f"{column.title}{unit}: {column.metric}, {column.better} is better, protocol {column.protocol}"
    return Grid(tuple(lines), tuple(states), heading)


def _yours_line(mine: Yours, places: int) -> tuple[str, ...]:
    split = f", split {mine.split}" if mine.split else ""
    value = NONE if mine.value is None else f"{mine.value:.{places}f}"
    gaps = [NONE] * (len(HEADS) - 8)
    label = f"your run (seed {mine.seed}{split})"
    return (label, NONE, value, "1", NONE, NONE, NONE, str(mine.state), *gaps)


def _reference_lines(table: Table) -> Iterator[tuple[str, ...]]:
    """Trivial references, one line each; least to greatest where rows were scored on different data."""
    for name, scores in table.references.items():
        line = [name]
        for column in table.spec.columns:
            places = decimals(table, column)
            if column.key not in scores:
                line.append(NONE)
                continue
            low, high = (f"{value:.{places}f}" for value in scores[column.key])
            line.append(low if low == high else f"{low} to {high}")
        yield tuple(line)


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
            text = "no comparable runs"
        else:
            places = decimals(table, column)
            unit = f" in {column.unit}" if column.unit else ""
            gain = f"gain {part.gain.mean:+.{places}f}, interval {interval_text(part.gain, places)}{unit}"
            text = f"{part.verdict or 'no verdict'} ({gain}, n = {part.gain.n})"
        lines.append(f"{part.text} ({column.key}): {text}")
    return lines


UNPROVEN = {
    "content": "content-verified, with other bytes than published and the same content",
    "first seen": "without a published checksum, pinned when first seen",
    "off": "unverified",
    "own file": "of a task's own, by their content part of the setting",
    "unverified": "unverified, for a task of a plugin does not name its files",
}


def fact_lines(table: Table) -> list[str]:
    """The lines below a table."""
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


def _values(table: Table) -> Iterator[tuple[object, ...]]:
    """One line per row and column, in full precision. Trivial references are rows whose state is `trivial
    reference`."""
    rows = {row.label: row for row in table.spec.rows}

    def line(label: str, column: Column, **values: object) -> tuple[object, ...]:
        known: dict[str, object] = {
            "table": table.spec.id, "row": label, "column": column.key, "metric": column.metric,
            "unit": column.unit or "1", "better": column.better, "protocol": column.protocol, **values,
        }  # fmt: skip
        return tuple(known.get(head) for head in CSV_HEADS)

    for column in table.spec.columns:
        for cell in table.column(column.key):
            p, s = cell.published, cell.summary
            yield line(
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
                label = f"{cell.row}: your run (seed {mine.seed})"
                yield line(label, column, best=mine.value, state=mine.state)
        for name, scores in table.references.items():
            if column.key in scores:
                low, high = scores[column.key]
                yield line(name, column, low=low, high=high, state="trivial reference")
