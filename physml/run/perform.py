"""One run, from lock to record."""

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.errors import DataError, RunFailed
from physml.base.lock import held
from physml.base.paths import display_path, results_roots, unwritable
from physml.config.identity import identity, payload
from physml.data.datasets import UNVERIFIED
from physml.records import record
from physml.records.schema import Record
from physml.run import history, live, weights
from physml.run.attempt import DONE, Attempt
from physml.run.spec import RunSpec
from physml.run.trackers.upload import show_again
from physml.training import checkpoint
from physml.training.interrupt import Interrupt
from physml.training.reporter import Reporter


def existing(spec: RunSpec) -> Record | None:
    """The record of exactly this run, if it is there. Refuses a hash that two different configs share.

    The first results root wins, but a failure hides no result of a later one. A record of data that nothing
    verified counts only where `data.verify=off` asks for no more, one without a score on test data only
    where `runtime.score_test=false` does.
    """
    failed: Record | None = None
    for root in results_roots():
        path = root / spec.place.relative
        if record.exists(path):
            recorded = record.read(path)
            if _of_another_config(recorded, spec):
                raise RunFailed(
                    f"{display_path(path)} has the same identity but another config. "
                    "Move it away and report this."
                )
            if _suffices(recorded, spec.config):
                if recorded["status"] in DONE:
                    return recorded
                failed = failed or recorded
    return failed


def _of_another_config(recorded: Record, spec: RunSpec) -> bool:
    """True if two configs share a hash. Of files that were edited or have gone since, nothing is known."""
    hashed = recorded.get("hashed")
    with contextlib.suppress(DataError):
        if hashed not in (None, record.finite(payload(spec.config))):
            return identity(spec.config) == spec.place.identity
    return False


def _suffices(recorded: Record, config: dict[str, Any]) -> bool:
    """True if a record has what a run asks for: verified data, and a score on test data."""
    verified = recorded.get("data", {}).get("kind") != UNVERIFIED or config["data"]["verify"] == "off"
    scored, asked = (of.get("runtime", {}).get("score_test", True) for of in (recorded["config"], config))
    return verified and (scored or not asked)


def perform(
    spec: RunSpec, report: Reporter, *, force: bool = False, tables: list[str] | None = None
) -> dict[str, Any]:
    """Make one run and write its record; returns the record, with its `path`.

    Skips a run that is done, goes on with one that was stopped. Errors: Busy, Preempted (a checkpoint is
    kept), PhysmlError for bad input. Any other failure becomes a record with status `failed`.
    """
    interrupt = Interrupt()
    with interrupt.listening(), held(spec.work_folder) as lock:
        for name in (checkpoint.NAMES[0], live.NAME, "curves.png", weights.NAME):
            files.sweep(spec.work_folder / name)
        done = existing(spec)  # looked up under the lock: another process may have just ended it
        forced = spec.work_folder / "forced"  # so that a forced run that is stopped goes on next time
        if done and done["status"] in DONE and not force:
            if not forced.exists():  # left by a process that was killed after it had written the record
                checkpoint.remove(spec.work_folder)
            show_again(spec, done)
            return {**done, "skipped": True}
        writable(spec)
        files.sweep(spec.record_path)
        if force and not forced.exists():
            checkpoint.remove(spec.work_folder)
            forced.touch()
        with history.counted(spec.work_folder), _logging(spec.work_folder / "log.txt"):
            recorded = Attempt(spec, report, interrupt, tables or [], lock).carry_out()
        if recorded["status"] in DONE:
            history.forget(spec.work_folder)
        forced.unlink(missing_ok=True)
        return recorded


def writable(spec: RunSpec) -> None:
    """Say now, not after hours, that a record could not be written."""
    folder = spec.record_path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise unwritable(folder, error) from error


@contextlib.contextmanager
def _logging(path: Path) -> Iterator[None]:
    """Warnings and errors of the run go to its log.txt as well."""
    handler: logging.Handler = logging.NullHandler()
    with contextlib.suppress(OSError):
        handler = logging.StreamHandler(io.TextIOWrapper(opened.appending(path), encoding="utf-8"))
    # On a full disk a message is lost from the file alone: standard error has it too.
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            if isinstance(handler, logging.StreamHandler):
                handler.stream.close()
