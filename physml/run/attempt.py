"""One attempt at a run: everything between the lock and the record."""

import contextlib
import logging
import math
import os
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from physml.base import doing, files, opened
from physml.base.errors import DataError, InputError, PhysmlError, Preempted, RunFailed
from physml.base.lock import Hold
from physml.base.paths import display_path
from physml.records import curves, record
from physml.records.provenance import now
from physml.run import record as run_record
from physml.run import weights as saved_model
from physml.run.profiling import ProfilingReporter
from physml.run.resources import pick_device
from physml.run.spec import RunSpec
from physml.run.trackers.registry import SERVICES
from physml.run.trackers.tracker import TrackedRun, Tracker
from physml.training import checkpoint
from physml.training.interrupt import Interrupt
from physml.training.reporter import Reporter

if TYPE_CHECKING:
    from physml.config.build import Parts
    from physml.training.trainer import Trainer

log = logging.getLogger("physml")
DONE = ("finished", "diverged")  # a second start would give the same


class Attempt:
    """Trains a run from its checkpoint, if there is one, and writes its record.

    tables: ids, for W&B. lock: of the work folder; where it is lost, nothing more is written.
    """

    def __init__(
        self, spec: RunSpec, report: Reporter, interrupt: Interrupt, tables: list[str], lock: Hold
    ) -> None:
        self.spec, self.report, self.interrupt, self.tables = spec, report, interrupt, tables
        self.lock = lock
        self.config = spec.config
        self.started = now()
        self.devices: list[str] = []  # of the parts of the run so far
        self.trainer: Trainer | None = None  # once there are data and a network
        self.scores: dict[str, Any] = {}  # of the record, once the run is trained
        self.reporting = False  # from the first step on
        self.tracker = Tracker()
        self.profiling: ProfilingReporter | None = None  # with runtime.profile

    def carry_out(self) -> dict[str, Any]:
        try:
            from physml.ops import backend

            with backend.running(self.config["runtime"]["backend"], self.config["precision"]):
                recorded = self._write(*self._train())
        except (Preempted, KeyboardInterrupt) as error:
            self._end_without_record("stopped", "preempted", 75)
            if isinstance(error, Preempted):
                raise
            raise Preempted("stopped by Ctrl-C; start the same command again to go on.") from error
        except BaseException:
            self._end_without_record("failed", "failed", 1)
            raise
        reason = f": {recorded['reason']}" if recorded["reason"] else ""
        self.report.close(recorded["status"] + reason)
        return recorded

    def _end_without_record(self, message: str, status: str, exit_code: int) -> None:
        if self.reporting:  # else the error alone is shown
            self.report.close(message)
        self.tracker.finish({"status": status}, [], exit_code)

    def _keep_spec(self) -> None:
        """For `physml status`, where no scheduler has kept it; on a full disk the run goes on without."""
        with contextlib.suppress(OSError):
            if not self.spec.file.exists():
                files.write_json(self.spec.file, {"spec": self.spec.to_json()})

    def _train(self) -> tuple[str, str | None]:
        """Status and reason. Errors: Preempted, and PhysmlError for bad input."""
        from physml.ops import backend
        from physml.training.trainer import Diverged

        try:
            with self.interrupt.at_once(), doing.shown_by(self.report.note):
                trainer = self._prepare()
            self._resume(trainer)
            if (kind := self.config["tracker"]["kind"]) != "none":
                self.tracker = SERVICES[kind].start(TrackedRun.of_spec(self.spec, self.tables))
            self.reporting = True
            self._keep_spec()
            self.report.start(self.spec.label, trainer.total_steps, trainer.step)
            status, reason = "finished", None
            with flush_denormals():
                try:
                    try:
                        trainer.fit()
                    finally:
                        if self.profiling:
                            self.profiling.end()
                    counted = curves.of_part(trainer.kept["row"], "valid") if trainer.kept else {"": math.nan}
                    if counted and not any(map(math.isfinite, counted.values())):
                        raise Diverged("no evaluation on valid gave a finite number")
                except Diverged as error:
                    status, reason = "diverged", str(error)
                scores = run_record.final_scores(trainer, status)
                self.lock.refuse_if_lost()
                self.scores = scores | {"arrays": self._write_arrays(trainer)}
                if self.config["runtime"]["save_model"] and trainer.kept:
                    self.scores["weights"] = saved_model.save(self.spec, trainer.task, trainer.net)
            requested = self.config["runtime"]["backend"]
            if requested not in ("auto", "torch") and not backend.ran():
                text = "runtime.backend=%s: this net has a single backend, plain torch, which has run."
                log.warning(text, requested)
            return status, reason
        except PhysmlError:
            raise
        except (Exception, SystemExit) as error:  # a plugin may end the program, even with 0
            log.error("%s", traceback.format_exc())
            return "failed", explained(error)

    # ------------------------------------------------------------------ before

    def _prepare(self) -> "Trainer":
        set_deterministic(self.config["runtime"]["deterministic"])
        if self.config["runtime"].get("profile"):
            device = pick_device(self.config["runtime"]["device"])
            self.report = self.profiling = ProfilingReporter(self.report, self.spec.work_folder, device)
        hooks = {"report": self.report, "save": self._save, "stop": self.interrupt, "on_row": self._on_row}
        self.trainer = loaded(self.config, self.spec.parts, **hooks)
        self.trainer.check_data()
        self.trainer.check_products()
        return self.trainer

    def _resume(self, trainer: "Trainer") -> None:
        from physml.ops import backend

        state = checkpoint.load(self.spec.work_folder, self.spec.place.identity)
        if state and state.get("verify") == "off" and self.config["data"]["verify"] != "off":
            state = None  # its first steps saw data that nothing verified
        if state:
            trainer.load_state_dict(state.get("trainer", {}))
            self.started = state.get("started", self.started)
            backend.reset(state.get("backends", ()))  # older checkpoints have none
            self.devices = state.get("devices", [])  # likewise
        if (device := run_record.device_name(trainer.device)) not in self.devices:
            self.devices = [*self.devices, device]
        lines = "".join(curves.line(row) for row in trainer.rows)
        with _warn_if_disk_full("metrics.jsonl"):
            files.write_text(self.spec.work_folder / "metrics.jsonl", lines)

    # ------------------------------------------------------------------ during

    def _save(self, state: dict[str, Any]) -> None:
        from physml.ops import backend

        whole = {
            "identity": self.spec.place.identity,
            "started": self.started,
            "backends": backend.ran(),
            "devices": self.devices,
            "verify": self.config["data"]["verify"],
            "trainer": state,
        }
        self.lock.refuse_if_lost()
        after = "Training goes on."
        if self.interrupt.reason:
            after = "The next start goes on from an older one, if there is one."
        with _warn_if_disk_full("the checkpoint", after):
            checkpoint.save(self.spec.work_folder, whole)

    def _on_row(self, row: dict[str, Any]) -> None:
        file = self.spec.work_folder / "metrics.jsonl"
        with _warn_if_disk_full("metrics.jsonl"), opened.appending(file) as lines:
            lines.write(curves.line(row).encode())
        self.tracker.row(row)

    # ------------------------------------------------------------------ after

    def _write_arrays(self, trainer: "Trainer") -> str | None:
        collector = trainer.parts.arrays
        if not collector or not trainer.kept:
            return None
        size = self.config["trainer"]["eval_batch_size"]
        trainer.net.eval()  # training has ended
        arrays = collector.make().collect(trainer.net, trainer.task, size, trainer.device)
        path = self.spec.record_path.with_suffix(".npz")
        files.write(path, lambda file: np.savez_compressed(file, **arrays))
        return path.name

    def _write(self, status: str, reason: str | None) -> dict[str, Any]:
        path = self.spec.record_path
        if status == "failed" and record.exists(path) and record.read(path)["status"] in DONE:
            raise RunFailed(f"{reason}. The earlier record {display_path(path)} is kept.")
        self._keep_spec()
        recorded = run_record.of_run(self.spec, status, reason, self.started, self.tracker.id)
        rows = []
        if self.trainer:
            rows = self.trainer.rows
            recorded |= run_record.of_training(self.trainer, self.trainer.task, self.devices, self.config)
        recorded |= self.scores
        if self.profiling and self.profiling.written:
            recorded["profile"] = f"{self.spec.place.folder}/{self.spec.place.stem}/{self.profiling.written}"
        try:
            self.lock.confirm()
            if rows:
                curve = curves.own_path(path)
                content = curves.curve_csv(rows, (recorded["selected"] or {}).get("step"))
                files.write(curve, lambda file: file.write(content))
                recorded["curve"] = curve.name
            record.write(path, recorded)
        except OSError as error:
            raise RunFailed(
                f"the record {display_path(path)} could not be written: {error.strerror}. "
                "Free space and start the same command again: it goes on from the checkpoint in "
                f"{display_path(self.spec.work_folder)}."
            ) from error
        if status in DONE:
            checkpoint.remove(self.spec.work_folder)
        self.tracker.finish(run_record.summary(recorded), rows, 0 if status == "finished" else 1)
        return {**recorded, "path": str(path)}


# ---------------------------------------------------------------------------- parts


def loaded(config: dict[str, Any], parts: "Parts | None", **hooks: Any) -> "Trainer":
    """A run's trainer, with its data, on its device. DataError for a split that the task does not have."""
    import torch

    from physml.config import build
    from physml.data.store import store_of
    from physml.task.base import LOADED
    from physml.training.trainer import Trainer

    torch.set_num_threads(config["runtime"]["threads"])
    device = pick_device(config["runtime"]["device"])
    parts = parts or build.parts_of(config)
    task = parts.task.make()
    if config["split"] >= task.n_splits:
        raise DataError(
            f"{type(task).__name__} has {task.n_splits} split(s), counted from 0; "
            f"split={config['split']} is not there."
        )
    task.load(store_of(config), config["split"])
    if hasattr(task, "place") and not hasattr(task, "_facts"):
        raise InputError(
            f"{type(task).__name__}.load has placed no data. Let it call self.place(..., store)."
        )
    task.require(*LOADED)
    task.to(device)
    return Trainer(config, parts, task, device, **hooks)


def set_deterministic(enabled: bool) -> None:
    """Deterministic operations alone, or any. Does not import torch's compiler, which would take seconds."""
    import torch

    if enabled:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for on a GPU
    os.environ["TORCHINDUCTOR_DETERMINISTIC"] = str(int(enabled))  # of the compiler, if a plugin imports it
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(enabled)
    else:
        torch.set_deterministic_debug_mode("error" if enabled else "default")


@contextlib.contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush subnormal floats to zero on the CPU while training: they are ~100x slower."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def explained(error: BaseException) -> str:
    """One line for the record; out of memory is called by its name."""
    import torch

    text = f"{type(error).__name__}: {error}".partition("\n")[0]
    out_of_memory = any(
        words in str(error) for words in ("can't allocate memory", "out of memory", "ALLOC_FAILED")
    )
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or out_of_memory:
        return f"out of memory: {text}"
    return text


@contextlib.contextmanager
def _warn_if_disk_full(what: str, after: str = "Training goes on.") -> Iterator[None]:
    """A full disk during training is a warning: the last whole checkpoint stays, training goes on."""
    try:
        yield
    except OSError as error:
        log.warning("%s could not be written: %s. %s Free space.", what, error.strerror or error, after)
