"""Tables: a spec and the records of runs become cells with a state. No torch, no hydra.

`collect` is pure: it takes the spec, the wanted identities and all records, and says for each cell what is
known. `table_text` puts it into words, `document` prints it.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from physml.data.datasets import UNVERIFIED
from physml.records.schema import SCHEMA, Record
from physml.reporting import stats
from physml.reporting.state import State
from physml.reporting.stats import ClaimVerdict, Published, Summary
from physml.reporting.table_spec import Cell, Claim, Column, Row, Run, TableSpec, experiments_of


@dataclass(frozen=True)
class Yours:
    """A run of the reader's own, on its own line: outside mean and n."""

    seed: int
    split: int
    value: float | None
    state: State


@dataclass(frozen=True)
class CellResult:
    """One row in one column. Numbers are in the column's unit."""

    row: str
    column: str
    published: Published | None
    summary: Summary | None
    done: int
    wanted: int
    state: State
    delta: float | None = None  # our mean (or best, against a best) minus the published value
    tolerance: float | None = None
    params_ours: int | None = None
    params_paper: str | None = None
    train_s: float | None = None
    ms_per_step: float | None = None
    yours: tuple[Yours, ...] = ()
    extra: bool = False


@dataclass(frozen=True)
class ClaimPart:
    text: str
    column: str
    gain: Summary | None
    verdict: ClaimVerdict | None


@dataclass(frozen=True)
class Facts:
    """The provenance printed below the table. Each field is a sorted list of the values that occur."""

    commits: tuple[str, ...] = ()
    dirty: int = 0  # how many runs were made on uncommitted code
    devices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()  # which epoch's weights count
    dates: tuple[str, ...] = ()  # first and last day of the runs
    shorts: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)  # experiment -> kind
    unproven: dict[str, tuple[str, ...]] = field(default_factory=dict)  # how a file was verified -> files


@dataclass(frozen=True)
class Table:
    spec: TableSpec
    cells: tuple[CellResult, ...]  # row by row
    references: dict[
        str, dict[str, tuple[float, float]]
    ]  # name -> column -> least and greatest over the rows
    facts: Facts
    claim: tuple[ClaimPart, ...] = ()
    claim_verdict: ClaimVerdict | None = None

    def column(self, key: str) -> list[CellResult]:
        return [cell for cell in self.cells if cell.column == key]


def collect(
    spec: TableSpec,
    identities: Mapping[str, str | None],
    records: Iterable[Record],
    running: Collection[Run] = (),
    *,
    yours: Sequence[Record] = (),
    blocked: Mapping[str, str] | None = None,
) -> Table:
    """The rows and cells of a table, from its records.

    Args:
        identities: experiment -> the identity that its runs must have now, None if it can't be composed.
        records: of any experiments; one counts if identity, split and seed are the wanted ones.
        running: the runs (experiment, split, seed) that a process works on.
        yours: records shown on lines of their own.
        blocked: experiment -> the reason why it can't be run here (missing data, missing extra).
    """
    records = list(records)
    blocked = blocked or {}
    of = {e: Runs.find(e, identities.get(e), records, spec.seeds, spec.splits) for e in experiments_of(spec)}
    cells = []
    for row in spec.rows:
        for column in spec.columns:
            cell = spec.cell(row, column)
            runs = of.get(cell.experiment or "")
            reason = blocked.get(cell.experiment or "")
            mine = [r for r in yours if runs is not None and runs.owns(r)]
            cells.append(_cell(spec, row, column, cell, runs, running, reason, mine))
    counted = [r for runs in of.values() for r in runs.finished.values()]
    claim, claim_verdict = _claim(spec, of)
    return Table(spec, tuple(cells), _references(spec, of), _facts(counted), claim, claim_verdict)


@dataclass(frozen=True)
class Runs:
    """The records of one experiment, by split and seed."""

    experiment: str
    identity: str | None
    finished: dict[tuple[int, int], Record]
    ended: dict[tuple[int, int], Record]  # without a result
    stale: int  # runs of the same experiment under another identity or schema

    @classmethod
    def find(
        cls,
        experiment: str,
        identity: str | None,
        records: Iterable[Record],
        seeds: Collection[int],
        splits: Collection[int],
    ) -> "Runs":
        finished: dict[tuple[int, int], Record] = {}
        ended: dict[tuple[int, int], Record] = {}
        stale = 0
        for record in records:
            at = (record["split"], record["seed"])
            if at[0] not in splits or at[1] not in seeds:
                continue
            fresh = identity is not None and record["identity"] == identity
            if not fresh or record.get("schema", SCHEMA) != SCHEMA:
                stale += record["experiment"] == experiment
            elif record["status"] == "finished":
                finished.setdefault(at, record)
            else:
                ended.setdefault(at, record)
        ended = {at: record for at, record in ended.items() if at not in finished}
        return cls(experiment, identity, dict(sorted(finished.items())), dict(sorted(ended.items())), stale)

    def unfinished(self, wanted: int, blocked: str | None = None) -> State:
        """The state of an experiment of which not all wanted runs have a result, and none is running."""
        for record in self.ended.values():
            status, reason = record["status"], record.get("reason") or "no reason recorded"
            if status == "diverged":
                return State("diverged")
            if status == "blocked":
                return State("blocked", reason)
            if status != "preempted":  # that one goes on where it stopped
                return State("failed", reason)
        if blocked is not None:
            return State("blocked", blocked)
        if self.finished:
            return State("partial", done=len(self.finished), wanted=wanted)
        if self.identity is None:
            return State("blocked", "the experiment can't be composed")
        return State("stale" if self.stale else "missing")

    def owns(self, record: Record) -> bool:
        return record["experiment"] == self.experiment or record["identity"] == self.identity

    def values(self, column: Column) -> dict[tuple[int, int], float]:
        """The column's number of every finished run that has it, in the column's unit."""
        found = {at: _number(record, column) for at, record in self.finished.items()}
        return {at: value for at, value in found.items() if value is not None}


def _number(record: Record, column: Column) -> float | None:
    part, _, name = column.metric.partition("/")
    best = (record.get("metrics") or {}).get("best") or {}
    value = (best.get(part) or {}).get(name)
    return None if value is None or not math.isfinite(value) else value * column.scale


def _cell(
    spec: TableSpec,
    row: Row,
    column: Column,
    cell: Cell,
    runs: Runs | None,
    running: Collection[Run],
    blocked: str | None,
    yours: Sequence[Record],
) -> CellResult:
    wanted = len(spec.seeds) * len(spec.splits)
    if runs is None:
        if cell.published is None:
            state = State("no printed number, not run")
        else:
            quoted = cell.published.quoted
            state = State("quoted", quoted) if quoted else State("not run here")
        return CellResult(
            row.label,
            column.key,
            cell.published,
            None,
            0,
            0,
            state,
            params_paper=cell.params,
            extra=row.extra,
        )
    values = runs.values(column)
    summary = stats.summarise_runs(values, column.better, spec.spread) if values else None
    delta = tol = None
    word = None
    if summary is not None and cell.published is not None:
        judged = _judged(spec, summary, values, cell.published, column)
        tol = stats.tolerance(cell.published, column.margin, column.relative_margin)
        ours = judged.best if cell.published.statistic == "best" else judged.mean
        delta = ours - cell.published.value
        word = stats.verdict(judged, cell.published, tol, column.better)
    state = _state(spec, column, cell, runs, running, blocked, values, word)
    some = list(runs.finished.values())
    return CellResult(
        row=row.label,
        column=column.key,
        published=cell.published,
        summary=summary,
        done=len(values),
        wanted=wanted,
        state=state,
        delta=delta,
        tolerance=tol,
        params_ours=some[0].get("n_parameters") if some else None,
        params_paper=cell.params,
        train_s=_mean(cost["train_s"] for r in some if (cost := r.get("cost"))),
        ms_per_step=_mean(cost["ms_per_step"] for r in some if (cost := r.get("cost"))),
        yours=tuple(_yours(record, column, runs) for record in yours),
        extra=row.extra,
    )


def _judged(
    spec: TableSpec,
    summary: Summary,
    values: dict[tuple[int, int], float],
    published: Published,
    column: Column,
) -> Summary:
    """The summary to hold against a published number: for a best of n, that of our first n runs."""
    if published.statistic != "best" or published.n is None or published.n >= len(values):
        return summary
    first = dict(list(values.items())[: published.n])
    return stats.summarise_runs(first, column.better, spec.spread)


def _state(
    spec: TableSpec,
    column: Column,
    cell: Cell,
    runs: Runs,
    running: Collection[Run],
    blocked: str | None,
    values: Mapping[tuple[int, int], float],
    word: stats.Verdict | None,
) -> State:
    """The state of a cell. What says most comes first."""
    wanted = [(split, seed) for split in spec.splits for seed in spec.seeds]
    if values and (reason := _incomparable(column, cell, runs)):
        return State("not comparable", reason)
    if any((runs.experiment, *at) in running for at in wanted):
        return State("running")
    if len(values) < len(wanted):
        if len(runs.finished) > len(values):
            return State("failed", f"the records have no {column.metric}")
        return runs.unfinished(len(wanted), blocked)
    if cell.published is None:
        return State("not published")
    if word is None:
        return State(f"no verdict below n = {stats.N_FOR_VERDICT}")
    published = cell.published
    if published.statistic == "best" and published.n is not None and published.n > len(values):
        # a best of fewer runs would be judged too harshly
        return State("partial", done=len(values), wanted=published.n)
    return State(word)


def _incomparable(column: Column, cell: Cell, runs: Runs) -> str | None:
    """The reason why finished runs may not be compared with the paper, or None."""
    name = column.metric.partition("/")[2]
    for record in runs.finished.values():
        data = record.get("data") or {}
        if record.get("short") or (record.get("config") or {}).get("profile") == "smoke":
            return "short budget"
        if (kind := data.get("kind")) in (
            "substitute data",
            "content-verified",
            "undeclared data",
            UNVERIFIED,
        ):
            return str(kind)
        if str(data.get("fingerprint") or "").startswith("differs"):
            return "different data"
        if (record.get("scoring") or {}).get(name, record.get("protocol")) != column.protocol:
            return "other protocol"
    return cell.not_comparable


def _yours(record: Record, column: Column, runs: Runs) -> Yours:
    value = _number(record, column)
    if record["status"] != "finished":
        state = State(record["status"], record.get("reason") or "no reason recorded")
    elif record["identity"] != runs.identity:
        state = State("other settings")
    elif reason := _incomparable(column, Cell(), dataclasses.replace(runs, finished={(0, 0): record})):
        state = State("not comparable", reason)
    else:
        state = State("outside the mean")
    return Yours(record["seed"], record["split"], value, state)


def _mean(numbers: Iterable[float | None]) -> float | None:
    known = [n for n in numbers if n is not None]
    return math.fsum(known) / len(known) if known else None


def _references(spec: TableSpec, of: Mapping[str, Runs]) -> dict[str, dict[str, tuple[float, float]]]:
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for column in spec.columns:
        part, _, name = column.metric.partition("/")
        if part != "test":
            continue
        experiments = dict.fromkeys(spec.cell(row, column).experiment for row in spec.rows)
        for runs in (of[e] for e in experiments if e):
            for record in runs.finished.values():
                for reference, metrics in (record.get("references") or {}).items():
                    if (value := metrics.get(name)) is None:
                        continue
                    value *= column.scale
                    low, high = found.setdefault(reference, {}).get(column.key, (value, value))
                    found[reference][column.key] = (min(low, value), max(high, value))
    return found


def _facts(records: Sequence[Record]) -> Facts:
    def each(*path: str) -> tuple[str, ...]:
        found = set()
        for record in records:
            value: Any = record
            for key in path:
                value = (value or {}).get(key)
            if value is not None:
                found.add(str(value))
        return tuple(sorted(found))

    days = sorted(day[:10] for day in each("ended"))
    provenance = {
        r["experiment"]: str(given["kind"])
        for r in records
        if (given := r.get("provenance")) and given.get("kind")
    }
    return Facts(
        commits=each("code", "commit"),
        dirty=sum(bool((r.get("code") or {}).get("dirty")) for r in records),
        devices=each("machine", "device"),
        precisions=each("precision"),
        backends=each("backend"),
        rules=each("selected", "rule"),
        dates=tuple(dict.fromkeys(days[:1] + days[-1:])),
        shorts=each("short"),
        provenance=dict(sorted(provenance.items())),
        unproven=_unproven(records),
    )


def _unproven(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Data files whose bytes were not compared with a published checksum, by what was done instead."""
    found: dict[str, set[str]] = {}
    for record in records:
        for file in record.get("data", {}).get("files", ()):
            if (how := file.get("verified")) not in (None, "bytes", "fixture"):
                found.setdefault(how, set()).add(file["name"])
    return {how: tuple(sorted(names)) for how, names in sorted(found.items())}


def _claim(spec: TableSpec, of: Mapping[str, Runs]) -> tuple[tuple[ClaimPart, ...], ClaimVerdict | None]:
    """Each comparison of the claim from runs of the same split and seed.

    Runs that may not be held against the paper say nothing about its claim either.
    """
    if not isinstance(spec.claim, Claim):
        return (), None
    rows = {row.label: row for row in spec.rows}
    columns = {column.key: column for column in spec.columns}

    def gain(first: str, second: str, column: Column) -> Summary | None:
        sides = []
        for label in (first, second):
            cell = spec.cell(rows[label], column)
            runs = of.get(cell.experiment or "")
            if runs is None or _incomparable(column, cell, runs):
                return None
            sides.append(runs.values(column))
        if not sides[0].keys() & sides[1].keys():
            return None
        return stats.paired(sides[0], sides[1], column.better)

    parts = []
    for order in spec.claim.order:
        column = columns[order.column or spec.claim.column or ""]
        for other in order.than:
            found = gain(order.better, other, column)
            verdict = None if found is None else stats.order_verdict(found)
            parts.append(ClaimPart(f"{order.better} better than {other}", column.key, found, verdict))
    for tie in spec.claim.ties:
        column = columns[tie.column or spec.claim.column or ""]
        found = gain(tie.rows[0], tie.rows[1], column)
        verdict = None if found is None else stats.tie_verdict(found, tie.margin)
        unit = f" in {column.unit}" if column.unit else ""
        text = f"{tie.rows[0]} and {tie.rows[1]} alike within ±{tie.margin:g}{unit}"
        parts.append(ClaimPart(text, column.key, found, verdict))
    return tuple(parts), stats.all_verdict([part.verdict for part in parts])


def table_state(table: Table) -> str:
    """One line for a list of tables: how many runs are there, and the states of cells that have a published
    number or can't be trained."""
    wanted = len(table.spec.runs)
    per: dict[str, int] = {}
    for row in table.spec.rows:
        for column in table.spec.columns:
            cell = table.spec.cell(row, column)
            if cell.experiment:
                done = next(c.done for c in table.column(column.key) if c.row == row.label)
                per[cell.experiment] = max(per.get(cell.experiment, 0), done)
    words: Counter[str] = Counter()
    for result in table.cells:
        state = result.state
        if result.wanted and (result.published is not None or state.word == "blocked"):
            words[str(state) if state.word == "not comparable" else state.word] += 1
    counts = ", ".join(f"{count} {word}" for word, count in words.items())
    return f"{sum(per.values())}/{wanted} runs" + (f"; {counts}" if counts else "")
