"""The finished runs that a name means: of a row, an experiment, or a record. No torch, no hydra."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, InputError, suggest
from physml.base.paths import expanded
from physml.config import studies
from physml.config.conf_files import YAML, is_path
from physml.config.load import read_yaml
from physml.queue.requested import RequestedRuns, RunOptions
from physml.records import record
from physml.records.schema import Record
from physml.report.compare.rows import Side, columns_of, spread_of
from physml.report.compare.text import Rows, compared
from physml.report.stats.summary import Better
from physml.report.table.runs import Runs
from physml.report.table.spec import Cell, Row, TableSpec
from physml.run.named import folder_named

TELLING = ("graph", "length", "name", "dataset")  # arguments that make another task of one class


# --- rows of a table


def _row_named(spec: TableSpec, label: str) -> Row:
    """ConfigError for a label that no row has, with near ones."""
    rows = {row.label: row for row in spec.rows}
    if label not in rows:
        hint = suggest(label, rows)
        raise ConfigError(f"{spec.id} has no row {label!r}. {hint} Labels with blanks need quotes.")
    return rows[label]


def rows_of_table(spec: TableSpec, labels: tuple[str, str], key: str | None, hint: str) -> Rows:
    """Two rows of a table, compared by their runs.

    key: of one column; None: all. hint: what to do where nothing can be compared.
    """
    columns = [column for column in spec.columns if key in (None, column.key)]
    if not columns:
        keys = [column.key for column in spec.columns]
        raise ConfigError(f"{spec.id} has no column {key!r}. {suggest(str(key), keys)}")
    first, second = (_row_named(spec, label) for label in labels)
    if first is second:
        raise InputError(f"a comparison needs two rows; both are {first.label}.")
    cells = {column.key: (spec.cell(first, column), spec.cell(second, column)) for column in columns}
    experiments = dict.fromkeys(cell.experiment for pair in cells.values() for cell in pair)
    requested = RequestedRuns([(e, 0, 0) for e in experiments if e], RunOptions(), spec.id)
    if requested.broken:
        raise ConfigError("; ".join(f"{e}: {reason}" for e, reason in requested.broken.items()))
    records = requested.records()

    def side(row: Row, cell: Cell) -> Side:
        name = cell.experiment or ""
        identity = requested.identities.get(name)
        return Side(row.label, Runs.find(name, identity, records, spec.places_of(name)))

    sides = {key: (side(first, cell), side(second, other)) for key, (cell, other) in cells.items()}
    return compared(spec.id, columns, sides, cells, spec.spread, hint)


# --- two experiments


def rows_of_experiments(first: str, second: str, metric: str | None, better: Better | None) -> Rows:
    """The runs of two names, of the same task, but of two settings, compared."""
    sides = side_of(first), side_of(second)
    of = [(side.runs.experiment, side.runs.identity) for side in sides]
    if of[0] == of[1]:
        raise InputError(f"a comparison needs two experiments; both are {of[0][0]}.")
    if of[0][1] is not None and of[0][1] == of[1][1]:
        raise InputError(f"a comparison needs two settings; {first} and {second} are both {of[0][1]}.")
    tasks = [_task(side.runs) for side in sides]
    if None not in tasks and tasks[0] != tasks[1]:
        raise InputError(
            f"a comparison needs runs of one task; {sides[0].label} has {tasks[0]}, {sides[1].label} has "
            f"{tasks[1]}."
        )
    columns = columns_of(*sides, metric, better)
    hint = "Train more with physml run experiment=NAME split=N seed=N."
    return compared("compare", columns, {c.key: sides for c in columns}, {}, spread_of(*sides), hint)


def side_of(name: str) -> Side:
    """The runs of an experiment `lem/adding-lem`, of a row `./mine.yaml:lem`, of the setting of a record
    `results/runs/adhoc/adding-lem/0123abcd-split0-seed0.json`, or of a folder of records `adding-lem`.
    """
    if name.endswith(".json"):
        chosen = record.read(Path(name))
        label = f"{chosen['experiment']} {chosen['identity']}"
        beside = record.records_beside(Path(name))
        return Side(label, _runs(chosen["experiment"], chosen["identity"], beside))
    if name.endswith(YAML) and (path := expanded(name)).is_file() and "columns" in read_yaml(path):
        raise ConfigError(f"{name} is a table. Compare two of its rows: physml compare A B --table {name}.")
    if is_path(name) or studies.is_name(name):
        requested = RequestedRuns([(name, 0, 0)], RunOptions(), name)
        if name in requested.broken:
            raise ConfigError(f"{name}: {requested.broken[name]}")
        return Side(name, _runs(name, requested.identities[name], requested.records()))
    return _of_folder(name)


def _of_folder(name: str) -> Side:
    folder = folder_named(name, f"there is no experiment {name}; rows of a table need --table ID.")
    records = record.records(folder)
    settings = {run["identity"]: run for run in records}
    if len(settings) > 1:
        files = ", ".join(Path(str(run["path"])).name for run in settings.values())
        raise ConfigError(
            f"{folder} has runs of {len(settings)} settings. Name a record of one instead, with its folder: "
            f"{files}."
        )
    return Side(name, _runs(folder, next(iter(settings), None), records))


def _runs(experiment: str, identity: str | None, records: Iterable[Record]) -> Runs:
    records = list(records)
    return Runs.find(experiment, identity, records, {(run["split"], run["seed"]) for run in records})


def _task(runs: Runs) -> str | None:
    """The task of the runs with what tells its graphs and lengths apart; how edges are read is a choice."""
    if not runs.finished:
        return None
    task: dict[str, Any] = runs.first["config"].get("task") or {}
    choice = (runs.first.get("choices") or {}).get("task")
    arguments = ", ".join(f"{key}={task[key]}" for key in sorted(task) if key in TELLING)
    return f"{choice or task.get('_target_')}" + (f" ({arguments})" if arguments else "")
