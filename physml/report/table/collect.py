"""Tables: a spec and the records of runs become cells with a state. No torch, no hydra.

`collect` is pure: it takes the spec, the wanted identities and all records, and says for each cell what is
known. `view.text` puts it into words, `text` prints it.
"""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.records.costs import REFERENCE, Rest, core_hours, of_record, rest, seconds
from physml.records.schema import Record, scores_of
from physml.records.searches import SearchSpread
from physml.report.outcome import State, counts
from physml.report.stats import summary as stats
from physml.report.stats.budgets import differs_in
from physml.report.stats.claims import ClaimVerdict, Gain
from physml.report.stats.comparison import Comparison, compare
from physml.report.stats.summary import Bounds, Published, Spread, Summary, Values
from physml.report.stats.verdict import Settings, verdict
from physml.report.table.claims import ClaimPart, judged
from physml.report.table.facts import Facts, facts_of
from physml.report.table.ranks import Ranking, ranked
from physml.report.table.runs import Runs, incomparable, number, solved
from physml.report.table.spec import Cell, Column, Row, Run, TableSpec, experiments_of

OF_A_MACHINE = ("missing", "stale", "blocked", "running")  # states that are `not run` in a file


@dataclass(frozen=True)
class Yours:
    """A run of the reader's own, on its own line: outside mean and n."""

    seed: int
    split: int
    value: float | None
    state: State

    @property
    def label(self) -> str:
        return f"your run (seed {self.seed}{f', split {self.split}' if self.split else ''})"


@dataclass(frozen=True)
class CellResult:
    """One row in one column. Numbers are in the column's unit."""

    row: str
    column: str
    published: Published | None
    state: State
    summary: Summary | None = None
    done: int = 0
    wanted: int = 0
    lost: int = 0  # runs that have diverged, or have finished without a finite number
    solved: int | None = None  # how many of the done runs reach the column's threshold; None: it has none
    groups: tuple[list[float], list[float]] | None = None  # the runs, where they fall in two groups
    settings: Settings | None = None
    comparison: Comparison | None = None
    within: Bounds | None = None  # interval of the mean on these very splits
    search: SearchSpread | None = None  # final scores of repeats of the search that found the settings
    over: tuple[str, Gain] | None = None  # the best trivial reference, and the gain over it
    params_ours: int | None = None
    params_paper: str | None = None
    train_s: float | None = None
    core_hours: float | None = None  # of all its runs, with evaluations; hours on a GPU
    ms_per_step: float | None = None
    peak_memory_mib: float | None = None
    yours: tuple[Yours, ...] = ()
    extra: bool = False

    @property
    def eligible(self) -> float | None:
        """The mean, as one that may be the best of a column; None where some of the runs have no number."""
        return None if self.summary is None or self.lost else self.summary.mean


@dataclass(frozen=True)
class Placed:
    """The result of a cell with the row, the column and the config that it belongs to."""

    row: Row
    column: Column
    cell: Cell
    result: CellResult


@dataclass(frozen=True)
class Table:
    spec: TableSpec
    cells: tuple[CellResult, ...]  # row by row
    references: dict[str, dict[str, Summary]]  # trivial prediction -> column -> its score, as `spread` has it
    facts: Facts
    claim: tuple[ClaimPart, ...] = ()
    claim_verdict: ClaimVerdict | None = None
    ranking: Ranking | None = None  # where the config names columns to rank over
    unlike: tuple[str, ...] = ()  # rows of the reader's own that were trained in another way
    rest: Rest = field(default_factory=Rest)  # the runs that are not made yet

    @cached_property
    def placed(self) -> list[Placed]:
        """Row by row."""
        places = product(self.spec.rows, self.spec.columns)
        return [Placed(*at, self.spec.cell(*at), cell) for at, cell in zip(places, self.cells, strict=True)]

    @cached_property
    def of(self) -> dict[tuple[str, str], CellResult]:
        """The cells by label of the row and key of the column."""
        return {(cell.row, cell.column): cell for cell in self.cells}

    @cached_property
    def printed(self) -> list[CellResult]:
        """The cells with a printed number."""
        return [cell for cell in self.cells if cell.published is not None]

    @property
    def mean_ranks(self) -> dict[str, float]:
        """Row -> mean rank, the best first; empty without a ranking."""
        return self.ranking.ranks.mean if self.ranking and self.ranking.ranks else {}

    def column(self, key: str) -> list[CellResult]:
        return [cell for cell in self.cells if cell.column == key]

    def below(self, cell: CellResult) -> str:
        """`worse than NAME` for a row of the reader's own, by a trivial reference; empty where it is not."""
        return f"worse than {cell.over[0]}" if cell.extra and cell.over and cell.over[1].mean < 0 else ""

    @property
    def own(self) -> bool:
        """True if no paper printed any of the row's numbers."""
        return not self.printed


def collect(
    spec: TableSpec,
    identities: Mapping[str, str | None],
    records: Iterable[Record],
    running: Collection[Run] = (),
    *,
    yours: Sequence[Record] = (),
    blocked: Mapping[str, str] = MappingProxyType({}),
    hours: Mapping[str, float] = MappingProxyType({}),
    ranks: bool = True,
) -> Table:
    """The rows and cells of a table, from its records.

    Args:
        spec: The table.
        identities: experiment -> the identity that its runs must have now, None if it can't be composed.
        records: Records of any experiments; one counts if identity, split and seed are the wanted ones.
        running: The runs (experiment, split, seed) that a process works on.
        yours: Records shown on lines of their own. ConfigError for one of an experiment of no row.
        blocked: experiment -> the reason why it can't be run here (missing data, missing extra).
        hours: identity -> core-hours of a run, where no record has them.
        ranks: False leaves out the ranking of the rows, which takes longer than all the rest.
    """
    records = list(records)
    of = {e: Runs.find(e, identities.get(e), records, spec.places_of(e)) for e in experiments_of(spec)}
    for record in yours:
        if not any(runs.owns(record) for runs in of.values()):
            raise ConfigError(f"{spec.id} has no row for a run of {record['experiment']} to stand beside.")
    places = product(spec.rows, spec.columns)
    cells = tuple(_cell(spec, row, column, of, running, yours, blocked) for row, column in places)
    counted = [r for runs in of.values() for r in runs.finished.values()]
    claim, claim_verdict = judged(spec, of)
    ranking = ranked(spec, of) if ranks else None
    references, facts, odd = _references(spec, of), facts_of(counted), tuple(_unlike(spec, of))
    left = sum((_rest(runs, hours) for runs in of.values()), Rest())
    return Table(spec, cells, references, facts, claim, claim_verdict, ranking, odd, left)


def recorded(
    spec: TableSpec,
    identities: Mapping[str, str | None],
    records: Iterable[Record],
    *,
    hours: Mapping[str, float] = MappingProxyType({}),
    ranks: bool = True,
) -> Table:
    """A table as its records alone give it, the same on every machine: for files and pages.

    What is missing is `not run` there, whether or not this machine has the data for it, or works on it.
    """
    table = collect(spec, identities, records, hours=hours, ranks=ranks)
    cells = (
        dataclasses.replace(cell, state=State("not run")) if cell.state.word in OF_A_MACHINE else cell
        for cell in table.cells
    )
    return dataclasses.replace(table, cells=tuple(cells))


def _rest(runs: Runs, hours: Mapping[str, float]) -> Rest:
    """The runs of an experiment that are neither finished nor diverged, and what they cost."""
    ended = len(runs.finished) + runs.diverged
    costs = [cost.on(REFERENCE) for record in runs.finished.values() if (cost := of_record(record))]
    each = _median(cost.hours for cost in costs) or hours.get(runs.identity or "")
    return rest(len(runs.places) - ended, each)


def _cell(
    spec: TableSpec,
    row: Row,
    column: Column,
    of: Mapping[str, Runs],
    running: Collection[Run],
    yours: Sequence[Record],
    blocked: Mapping[str, str],
) -> CellResult:
    cell = spec.cell(row, column)
    never = State("no printed number, not run") if cell.published is None else State("not run here")
    if cell.published and cell.published.quoted:
        never = State("quoted", cell.published.quoted)
    about: dict[str, Any] = {"published": cell.published, "params_paper": cell.params, "extra": row.extra}
    known = CellResult(row.label, column.key, state=never, **about)
    if not cell.experiment:
        return known
    runs = of[cell.experiment]
    values = runs.values(column)
    some = list(runs.finished.values())
    costs = [cost for record in some if (cost := record.get("cost"))]
    summary = stats.summarise_runs(values, column.better, spec.spread, column.bounds) if values else None
    search, gains = runs.search_spread(column), runs.gains(column, spec.spread)
    comparison = None
    if summary is not None and cell.published is not None:
        margin = column.margin.of(cell.published)
        comparison = compare(summary, cell.published, margin, column.better, search)
    known = dataclasses.replace(
        known,
        summary=summary,
        done=len(values),
        wanted=len(runs.places),
        lost=runs.diverged + len(some) - len(values),
        solved=solved(values, column),
        groups=stats.two_groups(stats.independent(values, spec.spread)),
        settings=runs.settings if some else None,
        comparison=comparison,
        search=search,
        within=stats.within_splits(values) if spec.spread == "splits" and len(values) > 1 else None,
        over=min(gains.items(), key=lambda named: named[1].mean, default=None),
        params_ours=runs.first.get("n_parameters"),
        core_hours=sum(map(core_hours, some)) if costs else None,
        train_s=_median(map(seconds, some)),
        ms_per_step=_median(cost["ms_per_step"] for cost in costs),
        peak_memory_mib=_median(cost.get("peak_memory_mib") for cost in costs),
        yours=tuple(_yours(record, column, runs) for record in yours if runs.owns(record)),
    )
    state = _state(column, cell, runs, known, spec.spread, running, blocked.get(cell.experiment))
    return dataclasses.replace(known, state=state)


def _state(
    column: Column,
    cell: Cell,
    runs: Runs,
    known: CellResult,
    spread: Spread,
    running: Collection[Run],
    blocked: str | None,
) -> State:
    """The state of a cell whose numbers are known. What says most comes first."""
    summary = known.summary
    if summary is not None and (reason := incomparable(column, cell, runs)):
        return State("not comparable", reason)
    if runs.among(running):
        return State("running")
    few = None if summary is None or summary.n >= stats.N_FOR_VERDICT else f"n = {summary.n}, no verdict"
    if known.done < known.wanted:
        if len(runs.finished) > known.done:
            names = {name for record in runs.finished.values() for name in scores_of(record)}
            if column.metric in names:
                lacking = len(runs.finished) - known.done
                return State("failed", f"{lacking} of {len(runs.finished)} runs: no finite {column.metric}")
            return State("failed", f"the records have no {column.metric}. {suggest(column.metric, names)}")
        return runs.unfinished(blocked, few)
    if cell.published is None:
        return State("not published")
    if known.comparison is None:
        return State(few or "no verdict")
    chance = runs.chance(column, spread)
    state = verdict(known.comparison, runs.settings, cell.published.quoted is not None, chance)
    reasons = [reason for reason in (runs.doubt, state.reason) if reason]
    return dataclasses.replace(state, reason="; ".join(reasons) or None)


def _yours(record: Record, column: Column, runs: Runs) -> Yours:
    value = number(record, column)
    if record["status"] != "finished":
        state = State(record["status"], record.get("reason") or "no reason recorded")
    elif record["identity"] != runs.identity:
        state = State("other settings")
    elif reason := incomparable(column, Cell(), dataclasses.replace(runs, finished={(0, 0): record})):
        state = State("not comparable", reason)
    else:
        state = State("outside the mean")
    return Yours(record["seed"], record["split"], value, state)


def _median(numbers: Iterable[float | None]) -> float | None:
    known = [n for n in numbers if n is not None]
    return statistics.median(known) if known else None


def _references(spec: TableSpec, of: Mapping[str, Runs]) -> dict[str, dict[str, Summary]]:
    """The scores of trivial predictions on the same splits, once for each split.

    Rows whose data differ, in the features for instance, have each their own, which the first of them names.
    """
    summaries: dict[str, dict[str, Summary]] = {}
    for column in spec.columns:
        variants: dict[str, dict[str, Values]] = {}  # prediction -> first row -> scores
        for row in spec.rows:
            experiment = spec.cell(row, column).experiment
            for name, runs in of[experiment].references(column).items() if experiment else ():
                scores = {(split, 0): score for (split, _), score in runs.items()}
                alike = variants.setdefault(name, {})
                same = next((label for label, old in alike.items() if _agree(old, scores)), row.label)
                alike.setdefault(same, {}).update(scores)
        for name, alike in variants.items():
            for label, scores in alike.items():
                line = name if len(alike) == 1 else f"{name}, data of {label}"
                summaries.setdefault(line, {})[column.key] = stats.summarise_runs(
                    scores, column.better, spec.spread, column.bounds
                )
    return summaries


def _agree(first: Values, second: Values) -> bool:
    common = first.keys() & second.keys()
    return all(math.isclose(first[at], second[at], rel_tol=1e-6) for at in common)


def _unlike(spec: TableSpec, of: Mapping[str, Runs]) -> Iterator[str]:
    """A line for each row of the reader's own that was trained unlike all other rows of a column."""
    for row in spec.rows:
        texts: dict[str, list[str]] = {}
        for column in spec.columns if row.extra else ():
            experiments = {other.label: spec.cell(other, column).experiment for other in spec.rows}
            configs = {label: of[e].first.get("config") for label, e in experiments.items() if e}
            own = configs.pop(row.label, None)
            if own and (text := differs_in(own, [*filter(None, configs.values())])):
                texts.setdefault(text, []).append(column.title)
        for text, titles in texts.items():
            where = f", {', '.join(titles)}" if len(texts) > 1 else ""
            yield f"{row.label}{where} differs in: {text}"


def outcomes(table: Table) -> Counter[str]:
    """How many cells have which outcome: those with a published number, and those that can't be trained."""
    words: Counter[str] = Counter()
    for state in states(table):
        whole = str(state) if state.word == "not comparable" else state.word
        words[whole.partition(" (")[0]] += 1
    return words


def states(table: Table) -> list[State]:
    """The states of cells with a published number, and of those that can't be trained."""
    cells = (result for result in table.cells if result.wanted)
    return [c.state for c in cells if c.published is not None or c.state.word == "blocked"]


def table_state(table: Table) -> str:
    """One line for a list of tables: how many runs are there, and how many cells have which outcome."""
    requested = len(table.spec.runs)
    done: Counter[str] = Counter()
    for placed in table.placed:
        done |= Counter({placed.cell.experiment or "": placed.result.done})
    blocked = sum(state.word == "blocked" for state in states(table))
    parts = (counts(states(table)), f"{blocked} blocked here" if blocked else "")
    return "; ".join((f"{done.total()}/{requested} runs", *filter(None, parts)))
