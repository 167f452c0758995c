"""The results as data: cells of tables with the printed number and ours, runs, and whole tables. No torch.

    >>> from physml import results
    >>> cell = results.cells("lem-4")[0]
    >>> cell.row, cell.printed.value, cell.outcome
    ('LSTM', 1.2, 'better here')

A list of cells or runs has `to_pandas()`. Outside a checkout these are the runs that came with physml, and
those of the working folder.
"""

import dataclasses
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from physml.base.errors import ConfigError, InputError, needed_by, suggest
from physml.base.paths import results_roots
from physml.config.conf_files import is_path, shown
from physml.queue.requested import RequestedRuns, RunOptions
from physml.records import record
from physml.records.costs import core_hours
from physml.records.record import ADHOC, adhoc_folders
from physml.records.schema import Record, scores_of
from physml.report.outcome import outcome_of
from physml.report.stats.summary import Published, Summary
from physml.report.table import collect
from physml.report.table.spec import find_table, load_table, table_ids
from physml.run.spec import folder_of

if TYPE_CHECKING:
    import pandas

__all__ = ["Cell", "Rows", "Run", "Table", "cells", "runs", "table"]

WIDTH = 80  # characters of a line of a table
PARTS: dict[str, Any] = {"printed": Published, "ours": Summary}  # fields that are dataclasses, or None
T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """One row of a table in one column. Numbers are in the unit of the column.

    Args:
        table: Id of the table.
        row: Label of the row.
        column: Key of the column.
        experiment: Name of the experiment that is trained for it; None: nothing is trained.
        metric: Name in a record, such as `test/rmse`.
        unit: Unit of `printed` and `ours`; empty: none.
        better: lower or higher.
        protocol: official, paper or clean.
        printed: The paper's number: value, sd, n, statistic and more; None: it prints none.
        ours: Mean, sd, n, low and high (95 % interval of the mean) and best; None: not run.
        outcome: reproduced, better here, cannot be told apart, not reached here, differs, not run, or no
            verdict.
        words: The exact words of the outcome, with their reason.
        settings: Whose settings were run: of the paper, its code, or searched here.
        runs: How many finished runs it has, of those wanted.
        wanted: How many runs the table wants.
        parameters: How many our network has.
        core_hours: Time of all its runs, with evaluations; hours on a GPU. Cells of one experiment share its
            runs.
    """

    table: str
    row: str
    column: str
    experiment: str | None
    metric: str
    unit: str
    better: str
    protocol: str
    printed: Published | None
    ours: Summary | None
    outcome: str
    words: str
    settings: str | None
    runs: int
    wanted: int
    parameters: int | None
    core_hours: float | None


@dataclass(frozen=True)
class Run:
    """One run, as its record has it.

    Args:
        experiment: Name of the experiment.
        identity: Hash of everything that can change the result, except split and seed.
        split: Number of the split of the data.
        seed: Seed of initialisation, order and noise.
        status: finished, diverged, failed, preempted or blocked.
        reason: Why it has no result.
        scores: Scores of the selected weights, by names such as `test/rmse`.
        parameters: How many the network has.
        cost: train_s, cpu_s, eval_s, ms_per_step, peak_memory_mib, as far as they are known.
        core_hours: Time of training and evaluations; hours on a GPU.
        commit: Commit of the code.
    """

    experiment: str
    identity: str
    split: int
    seed: int
    status: str
    reason: str | None
    scores: Mapping[str, float | None]
    parameters: int | None
    cost: Mapping[str, float]
    core_hours: float
    commit: str | None


class Rows(list[T]):
    """A list of dataclasses."""

    def to_pandas(self) -> "pandas.DataFrame":
        """A DataFrame with a column for each field; those of a part are named after it, as `ours_mean`.

        Raises:
            MissingExtra: pandas is not installed.
        """
        with needed_by("to_pandas()"):
            import pandas

            return pandas.DataFrame([dict(_flat(row)) for row in self])


@dataclass(frozen=True)
class Table:
    """A table of results. `str` gives it as the terminal shows it.

    Args:
        id: `lem-4`.
        title: Its title.
        source: The paper and the number of its table.
        cells: Row by row.
    """

    id: str
    title: str
    source: str
    cells: Rows[Cell]
    _table: collect.Table = field(repr=False, compare=False)

    @cached_property
    def rows(self) -> dict[str, Rows[Cell]]:
        """The cells of each row, by its label."""
        by_row: dict[str, Rows[Cell]] = {}
        for cell in self.cells:
            by_row.setdefault(cell.row, Rows()).append(cell)
        return by_row

    def __str__(self) -> str:
        from rich.console import Console

        from physml.report.text.screen import Screen
        from physml.report.view.text import document

        text = io.StringIO()
        Console(file=text, width=WIDTH, color_system=None).print(Screen(document(self._table)))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def cells(*tables: str) -> Rows[Cell]:
    """The cells of tables, row by row: `cells("lem-4", "cornn-6")`; of all tables without a name.

    Raises:
        ConfigError: There is no such table, or it is one of settings, without runs.
    """
    names = tables or table_ids(kind="runs")
    return Rows(cell for name in names for cell in _cells(_recorded(name, ranks=False)))


def runs(*experiments: str) -> Rows[Run]:
    """The recorded runs of experiments: `runs("lem/adding-500-lem")`; of all without a name.

    Runs that belong to no table only by name: `runs("./study.yaml:mine")`, `runs("adhoc/study-mine")`.

    Raises:
        ConfigError: There are no runs of an experiment.
    """
    known = _folders()
    folders = [folder_of(name) if is_path(name) else name for name in experiments]
    every = {*known, *adhoc_folders()}
    for name, folder in zip(experiments, folders, strict=True):
        if folder not in every:
            raise ConfigError(f"there are no runs of {name}. {suggest(name, every)}")
    return Rows(_run(recorded) for folder in folders or known for recorded in record.records(folder))


def table(name: str) -> Table:
    """A table by its id or alias: `lem-4`, `thesis-5.4`; or by a path, `./mytable.yaml`.

    Raises:
        ConfigError: There is no such table, or it is one of settings, without runs.
    """
    collected = _recorded(name)
    spec = collected.spec
    return Table(spec.id, spec.title, spec.source, Rows(_cells(collected)), collected)


def _recorded(name: str, *, ranks: bool = True) -> collect.Table:
    if not isinstance(name, str):
        raise InputError(f"a table is named by its id, such as 'lem-4'; got {name!r}.")
    spec = load_table(find_table(name))
    requested = RequestedRuns(spec.runs, RunOptions(), spec.id)
    return collect.recorded(spec, requested.identities, requested.wanted_records(), ranks=ranks)


def _cells(collected: collect.Table) -> Iterator[Cell]:
    for placed in collected.placed:
        column, result = placed.column, placed.result
        yield Cell(
            table=collected.spec.id,
            row=placed.row.label,
            column=column.key,
            experiment=shown(placed.cell.experiment) if placed.cell.experiment else None,
            metric=column.metric,
            unit=column.unit,
            better=column.better,
            protocol=column.protocol,
            printed=result.published,
            ours=result.summary,
            outcome=outcome_of(result.state).name,
            words=str(result.state),
            settings=str(result.settings) if result.settings else None,
            runs=result.done,
            wanted=result.wanted,
            parameters=result.params_ours,
            core_hours=result.core_hours,
        )


def _folders() -> list[str]:
    """The names of all experiments with records."""
    roots = [root / "runs" for root in results_roots()]
    names = {folder.relative_to(root).as_posix() for root in roots for folder in record.folders_below(root)}
    return sorted(name for name in names if name.partition("/")[0] not in (ADHOC, "."))


def _run(recorded: Record) -> Run:
    cost: Mapping[str, Any] = recorded.get("cost") or {}
    return Run(
        experiment=recorded["experiment"],
        identity=recorded["identity"],
        split=recorded["split"],
        seed=recorded["seed"],
        status=recorded["status"],
        reason=recorded.get("reason"),
        scores=scores_of(recorded),
        parameters=recorded.get("n_parameters"),
        cost={key: value for key, value in cost.items() if value is not None},
        core_hours=core_hours(recorded),
        commit=(recorded.get("code") or {}).get("commit"),
    )


def _flat(instance: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass, with those of its parts and mappings in their place."""
    for part in dataclasses.fields(instance):
        value = getattr(instance, part.name)
        if part.name in PARTS:
            names = [inner.name for inner in dataclasses.fields(PARTS[part.name])]
            yield from ((f"{part.name}_{name}", getattr(value, name, None)) for name in names)
        elif isinstance(value, Mapping):
            yield from value.items()
        else:
            yield part.name, value
