"""The finished runs that a name means: of an experiment, of its file, or of a record. No torch, no hydra."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from physml.config import studies
from physml.config.conf_files import is_path
from physml.errors import ConfigError, InputError, suggest
from physml.execution.requested_runs import RequestedRuns, RunOptions
from physml.records import record
from physml.records.export import ADHOC, adhoc_folders
from physml.records.schema import Record
from physml.reporting.row_comparison import Side
from physml.reporting.runs import Runs

TELLING = ("graph", "length", "name", "dataset")  # arguments that make another task of one class


def both(first: str, second: str) -> tuple[Side, Side]:
    """The runs of two names, of the same task.

    Raises:
        ConfigError: A name that nothing has, with near names; or one of several settings.
        InputError: Both mean the same runs, or runs of different tasks.
    """
    sides = side_of(first), side_of(second)
    of = [(side.runs.experiment, side.runs.identity) for side in sides]
    if of[0] == of[1]:
        raise InputError(f"a comparison needs two experiments; both are {of[0][0]}.")
    tasks = [_task(side.runs) for side in sides]
    if None not in tasks and tasks[0] != tasks[1]:
        raise InputError(
            f"a comparison needs runs of one task; {sides[0].label} has {tasks[0]}, {sides[1].label} has "
            f"{tasks[1]}."
        )
    return sides


def side_of(name: str) -> Side:
    """The runs of an experiment `lem/adding-lem`, of a file `./mine.yaml`, of the setting of a record
    `results/runs/adhoc/adding-lem/0123abcd-split0-seed0.json`, or of a folder of records `adding-lem`."""
    if name.endswith(".json"):
        made = record.read(Path(name))
        beside = [record.read(path) for path in sorted(Path(name).parent.glob(record.RUNS))]
        return Side(_labelled(made), _runs(made["experiment"], made["identity"], beside))
    if is_path(name) or studies.is_name(name):
        requested = RequestedRuns([(name, 0, 0)], RunOptions(), name)
        if name in requested.broken:
            raise ConfigError(f"{name}: {requested.broken[name]}")
        return Side(name, _runs(name, requested.identities[name], requested.records()))
    return _of_folder(name)


def _of_folder(name: str) -> Side:
    known = [*studies.names(), *adhoc_folders()]
    folder = next((option for option in (name, f"{ADHOC}/{name}") if option in known), None)
    if folder is None:
        raise ConfigError(f"there is no experiment {name}. {suggest(name, known)}")
    found = record.records(folder)
    settings = {one["identity"]: one for one in found}
    if len(settings) > 1:
        files = ", ".join(Path(str(one["path"])).name for one in settings.values())
        raise ConfigError(
            f"{folder} has runs of {len(settings)} settings. Name a record of one instead, with its folder: "
            f"{files}."
        )
    return Side(name, _runs(folder, next(iter(settings), None), found))


def _runs(experiment: str, identity: str | None, records: Iterable[Record]) -> Runs:
    records = list(records)
    seeds, splits = {one["seed"] for one in records}, {one["split"] for one in records}
    return Runs.find(experiment, identity, records, seeds, splits)


def _labelled(made: Record) -> str:
    return f"{made['experiment']} {made['identity']}"


def _task(runs: Runs) -> str | None:
    """The task of the runs with what tells its graphs and lengths apart; how edges are read is a choice."""
    for one in runs.finished.values():
        task: dict[str, Any] = dict((one.get("config") or {}).get("task") or {})
        choice = (one.get("choices") or {}).get("task")
        arguments = ", ".join(f"{key}={task[key]}" for key in sorted(task) if key in TELLING)
        return f"{choice or task.get('_target_')}" + (f" ({arguments})" if arguments else "")
    return None
