"""One run, from lock to record."""

import contextlib
import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from physml import files
from physml.config.identity import payload
from physml.data.datasets import UNVERIFIED
from physml.errors import DataError, PhysmlError, Preempted, RunFailed
from physml.execution import run_record, tracker
from physml.execution.run_spec import RunSpec
from physml.lock import held
from physml.paths import results_roots, shown
from physml.records import curves, record
from physml.records.provenance import now
from physml.records.schema import Record
from physml.training import checkpoint
from physml.training.interrupt import Stop
from physml.training.reporter import Reporter

log = logging.getLogger("physml")
DONE = ("finished", "diverged")  # a second start would give the same


def existing(spec: RunSpec) -> Record | None:
    """The record of exactly this run, if it is there. Refuses a hash that two different configs share.

    A record of data that nothing verified counts only where `data.verify=off` asks for no more.
    """
    for root in results_roots():
        path = root / spec.place.relative
        if path.exists():
            found: Record = {**record.read(path), "path": str(path)}
            if found.get("hashed") not in (None, record.finite(payload(spec.config))):
                raise RunFailed(
                    f"{shown(path)} has the same identity but another config. Move it away and report this."
                )
            unverified = found.get("data", {}).get("kind") == UNVERIFIED
            if not unverified or spec.config["data"]["verify"] == "off":
                return found
    return None


def perform(
    spec: RunSpec, report: Reporter, *, force: bool = False, tables: list[str] | None = None
) -> dict[str, Any]:
    """Make one run and write its record; returns the record, with its `path`.

    Skips a run that is done, goes on with one that was stopped. Errors: Busy, Preempted (a checkpoint is
    kept), PhysmlError for bad input. Any other failure becomes a record with status `failed`.
    """
    stop = Stop()
    with stop.listening(), held(spec.work_folder):
        done = existing(spec)  # looked up under the lock: another process may have just ended it
        forced = spec.work_folder / "forced"  # so that a forced run that is stopped goes on next time
        if done and done["status"] in DONE and not force:
            if not forced.exists():  # left by a process that was killed after it had written the record
                checkpoint.remove(spec.work_folder)
            return {**done, "skipped": True}
        writable(spec)
        for path in (spec.record_path, spec.work_folder / checkpoint.NAMES[0]):
            files.sweep(path)
        if force and not forced.exists():
            checkpoint.remove(spec.work_folder)
            forced.touch()
        with _logging(spec.work_folder / "log.txt"):
            made = _Attempt(spec, report, stop, tables or []).carry_out()
        forced.unlink(missing_ok=True)
        return made


def writable(spec: RunSpec) -> None:
    """Say now, not after hours, that a record could not be written."""
    folder = spec.record_path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.writing(folder / ".probe") as temporary:
            temporary.write_bytes(b"x" * 4096)
        (folder / ".probe").unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"{shown(folder)} cannot be written: {error.strerror}. "
            "Free space, or set PHYSML_RESULTS to another folder."
        ) from error


@contextlib.contextmanager
def _least_are_zero() -> Iterator[None]:
    """On a CPU numbers below the normal ones, 1e-38 in float32, count as 0; not while data are made.

    A processor takes a hundred times as long for each, and the rates of gates that shut are such.
    """
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class _Attempt:
    """One attempt at a run: everything between the lock and the record."""

    def __init__(self, spec: RunSpec, report: Reporter, stop: Stop, tables: list[str]) -> None:
        self.spec, self.report, self.stop = spec, report, stop
        self.started = now()
        self.config = spec.config
        self.tables = tables
        self.facts: dict[str, Any] = {}
        self.begun = False
        self.tracker: tracker.Tracker = tracker.NoTracker()

    def carry_out(self) -> dict[str, Any]:
        try:
            from physml.ops import backend

            with backend.running(self.config["runtime"]["backend"]):
                made = self._write(*self._train())
        except (Preempted, KeyboardInterrupt) as error:
            self._end("stopped", "preempted", 75)
            if isinstance(error, Preempted):
                raise
            raise Preempted("stopped by Ctrl-C; start the same command again to go on.") from error
        except BaseException:
            self._end("failed", "failed", 1)
            raise
        reason = f": {made['reason']}" if made["reason"] else ""
        self.report.close(made["status"] + reason)
        return made

    def _end(self, said: str, status: str, exit_code: int) -> None:
        """The end of an attempt that leaves no record; before its first step the error alone tells it."""
        if self.begun:
            self.report.close(said)
        self.tracker.finish({"status": status}, [], exit_code)

    def _train(self) -> tuple[str, str | None]:
        """Status and reason. Errors: Preempted, and PhysmlError for bad input."""
        from physml.training.trainer import Diverged

        try:
            with self.stop.at_once():
                self._prepare()
            self._resume()
            self.tracker = tracker.start(self.spec, self.tables)
            self.begun = True
            self.report.start(self.spec.label, self.trainer.total_steps, self.trainer.step)
            status, reason = "finished", None
            with _least_are_zero():
                try:
                    self.trainer.fit()
                    if self.trainer.kept is None:
                        raise Diverged("no evaluation on valid gave a finite number")
                except Diverged as error:
                    status, reason = "diverged", str(error)
                self._measure(status)
            say_if_no_choice(self.config["runtime"]["backend"])
            return status, reason
        except PhysmlError:
            raise
        except Exception as error:
            log.error("%s", traceback.format_exc())
            return "failed", explained(error)

    # ------------------------------------------------------------------ before

    def _prepare(self) -> None:
        import torch

        from physml.config import build
        from physml.data.store import store_of
        from physml.training.trainer import Trainer

        keys = self.config["runtime"]
        torch.set_num_threads(keys["threads"])
        if keys["deterministic"]:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for on a GPU
        torch.use_deterministic_algorithms(keys["deterministic"])
        self.device = pick_device(keys["device"])
        task = build.build_task(self.config)
        if self.config["split"] >= task.n_splits:
            raise DataError(
                f"{type(task).__name__} has {task.n_splits} split(s), counted from 0; "
                f"split={self.config['split']} is not there."
            )
        task.load(store_of(self.config), self.config["split"])
        task.to(self.device)
        self.task = task
        self.trainer = Trainer(
            self.config,
            task,
            self.device,
            report=self.report,
            save=self._save,
            stop=self.stop,
            on_row=self._on_row,
        )
        self.trainer.check_data()

    def _resume(self) -> None:
        from physml.ops import backend

        state = checkpoint.load(self.spec.work_folder, self.spec.place.identity)
        if state and state.get("verify") == "off" and self.config["data"]["verify"] != "off":
            state = None  # its first steps saw data that nothing verified
        if state:
            self.trainer.load_state_dict(state["trainer"])
            self.started = state["started"]
            backend.reset(state.get("backends", ()))  # older checkpoints don't tell
        lines = "".join(curves.line(row) for row in self.trainer.rows)
        with _disk_full_is_said("metrics.jsonl"):
            files.write_text(self.spec.work_folder / "metrics.jsonl", lines)

    # ------------------------------------------------------------------ during

    def _save(self, state: dict[str, Any]) -> None:
        from physml.ops import backend

        whole = {
            "identity": self.spec.place.identity,
            "started": self.started,
            "backends": backend.ran(),
            "verify": self.config["data"]["verify"],
            "trainer": state,
        }
        after = "Training goes on."
        if self.stop.reason:
            after = "The next start goes on from an older one, if there is one."
        with _disk_full_is_said("the checkpoint", after):
            checkpoint.save(self.spec.work_folder, whole)

    def _on_row(self, row: dict[str, Any]) -> None:
        with _disk_full_is_said("metrics.jsonl"), (self.spec.work_folder / "metrics.jsonl").open("a") as file:
            file.write(curves.line(row))
        self.tracker.row(row)

    # ------------------------------------------------------------------ after

    def _measure(self, status: str) -> None:
        """Score test for the last and for the selected weights, and nothing in between."""
        trainer = self.trainer
        last_row = trainer.rows[-1] if trainer.rows else None
        metrics: dict[str, Any] = {"best": None, "last": None}
        if status == "finished" and last_row:
            metrics["last"] = self._scored(last_row, "last")
        selected = None
        if trainer.kept:
            row = trainer.kept["row"]
            selected = {"rule": trainer.selector.rule(), "step": row["step"], "epoch": row["epoch"]}
            if status == "finished" and last_row and row["step"] == last_row["step"]:
                metrics["best"] = metrics["last"]
            else:
                trainer.net.load_state_dict(trainer.kept["weights"])
                metrics["best"] = self._scored(row, "best")
        self.facts |= {
            "metrics": metrics,
            "selected": selected,
            "references": self.task.references(),
            "arrays": self._arrays(),
        }
        if self.config["runtime"]["save_model"]:
            from safetensors.torch import save_model  # which knows shared weights

            with files.writing(self.spec.work_folder / "model.safetensors") as temporary:
                save_model(trainer.net, str(temporary))

    def _scored(self, row: dict[str, Any], which: str) -> dict[str, dict[str, float]]:
        """Metrics of the present weights, those of `row`, by part. A task may calibrate itself first."""
        trainer = self.trainer
        found = trainer.calibrate() if trainer.scores_test else {}
        if not found:
            return {"valid": curves.of_part(row, "valid"), "test": self._test(row)}
        self.facts.setdefault("calibration", {})[which] = found
        return {"valid": trainer.metrics("valid", trainer.epoch), "test": self._test({})}

    def _test(self, row: dict[str, Any]) -> dict[str, float]:
        """Test metrics of the present weights: those of the row, where selection has looked at them.

        A search asks for none, so that it cannot look at them.
        """
        if not self.trainer.scores_test:
            return {}
        plain = curves.of_part(row, "test") or self.trainer.metrics("test", self.trainer.epoch)
        return {**plain, **self.trainer.perturbed(self.trainer.epoch)}

    def _arrays(self) -> str | None:
        if not self.config["arrays"] or not self.trainer.kept:
            return None
        from physml.config import build

        collector = build.construct(self.config["arrays"], "arrays", self.config["plugins"])
        arrays = collector.collect(
            self.trainer.net, self.task, self.config["trainer"]["eval_batch_size"], self.device
        )
        path = self.spec.record_path.with_suffix(".npz")
        files.write(path, lambda file: np.savez_compressed(file, **arrays))
        return path.name

    def _write(self, status: str, reason: str | None) -> dict[str, Any]:
        path = self.spec.record_path
        if status == "failed" and path.exists() and record.read(path)["status"] in DONE:
            raise RunFailed(f"{reason}. The earlier record {shown(path)} is kept.")
        made = self._account(status, reason)
        try:
            if self.rows:
                curve = curves.own_path(path)
                content = curves.curve_csv(self.rows, (made["selected"] or {}).get("step"))
                files.write(curve, lambda file: file.write(content))
                made["curve"] = curve.name
            record.write(path, made)
        except OSError as error:
            raise RunFailed(
                f"the record {shown(path)} could not be written: {error.strerror}. Free space and start the "
                f"same command again: it goes on from the checkpoint in {shown(self.spec.work_folder)}."
            ) from error
        if status in DONE:
            checkpoint.remove(self.spec.work_folder)
        self.tracker.finish(run_record.summary(made), self.rows, 0 if status == "finished" else 1)
        return {**made, "path": str(path)}

    def _account(self, status: str, reason: str | None) -> dict[str, Any]:
        made = run_record.of_run(self.spec, status, reason, self.started, self.tracker.id)
        if hasattr(self, "trainer"):
            made |= run_record.of_training(self.trainer, self.task, self.device, self.config)
        return made | self.facts

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.trainer.rows if hasattr(self, "trainer") else []


# ---------------------------------------------------------------------------- small parts


def pick_device(wanted: str) -> str:
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise DataError(
            f"runtime.device={wanted}, but torch {torch.__version__} sees no CUDA device. "
            "Use runtime.device=cpu."
        )
    try:
        return str(torch.device(wanted))
    except RuntimeError as error:
        raise DataError(
            f"runtime.device={wanted} is not a device of torch. Use auto, cpu or cuda."
        ) from error


def say_if_no_choice(wish: str) -> None:
    """One line where `runtime.backend` has wished for what no recurrence of the net can choose."""
    from physml.ops import backend

    if wish not in ("auto", "torch") and not backend.ran():
        log.warning("runtime.backend=%s: this net has a single backend, plain torch, which has run.", wish)


def explained(error: Exception) -> str:
    """One line for the record; out of memory is called by its name."""
    import torch

    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    said = any(words in str(error) for words in ("can't allocate memory", "out of memory", "ALLOC_FAILED"))
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or said:
        return f"out of memory: {text}"
    return text


@contextlib.contextmanager
def _disk_full_is_said(what: str, after: str = "Training goes on.") -> Iterator[None]:
    """A full disk during training is a warning: the last whole checkpoint stays, training goes on."""
    try:
        yield
    except OSError as error:
        log.warning("%s could not be written: %s. %s Free space.", what, error.strerror or error, after)


@contextlib.contextmanager
def _logging(path: Path) -> Iterator[None]:
    """Warnings and errors of the run go to its log.txt as well."""
    handler: logging.Handler
    try:
        handler = _LogFile(path)
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    """On a full disk a message is lost from the file alone: standard error has it too."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass
