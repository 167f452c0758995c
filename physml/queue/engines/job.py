"""A request to an engine: a number of pilots, each with cores, memory, GPUs and hours."""

import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import yaml

from physml.base.errors import ConfigError, suggest
from physml.base.paths import cache_root, data_root, own_conf, results_root, work_root
from physml.config import conf_files
from physml.config.load import read_yaml, structure
from physml.queue.planning import Planned
from physml.queue.processes import threads
from physml.run.resources import GROWTH, SMOKE

SPARE_HOURS = 0.25  # for the start of a pilot
UNKNOWN = 4096  # MiB of a run of which no record tells: a cluster may hold a job to what it asked for
LATE = 1.2  # runs may take so much longer than those that were timed


@dataclass(frozen=True)
class Settings:
    """Settings of an engine: conf/engine/<engine>.yaml or a site's file below it, with --engine KEY=VALUE."""

    workers: int = 4  # pilots at most; never more than runs
    cpus: int = 1  # cores of each pilot, which makes as many one-threaded runs at a time
    gpus: int | None = None  # GPUs of each pilot; None: one if the runs are to be on a GPU
    memory_gib: float | None = None  # of each pilot; None: from the records of the runs, or 4 GiB a run
    hours: float = 24.0  # limit of a job. Pilots that reach it leave checkpoints and are queued again


S = TypeVar("S", bound=Settings)


def folder_of_logs(engine: str) -> Path:
    """A new folder that we alone may write: what starts pilots follows links in place of their logs."""
    parent = work_root() / engine
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent))


@dataclass(frozen=True)
class Job:
    """The pilots of one command."""

    name: str  # name of the command, such as `table lem-1`
    command: tuple[str, ...]  # arguments of physml for a pilot
    environment: dict[str, str]  # variables that make all pilots share one folder
    runs: int  # how many are to do
    total_hours: float | None  # hours of all of them; None: not all are known
    workers: int  # pilots
    cpus: int  # cores of each
    gpus: int  # GPUs of each
    memory_gib: float  # memory of each
    hours: float  # limit of each
    detach: bool = False  # the command leaves once they are submitted


class Submission:
    """Pilots that an engine has been given."""

    attached: ClassVar[bool] = False  # whether they end with the command

    @property
    def text(self) -> str:
        """Its name on the cluster, where its output is, and how it is stopped."""
        raise NotImplementedError

    def alive(self) -> int:
        """Pilots that wait or run."""
        raise NotImplementedError

    def close(self) -> None:
        """The command ends: stop the pilots that end with it, and wait for their checkpoints."""


class Engine(Protocol):
    @property
    def settings(self) -> Settings: ...

    def describe(self, job: Job) -> str:
        """A text that shows what would be submitted."""
        ...

    def submit(self, job: Job) -> Submission: ...


def job_of(settings: Settings, command: Sequence[str], todo: Sequence[Planned]) -> Job:
    """The pilots for runs that are to do."""
    hours = [planned.cost.hours for planned in todo]
    known = [h for h in hours if h is not None]
    total = sum(known) if len(known) == len(hours) else None
    workers = min(settings.workers, len(todo))
    side_by_side = max(1, settings.cpus // max((threads(planned.spec) for planned in todo), default=1))
    rounds = math.ceil(len(todo) / (workers * side_by_side))
    limit = settings.hours
    if total is not None:
        limit = min(limit, LATE * rounds * max(known) + SPARE_HOURS)
    memory = settings.memory_gib
    if memory is None:
        peak = max(planned.cost.memory_mib or _unknown(planned) for planned in todo)
        memory = math.ceil(side_by_side * GROWTH * peak / 1024 + 1)
    gpus = settings.gpus
    if gpus is None:
        gpus = int(any(str(planned.spec.config["runtime"]["device"]).startswith("cuda") for planned in todo))
    name = " ".join(word for word in command[:2] if not word.startswith("-"))
    needs = settings.cpus, gpus, memory, limit
    return Job(name, tuple(command), shared_environment(), len(todo), total, workers, *needs)


def _unknown(planned: Planned) -> int:
    """MiB of a run of which no record tells."""
    return SMOKE if planned.spec.config["profile"] == "smoke" else UNKNOWN


def shared_environment() -> dict[str, str]:
    """Variables of a pilot: the folders of this process, absolute, and its choice of tracker and locks."""
    folders = {"PHYSML_RESULTS": results_root(), "PHYSML_RUNS": work_root(), "PHYSML_CACHE": cache_root()}
    if data := data_root():
        folders["PHYSML_DATA"] = data
    if own := own_conf():
        folders["PHYSML_CONF"] = own
    chosen = ("WANDB_MODE", "WANDB_PROJECT", "PHYSML_LOCKS", "PHYSML_LEASE_S")
    passed = {name: value for name, value in os.environ.items() if name in chosen}
    return {name: str(path) for name, path in folders.items()} | passed


def read_settings(kind: type[S], name: str, changes: Sequence[str]) -> S:
    """Settings in conf/engine/<name>.yaml, with changes KEY=VALUE.

    Errors: ConfigError for an unknown site or key, and for a value of the wrong type.
    """
    path = conf_files.find("engine", name)
    if path is None:
        known = conf_files.files("engine")
        raise ConfigError(f"there is no engine {name}. {suggest(name, ['local', 'pilot', *known])}")
    content = read_yaml(path)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ConfigError(f"--engine takes KEY=VALUE, such as partition=gpu; got {change!r}.")
        content[key] = _value(change, value)
    settings = structure(kind, content, f"engine {name}")
    for key in ("workers", "cpus", "hours", "memory_gib", "throttle"):
        if (number := getattr(settings, key, None)) is not None and not number > 0:
            raise ConfigError(f"engine {name}: {key} must be positive; got {number}.")
    for key, number in {"gpus": settings.gpus, **getattr(settings, "resources", {})}.items():
        if number is not None and not number >= 0:
            raise ConfigError(f"engine {name}: {key} must not be negative; got {number}.")
    return settings


def _value(change: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"--engine {change}: the value is not valid YAML. Put text in quotes.") from error
