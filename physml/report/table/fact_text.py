"""The lines below a table: rules, margins, protocol, code, machine and data."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from physml.base.text import digits
from physml.records.costs import Rest
from physml.report.stats.comparison import BEST_OF, LEVELS, Margin
from physml.report.stats.summary import LEVEL, N_FOR_VERDICT
from physml.report.table.collect import Table
from physml.report.table.facts import Facts
from physml.report.table.numbers import decimals
from physml.report.table.ranks import rank_rules
from physml.report.table.spec import Column, TableSpec

INTERVAL, TESTED, EACH = (f"{100 * level:.0f} %" for level in (LEVEL, LEVELS[1], (1 - LEVELS[1]) / 2))
OURS = f"Ours: mean ± sd over runs, {INTERVAL} t-interval of the mean, best single run."
RULE = (
    f"{OURS} Difference: ours - published, with its {INTERVAL} interval (Welch; where no sd is printed, "
    "the spread of ours). "
    f"`agrees`: the {TESTED} interval lies within ± margin, give or take half the last printed digit "
    f"(two one-sided tests at {EACH}); `differs`: it does not, and the {INTERVAL} interval leaves out 0; "
    "else `cannot be told apart`. Where "
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
UNPROVEN = {
    "content": "compared by their content, not by a checksum of their bytes",
    "first seen": "without a published checksum, pinned when first seen",
    "off": "unverified",
    "own file": "of a task's own, by their content part of the setting",
    "unverified": "unverified, for a task of a plugin does not name its files",
}


def hours_text(facts: Facts) -> str:
    """Hours of the runs on CPUs and on GPUs, with two digits; empty where there were none.

    Example:
        >>> hours_text(Facts(hours={"core-hours": 0.01234, "GPU-hours": 2.0}))
        '0.012 core-hours, 2 GPU-hours'
    """
    return ", ".join(f"{digits(value, 2)} {unit}" for unit, value in facts.hours.items())


def rest_text(rest: Rest) -> str:
    """Core-hours of what is left to run, as far as they are known; empty where they are not.

    Example:
        >>> rest_text(Rest(runs=3, hours=123.4)), rest_text(Rest(runs=3, hours=1.23, unknown=1))
        ('about 123', 'at least 1.2')
    """
    if rest.unknown == rest.runs:
        return ""
    return f"{'at least' if rest.unknown else 'about'} {digits(rest.hours, 2)}"


def fact_lines(table: Table) -> list[str]:
    """The lines below a table."""
    spec, facts = table.spec, table.facts
    own = (f"{row.label}: {', '.join(map(str, row.seeds))}" for row in spec.rows if row.seeds)
    seeds = "; ".join([", ".join(map(str, spec.seeds)), *own])
    splits = f"; splits {', '.join(map(str, spec.splits))}" if len(spec.splits) > 1 else ""
    splits += ", each with one of the seeds" if spec.paired else ""
    over_splits = spec.spread == "splits" and not spec.paired
    spread = "sd over splits of the mean over seeds" if over_splits else "sd over runs"
    lines = [*elsewhere_lines(table), f"Runs: seeds {seeds}{splits}; {spread}"]
    if spec.spread == "splits" and not table.own:
        lines.append(
            "The paper's splits are the same as ours: the intervals here take both sides as independent, and "
            "are wider than they need be"
        )
    lines += within_lines(table)
    lines += search_lines(table, spec.columns)
    lines += group_lines(table, spec.columns)
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
        extra = ", ".join([*facts.precisions, *facts.backends])
        lines.append(f"Device: {', '.join(facts.devices)}" + (f" ({extra})" if extra else ""))
    if facts.dates:
        lines.append(", ".join(filter(None, [f"Trained: {' to '.join(facts.dates)}", hours_text(facts)])))
    if not table.own and (searched := list(settled_here(facts.provenance))):
        lines.append(f"Settings not published, searched or chosen here: {', '.join(searched)}")
    lines += [f"Short budget: {short}" for short in facts.shorts]
    lines += [f"Data of {note}" for note in facts.notes]
    for how, names in facts.unproven.items():
        lines.append(f"Data {UNPROVEN.get(how, f'verified in another way ({how})')}: {', '.join(names)}")
    return lines


def elsewhere_lines(table: Table) -> Iterator[str]:
    """The sources of printed numbers that were not read in that of the table, with their rows."""
    rows: dict[str, dict[str, None]] = {}
    for column in table.spec.columns:
        for cell in table.column(column.key):
            if cell.published is not None and cell.published.source is not None:
                rows.setdefault(cell.published.source, {})[cell.row] = None
    for source, labels in rows.items():
        yield f"Printed numbers read elsewhere, {source}: {', '.join(labels)}"


def rule_lines(table: Table) -> Iterator[str]:
    """How the numbers and verdicts of a table are made."""
    yield OURS if table.own else f"Verdicts: {RULE}"
    if table.claim:
        yield CLAIM_RULE
    for column in table.spec.columns:
        if any(cell.published is not None for cell in table.column(column.key)):
            yield f"Margin ({column.key}): {margin_text(column.margin, column.unit)}"
    yield from rank_rules(table.ranking)


def settled_here(provenance: Mapping[str, str]) -> Iterator[str]:
    """Those with settings that were searched or chosen here; `g2/film-*` where all of three or more are."""
    for study, group in groupby(sorted(provenance), key=lambda name: name.partition("-")[0]):
        names = list(group)
        ours = [name for name in names if provenance[name] in ("searched-here", "own")]
        yield from [f"{study}-*"] if len(names) > 2 and ours == names else ours


def margin_text(margin: Margin, unit: str) -> str:
    """A margin with its reason; none: nothing can agree."""
    parts = [f"{margin.value:g} {unit}".rstrip()] if margin.value else []
    parts += [f"{100 * margin.relative:g} % of the published value"] if margin.relative else []
    parts += [f"{margin.sds:g} printed standard deviations"] if margin.sds else []
    return f"{' + '.join(parts)} ({margin.reason})" if parts else "none declared, so that nothing can agree"


def within_lines(table: Table) -> Iterator[str]:
    """The intervals of means on just these splits, where a split has several starts."""
    for column in table.spec.columns:
        places = decimals(table, column)
        cells = [cell for cell in table.column(column.key) if cell.within is not None]
        texts = [f"{c.row} [{c.within[0]:.{places}f}, {c.within[1]:.{places}f}]" for c in cells if c.within]
        if texts:
            yield f"On these splits alone, random in the starts only ({column.key}): {'; '.join(texts)}"


def search_lines(table: Table, columns: Sequence[Column]) -> Iterator[str]:
    """How far a search that is repeated with other points moves the test score of a row."""
    for column in columns:
        places = decimals(table, column)
        texts = [
            f"{cell.row} ± {search.sd:.{places}f} (best {search.best:.{places}f}, "
            f"worst {search.worst:.{places}f}, n = {len(search.values)})"
            for cell in table.column(column.key)
            if (search := cell.search)
        ]
        if texts:
            yield f"Searches made anew with other points, search ± sd ({column.title}): {'; '.join(texts)}"


def group_lines(table: Table, columns: Sequence[Column], most: int | None = None) -> Iterator[str]:
    """The cells whose runs fall in two groups, so that their mean is near none of them.

    Of more than `most` the names alone.
    """
    cells = {c.title: [cell for cell in table.column(c.key) if cell.groups] for c in columns}
    short = most is not None and sum(map(len, cells.values())) > most
    texts = []
    for title, those in cells.items():
        names = [
            cell.row if short else f"{cell.row} {' and '.join(map(_group, cell.groups or ()))}"
            for cell in those
        ]
        if names:
            texts.append(f"{f'{title}: ' if len(columns) > 1 else ''}{', '.join(names)}")
    if texts:
        what = "Means of splits" if table.spec.spread == "splits" else "Runs"
        more = " (--long)" if short else ""
        yield f"{what} in two groups{more}: {'; '.join(texts)}"


def _group(values: Sequence[float]) -> str:
    ends = dict.fromkeys(digits(value, 3) for value in (min(values), max(values)))
    return f"{len(values)} at {' to '.join(ends)}"


def reason_lines(spec: TableSpec) -> Iterator[str]:
    """Why cells deviate, with the cells before it."""
    titles = {column.key: column.title for column in spec.columns}
    for reason in spec.reasons:
        where = [", ".join(part) for part in (reason.rows, [titles[key] for key in reason.columns]) if part]
        yield f"{'; '.join(where) or 'All cells'}: {reason.text}"
