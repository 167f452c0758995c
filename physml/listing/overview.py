"""results/README.md: every table in a line, with what it asks, what was trained and what came out."""

import math
from collections import defaultdict
from collections.abc import Iterable

from physml.base.text import digits
from physml.records.costs import UNITS, core_hours, spent_on
from physml.records.schema import Record
from physml.report.outcome import ALL, NOT_RUN, outcome_of
from physml.report.table.collect import Table
from physml.report.table.fact_text import hours_text, rest_text
from physml.report.text.document import NONE, md_table
from physml.report.view.finding import Coverage

OUTCOMES = tuple(f"{word.sign} {word.name}" for word in ALL)
HEADS = ("table", "what it asks", "trained (n ≥ 3)", *OUTCOMES, "cost", "to complete")
HEAD = """# Results

Each table in a line, made by `physml table --all --write` from the records. Trained: how many of its printed
numbers (of a table of our own: of its cells) have runs, in brackets how many have at least three. An outcome
is that of a printed number: {meanings}. What a verdict means: [verdicts](../docs/verdicts.md).
Cost: what the runs took. To complete: core-hours of a Zen 4 that all other runs of the table would take, by
[measured steps](../docs/reference.md#what-runs-cost) of theirs; *at least*, where some were not measured.
"""
MEANINGS = {
    "reproduced": "the same within the margin of the table",
    "better here": "better with settings of ours, or than a number that the paper quotes",
    "cannot be told apart": "the runs, or the print, leave both open",
    "not reached here": "worse with settings of ours, or than a number that the paper quotes",
    "differs": "otherwise than printed with the settings of the paper or its code",
    "not run": "no finished run (of a table without printed numbers: of its cells)",
    "no verdict": "fewer than three runs, or runs that do not compare; those of a short budget do not count "
    "as trained",
}


def overview() -> str:
    """The whole file."""
    from physml.queue.requested import RequestedRuns, RunOptions
    from physml.records import costs
    from physml.report.table.collect import recorded
    from physml.report.table.spec import find_table, load_table, table_ids
    from physml.run.progress import tracked

    tables, hours = [], costs.hours_of_settings()
    counted: dict[tuple[str, int, int], Record] = {}  # some stand in several tables
    for ident in tracked(table_ids(kind="runs"), "reading tables"):
        spec = load_table(find_table(ident))
        requested = RequestedRuns(spec.runs, RunOptions(), ident)
        records = requested.wanted_records()
        for run in records:
            if run["status"] == "finished" and run["identity"] == requested.identities[run["experiment"]]:
                counted.setdefault((run["identity"], run["split"], run["seed"]), run)
        tables.append(recorded(spec, requested.identities, records, hours=hours, ranks=False))
    return text(tables, counted.values())


def text(tables: Iterable[Table], runs: Iterable[Record] = ()) -> str:
    """The file of these tables, and of the runs that they count."""
    meanings = "; ".join(f"*{name}*, {meaning}" for name, meaning in MEANINGS.items())
    lines = [HEAD.format(meanings=meanings), *md_table(HEADS, map(line, tables))]
    if by_processor := processors_text(runs):
        lines += ["", by_processor]
    return "\n".join(lines) + "\n"


def processors_text(runs: Iterable[Record]) -> str:
    """The hours of the runs by the processor that they were made on; empty where there are none."""
    hours: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        unit, processor = spent_on(run)
        hours[unit][processor].append(core_hours(run))
    parts = []
    for unit in sorted(hours, key=UNITS.index):
        sums = {
            name: math.fsum(spent) for name, spent in hours[unit].items()
        }  # whatever the order of the runs
        names = sorted(sums, key=lambda name: (-sums[name], name))
        each = ", ".join(f"{digits(sums[name], 2)} on {name}" for name in names)
        parts.append(f"{unit[0].upper()}{unit[1:]}: {each}")
    return f"What the runs took by processor, each counted once. {'. '.join(parts)}." if parts else ""


def line(table: Table) -> tuple[str, ...]:
    """The line of a table."""
    spec, coverage, rest = table.spec, Coverage(table), table.rest
    outcomes = [outcome_of(cell.state) for cell in coverage.cells]
    counted = [outcome for outcome in outcomes if outcome is NOT_RUN or not table.own]
    return (
        f"[{spec.id}](tables/{spec.id}.md)",
        spec.title,
        f"{len(coverage.trained)} of {len(coverage.cells)} ({coverage.enough})",
        *(str(counted.count(word) or NONE) for word in ALL),
        hours_text(table.facts) or NONE,
        rest_text(rest) or (f"{rest.runs} runs, not measured" if rest.runs else NONE),
    )
