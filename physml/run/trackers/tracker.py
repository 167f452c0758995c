"""A tracker gets a copy of a run. Never the truth, never a prompt, never a reason for a run to fail.

A tracker has two methods: `row` takes an evaluation, `finish` the end of the run.
"""

import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from physml.base.errors import needed_by
from physml.base.paths import work_root
from physml.base.text import shown
from physml.config.conf_files import find, is_path, without_places
from physml.records import provenance
from physml.records.record import Place, below_runs
from physml.records.schema import Record
from physml.run.spec import RunSpec

log = logging.getLogger(__name__)

Row = dict[str, Any]
SWEEP = "sweep-"  # how the name of a sweep begins, one for all runs of a `physml run -m`


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker shows it.

    Args:
        keys: `tracker` of a config: kind, project, mode, tags.
        tables: Ids of the tables that the run is made for, and of its sweep.
        label: The title of a picture.
        known_id: The id of its copy, where there is one already; None: that of its place.
        choices: The files of its config by group.
        commit: The commit of the code.
    """

    place: Place
    config: dict[str, Any]
    keys: dict[str, Any]
    tables: Sequence[str] = ()
    label: str = ""
    known_id: str | None = None
    choices: Mapping[str, str | None] = field(default_factory=dict)
    commit: str | None = None

    @classmethod
    def of_spec(cls, spec: RunSpec, tables: Sequence[str]) -> "TrackedRun":
        return cls(
            spec.place,
            without_places(spec.config),
            spec.config["tracker"],
            tables,
            spec.label,
            choices=spec.choices,
            commit=provenance.code()["commit"],
        )

    @classmethod
    def of_record(cls, record: Record, keys: dict[str, Any], tables: Sequence[str]) -> "TrackedRun":
        """`record` has its path, which says the folder of its experiment."""
        folder = "/".join(below_runs(Path(record["path"]))) or record["experiment"]
        place = Place(folder, record["identity"], record["split"], record["seed"])
        known = record.get("wandb") if keys["kind"] == "wandb" else None
        return cls(
            place,
            without_places(record["config"]),
            keys,
            tables,
            known_id=known,
            choices=record.get("choices") or {},
            commit=(record.get("code") or {}).get("commit"),
        )

    @property
    def id(self) -> str:
        """The same for every start of the run, and for its upload later."""
        return self.known_id or f"{self.place.folder.replace('/', '-')}-{self.place.stem}"[-120:]

    @property
    def name(self) -> str:
        return f"{self.place.folder}-{self.place.stem}"

    @property
    def group(self) -> str:
        """One for all seeds and splits of a setting."""
        return f"{self.place.folder}@{self.place.identity}"

    @property
    def tags(self) -> list[str]:
        """Tables and sweep, paper, task and model, and those of the config."""
        named = [f"{key}-{value}" for key, value in self.parts.items() if value]
        return list(dict.fromkeys([*self.tables, *named, *self.keys["tags"]]))

    @property
    def parts(self) -> dict[str, str | None]:
        """Names of paper, task and model; None where the config has its own."""
        experiment = self.choices.get("experiment")
        paper = experiment.partition("/")[0] if experiment and not is_path(experiment) else None
        named = {key: self.choices.get(key) for key in ("task", "model")}
        return {"paper": paper} | {key: None if name == "own" else name for key, name in named.items()}

    @property
    def about(self) -> dict[str, Any]:
        """Beside the config: where the run belongs, down to the cells of tables, and its commit."""
        return {
            "experiment": self.choices.get("experiment"),
            "identity": self.place.identity,
            "commit": self.commit,
            "sweep": next((name for name in self.tables if name.startswith(SWEEP)), None),
            **self.parts,
            "cells": self._cells(),
        }

    def _cells(self) -> list[dict[str, str]]:
        """Table, row and column of each cell that the run counts for, but for tables at a path."""
        from physml.report.table.spec import load_table

        cells = []
        for path in filter(None, (find("table", ident) for ident in self.tables)):  # others: figures, sweeps
            spec = load_table(path)
            cells += [
                {"table": spec.id, "row": row.label, "column": column.key}
                for row in spec.rows
                for column in spec.columns
                if spec.cell(row, column).experiment == self.choices.get("experiment")
            ]
        return cells

    @property
    def profile(self) -> str:
        return str(self.config.get("profile", "full"))

    @property
    def folder(self) -> Path:
        """The work folder of the run, where a tracker may keep files."""
        return work_root() / self.place.folder / self.place.stem


class Tracker:
    """Follows a run; this one does nothing.

    Attributes:
        id: Id of the copy; None: there is none.
        failed: Whether a call has failed.
    """

    id: str | None = None
    failed: bool = False

    def row(self, row: Row) -> None:
        """An evaluation. Has `step`."""

    def finish(self, summary: Row, rows: list[Row], exit_code: int) -> None:
        """The end. rows: all evaluations, for a picture; none: there is no picture."""


class Service:
    """A kind of tracker, and where its copies go."""

    name: ClassVar[str]
    package: ClassVar[str]

    def start(self, run: TrackedRun) -> Tracker:
        """Follow a run that is made now, as well as it goes."""
        raise NotImplementedError

    def upload(self, run: TrackedRun) -> Tracker:
        """Take a run that is done; unlike `start` there is no second best."""
        return self.start(run)

    def address(self) -> str:
        """The server or database that gets the copies, without a password."""
        raise NotImplementedError

    def refuse(self) -> None:
        """PhysmlError, with what to do, where nothing could be sent."""
        with needed_by(self.name):
            importlib.import_module(self.package)

    def installed(self) -> bool:
        return self.package in sys.modules or importlib.util.find_spec(self.package) is not None


class GuardedTracker(Tracker):
    """A tracker whose faults become warnings. A row that its copy has already is not sent again."""

    name: ClassVar[str]

    def __init__(self, run: TrackedRun) -> None:
        self.tracked = run
        self.sent = -1  # the last step that the copy has
        self.guarded("init", self._begin)

    def row(self, row: Row) -> None:
        if not self.failed and row["step"] > self.sent:
            self.guarded("log", lambda: self._log(row))
            self.sent = row["step"]

    def guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a tracker's fault is noted and never hurts the run
            said = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
            log.warning("%s %s failed: %s. The run goes on.", self.name, what, shown(said))
            self.failed = True

    def _begin(self) -> None:
        raise NotImplementedError

    def _log(self, row: Row) -> None:
        raise NotImplementedError
