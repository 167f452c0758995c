"""Copies of finished runs, from their records and curves. What a tracker has already is not sent again."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.errors import RecordError
from physml.base.paths import CONF, work_root
from physml.config.load import read_yaml
from physml.records import curves
from physml.records.schema import Record
from physml.report.table import spec as table_spec
from physml.run.record import summary
from physml.run.spec import RunSpec
from physml.run.trackers.registry import SERVICES
from physml.run.trackers.tracker import Row, Service, TrackedRun
from physml.run.trackers.wandb import in_sweep


class Upload:
    """Finished runs for one tracker and one project."""

    def __init__(self, kind: str, project: str | None, records: Iterable[Record]) -> None:
        self.service: Service = SERVICES[kind]
        self.keys = read_yaml(CONF / "tracker" / f"{kind}.yaml")
        self.keys |= {"project": project} if project else {}
        tables = tables_of_experiments()
        done = [record for record in records if record["status"] == "finished"]
        self.runs = [
            (TrackedRun.of_record(record, self.keys, tables.get(record["experiment"], ())), record)
            for record in done
        ]

    def lacking(self) -> list[tuple[TrackedRun, Record]]:
        """Runs that the tracker has not got from here."""
        return [(run, record) for run, record in self.runs if not self._is_sent(run, record)]

    def send(self, run: TrackedRun, record: Record) -> bool:
        """Send a run's record; True if the tracker then has it."""
        if not send(self.service, run, record):
            return False
        files.write_json(self._marker(run), self._mark(record))
        return True

    def _is_sent(self, run: TrackedRun, record: Record) -> bool:
        try:
            return bool(opened.read_json(self._marker(run)) == self._mark(record))
        except (OSError, ValueError):
            return False

    def _marker(self, run: TrackedRun) -> Path:
        return work_root() / "tracked" / self.keys["kind"] / self.keys["project"] / f"{run.id}.json"

    def _mark(self, record: Record) -> dict[str, Any]:
        content = json.dumps({**record, "path": None}, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        return {"address": self.service.address(), "record": digest}


def tables_of_experiments() -> dict[str, list[str]]:
    """Experiment -> the ids of the tables that show it."""
    by_experiment: dict[str, list[str]] = {}
    for ident in table_spec.table_ids(kind="runs"):
        spec = table_spec.load_table(table_spec.find_table(ident))
        for experiment in table_spec.experiments_of(spec):
            by_experiment.setdefault(experiment, []).append(ident)
    return by_experiment


def send(service: Service, run: TrackedRun, record: Record) -> bool:
    """A record, with its curve, as a run of a tracker; whether all of it was taken."""
    rows = rows_of(record)
    tracker = service.upload(run)
    if tracker.id is None:
        return False
    ending: tuple[dict[str, Any], int] = {"status": "partial"}, 75
    try:
        for row in rows:
            tracker.row(row)
        ending = summary(record), 0 if record["status"] == "finished" else 1
    finally:
        tracker.finish(ending[0], [], ending[1])
    return not tracker.failed


def rows_of(record: Record) -> list[Row]:
    """The curve as a run logs it; none where there is no curve."""
    try:
        _, (_, rows) = curves.curve_of(record)
    except RecordError:
        return []
    return [_numbers(row) for row in rows]


def _numbers(row: dict[str, str]) -> Row:
    numbers = {key: float(text) for key, text in row.items() if text}
    return numbers | {key: int(numbers[key]) for key in ("step", "epoch") if key in numbers}


def show_again(spec: RunSpec, done: Record) -> None:
    """In a sweep, a run that is done already still has to reach the copy that the agent waits for."""
    if in_sweep() and spec.config["tracker"]["kind"] == "wandb":
        send(SERVICES["wandb"], TrackedRun.of_spec(spec, ()), done)
