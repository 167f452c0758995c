"""A table of results in words: cells, verdicts, claims and facts become a `Document`."""

import math
from collections.abc import Iterable, Iterator

from physml.config.conf_files import shown
from physml.reporting import ranks_text
from physml.reporting.claims import Gain
from physml.reporting.comparison import BEST_OF, LEVELS, Margin
from physml.reporting.document import NONE, Document, Grid, Reasons, References
from physml.reporting.facts import Facts
from physml.reporting.state import State
from physml.reporting.stats import LEVEL, N_FOR_VERDICT, Published, Summary
from physml.reporting.table import CellResult, Table, Yours
from physml.reporting.table_claims import ClaimPart
from physml.reporting.table_spec import Claim, Column, TableSpec

RULE = (
    f"Ours: mean ± sd over runs, {LEVEL:.0%} t-interval of the mean, best single run. Difference: ours - "
    f"published, with its {LEVEL:.0%} interval (Welch; where no sd is printed, the spread of ours). "
    f"`agrees`: the {LEVELS[1]:.0%} interval lies within ± margin, give or take half the last printed digit "
    f"(two one-sided tests at {(1 - LEVELS[1]) / 2:.0%}); `differs`: it does not, and the {LEVEL:.0%} "
    "interval leaves out 0; else `cannot be told apart`. Where "
    "the paper does not say what its number is (`mean or best?`), it is read as a mean and as the best of "
    f"{' and of '.join(map(str, BEST_OF))}; readings with different outcomes are `not decidable`. With "
    "settings that were searched or chosen here the words are `reached`, `exceeded` and `not reached by our "
    "search`: they say nothing against the paper. A number that the paper quotes from other work is context. "
    f"No verdict below n = {N_FOR_VERDICT}."
)
CLAIM_RULE = (
    "Claims: paired differences between runs of equal split and seed, averaged over the starts of a split; "
    "p-values corrected for all comparisons of the table (Holm). `contradicted` is said only where both rows "
    "have settings of the paper or its code; `rows not tuned alike` where one was searched with more "
    "trials than the other, or not at all and the other was."
)
HEADS = (
    "model",
    "published",
    "ours",
    "runs",
    "95 % interval",
    "best",
    "difference",
    "settings",
    "outcome",
    "parameters",
    "time, per step",
)
FOLDED = ((0, 9), (1, 6), (2, 4), (3, 5), (8, 7, 10))  # heads above each other where it is narrow
TEX_HEADS = (
    ("Model", 0), ("Published", 1), ("Ours", 2), ("Runs", 3), (r"95\,\% interval", 4), ("Best", 5),
    ("Settings", 7), ("Outcome", 8), ("Parameters", 9),
)  # fmt: skip
CSV_HEADS = (
    "table", "row", "column", "metric", "unit", "better", "protocol", "experiment",
    "published", "published_sd", "published_n", "published_statistic",
    "mean", "sd", "n", "low", "high", "within_low", "within_high", "best", "done", "wanted", "settings",
    "gain", "gain_low", "gain_high", "margin", "readings", "state",
    "reference", "over", "over_low", "over_high",
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
        facts=(*fact_lines(table), *reason_lines(spec), *(f"Note: {note}" for note in spec.notes)),
        values=(CSV_HEADS, *_values(table), *_rank_values(table)),
        folded=FOLDED,
        reasons=reasons.lines(),
        claim=tuple(claim_lines(table)),
        references=References(columns, tuple(_reference_lines(table))),
        sections=ranks_text.sections(table.ranking),
    )


# --- words for numbers


def decimals(table: Table, column: Column) -> int:
    """The digits after the point: two of the smallest spread, but not fewer than the paper prints in this
    column (or in this unit), and at most two more."""
    if column.decimals is not None:
        return column.decimals
    alike = [c.key for c in table.spec.columns if c.unit == column.unit]

    def printed(keys: Iterable[str]) -> list[int]:
        found = (cell.published for cell in table.cells if cell.column in keys)
        return [p.digits for p in found if p is not None and p.digits is not None]

    spreads = [cell.summary.sd for cell in table.column(column.key) if cell.summary and cell.summary.sd]
    meant = 1 - math.floor(math.log10(min(spreads))) if spreads else None
    digits = printed([column.key]) or printed(alike)
    if not digits:
        return 4 if meant is None else min(6, max(0, meant))
    least = max(digits)
    return least + 2 if meant is None else min(least + 2, max(least, meant))


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


def difference_text(cell: CellResult, column: Column, places: int) -> str:
    """Ours - published with its interval, the widest of all readings."""
    found = cell.comparison
    if found is None:
        return NONE
    low, high = min(r.low for r in found.readings), max(r.high for r in found.readings)
    if column.better == "lower":
        return gain_text(-found.delta, -high, -low, places)
    return gain_text(found.delta, low, high, places)


def gain_text(mean: float, low: float | None, high: float | None, places: int) -> str:
    text = _signed(mean, f".{places}f")
    if low is None or high is None:
        return text
    return f"{text} [{_signed(low, f'.{places}f')}, {_signed(high, f'.{places}f')}]"


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
    """The median over runs of the whole training (CPU seconds, where recorded), and of one step."""
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
                difference_text(cell, column, places),
                NONE if cell.settings is None else str(cell.settings),
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
    gaps = [NONE] * (len(HEADS) - 9)
    label = f"your run (seed {mine.seed}{split})"
    return (label, NONE, value, "1", NONE, NONE, NONE, NONE, str(mine.state), *gaps)


def _reference_lines(table: Table) -> Iterator[tuple[str, ...]]:
    """Trivial predictions on the same splits, one line each; then each row's gain over the best of them."""
    for name, scores in table.references.items():
        line = [name]
        for column in table.spec.columns:
            places = decimals(table, column)
            if column.key not in scores:
                line.append(NONE)
                continue
            line.append(mean_text(scores[column.key], places))
        yield tuple(line)
    for row in table.spec.rows:
        cells = [next(c for c in table.column(k.key) if c.row == row.label) for k in table.spec.columns]
        if any(cell.over for cell in cells):
            texts = (
                _over_text(cell, decimals(table, c))
                for cell, c in zip(cells, table.spec.columns, strict=True)
            )
            yield f"{row.label}: gain", *texts


def _over_text(cell: CellResult, places: int) -> str:
    if cell.over is None:
        return NONE
    name, found = cell.over
    return f"{gain_text(found.mean, found.low, found.high, places)} over {name}"


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
        text = "no comparable runs" if part.gain is None else _part_text(part, part.gain, column, table)
        lines.append(f"{part.text} ({column.key}): {text}")
    return lines


def _part_text(part: ClaimPart, found: Gain, column: Column, table: Table) -> str:
    places = decimals(table, column)
    unit = f" in {column.unit}" if column.unit else ""
    text = f"gain {gain_text(found.mean, found.low, found.high, places)}{unit}, n = {found.n}"
    if part.p is not None:
        text += f", p = {part.p:.2g}" if part.p >= 1e-4 else ", p < 0.0001"
    if found.new_low is not None:
        text += f"; on new splits {gain_text(found.mean, found.new_low, found.new_high, places)}"
    return f"{part.verdict or 'no verdict'} ({text})"


UNPROVEN = {
    "content": "content-verified, with other bytes than published and the same content",
    "first seen": "without a published checksum, pinned when first seen",
    "off": "unverified",
    "own file": "of a task's own, by their content part of the setting",
    "unverified": "unverified, for a task of a plugin does not name its files",
}


def hours_text(facts: Facts) -> str:
    """What the runs took, with two digits.

    Example:
        >>> hours_text(Facts(devices=("cpu",), hours=0.01234))
        '0.012 core-hours'
    """
    unit = "core-hours" if facts.devices == ("cpu",) else "device-hours"
    return f"{facts.hours:.0f} {unit}" if facts.hours >= 100 else f"{facts.hours:.2g} {unit}"


def fact_lines(table: Table) -> list[str]:
    """The lines below a table."""
    spec, facts = table.spec, table.facts
    seeds = "; ".join(
        [
            ", ".join(map(str, spec.seeds)),
            *(f"{row.label}: {', '.join(map(str, row.seeds))}" for row in spec.rows if row.seeds),
        ]
    )
    splits = f"; splits {', '.join(map(str, spec.splits))}" if len(spec.splits) > 1 else ""
    spread = "sd over splits of the mean over seeds" if spec.spread == "splits" else "sd over runs"
    lines = [f"Source: {spec.source}", f"Runs: seeds {seeds}{splits}; {spread}", f"Verdicts: {RULE}"]
    if table.claim:
        lines.append(CLAIM_RULE)
    lines += [
        f"Margin ({column.key}): {margin_text(column.margin, column.unit)}"
        for column in spec.columns
        if any(cell.published is not None for cell in table.column(column.key))
    ]
    if spec.spread == "splits" and any(cell.published for cell in table.cells):
        lines.append(
            "The paper's splits are the same as ours: the intervals here take both sides as independent, and "
            "are wider than they need be"
        )
    lines += within_lines(table)
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
        lines.append(f"Trained: {' to '.join(facts.dates)}, {hours_text(facts)}")
    searched = [e for e, kind in facts.provenance.items() if kind == "searched-here"]
    if searched:
        lines.append(f"Settings not published, searched or chosen here: {', '.join(searched)}")
    lines += [f"Short budget: {short}" for short in facts.shorts]
    lines += [f"Data {UNPROVEN[how]}: {', '.join(names)}" for how, names in facts.unproven.items()]
    return lines


def reason_lines(spec: TableSpec) -> Iterator[str]:
    """Why cells deviate, with the cells before it."""
    titles = {column.key: column.title for column in spec.columns}
    for reason in spec.reasons:
        where = [", ".join(part) for part in (reason.rows, [titles[key] for key in reason.columns]) if part]
        yield f"{'; '.join(where) or 'All cells'}: {reason.text}"


def margin_text(margin: Margin, unit: str) -> str:
    """A margin with its reason; none: nothing can agree."""
    parts = [f"{margin.value:g} {unit}".rstrip()] if margin.value else []
    parts += [f"{margin.relative:.0%} of the published value"] if margin.relative else []
    parts += [f"{margin.sds:g} printed standard deviations"] if margin.sds else []
    return (
        f"{' + '.join(parts)}, for {margin.reason}" if parts else "none declared, so that nothing can agree"
    )


def within_lines(table: Table) -> Iterator[str]:
    """The intervals of means on just these splits, where a split has several starts."""
    for column in table.spec.columns:
        places = decimals(table, column)
        cells = [cell for cell in table.column(column.key) if cell.within is not None]
        texts = [f"{c.row} [{c.within[0]:.{places}f}, {c.within[1]:.{places}f}]" for c in cells if c.within]
        if texts:
            yield f"On these splits alone, random in the starts only ({column.key}): {'; '.join(texts)}"


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
            found, over = cell.comparison, cell.over
            within = cell.within or (None, None)
            yield line(
                cell.row, column,
                experiment=shown(table.spec.cell(rows[cell.row], column).experiment or "") or None,
                published=p and p.value, published_sd=p and p.sd, published_n=p and p.n,
                published_statistic=p and p.statistic,
                mean=s and s.mean, sd=s and s.sd, n=s and s.n, low=s and s.low, high=s and s.high,
                within_low=within[0], within_high=within[1],
                best=s and s.best, done=cell.done, wanted=cell.wanted, settings=cell.settings,
                gain=found and found.delta, gain_low=found and min(r.low for r in found.readings),
                gain_high=found and max(r.high for r in found.readings),
                margin=p and column.margin.of(p),
                readings=found and "; ".join(f"{r.assumption}: {r.outcome}" for r in found.readings),
                state=cell.state, reference=over and over[0], over=over and over[1].mean,
                over_low=over and over[1].low, over_high=over and over[1].high, parameters=cell.params_ours,
                parameters_printed=cell.params_paper, train_s=cell.train_s, ms_per_step=cell.ms_per_step,
            )  # fmt: skip
            for mine in cell.yours:
                label = f"{cell.row}: your run (seed {mine.seed})"
                yield line(label, column, best=mine.value, state=mine.state)
        for name, scores in table.references.items():
            if column.key in scores:
                score = scores[column.key]
                known = {
                    "mean": score.mean,
                    "sd": score.sd,
                    "n": score.n,
                    "low": score.low,
                    "high": score.high,
                }
                yield line(name, column, **known, state="trivial reference")


def _rank_values(table: Table) -> Iterator[tuple[object, ...]]:
    for known in ranks_text.values(table.ranking):
        yield tuple(({"table": table.spec.id} | known).get(head) for head in CSV_HEADS)
