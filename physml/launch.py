"""Many runs: plan them, skip what is done, one process each, stop in time."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from physml import atomic, checkpoint, record
from physml.errors import InputError
from physml.lock import is_held
from physml.paths import ROOT, results_roots, shown, work_root
from physml.run import existing
from physml.runspec import RunSpec

State = Literal["done", "diverged", "running", "stopped", "failed", "missing"]


@dataclass(frozen=True)
class Planned:
    """A run and what is known of it before it is made."""

    spec: RunSpec
    state: State
    ms_per_step: float | None = None
    hours: float | None = None

    @property
    def todo(self) -> bool:
        return self.state in ("stopped", "failed", "missing")


@dataclass
class Outcome:
    """What a batch of runs came to."""

    codes: dict[str, int] = field(default_factory=dict)  # label -> exit code
    left: list[str] = field(default_factory=list)  # not started: out of time, or stopped
    elsewhere: list[str] = field(default_factory=list)  # another process has begun them meanwhile

    @property
    def exit_code(self) -> int:
        """75 if something was stopped or not started, else 2 or 1 if something failed, else 0."""
        codes = set(self.codes.values())
        if 75 in codes or self.left:
            return 75
        if codes <= {0}:
            return 0
        return 2 if codes <= {0, 2} else 1


def plan(specs: list[RunSpec], *, force: bool = False, probe: bool = False) -> list[Planned]:
    """Each run with its state; with `probe`, missing ones are timed for a few steps where no record tells."""
    rows = []
    for spec in specs:
        state = state_of(spec)
        if force and state in ("done", "diverged"):
            state = "missing"
        ms, hours = (None, None)
        if state in ("stopped", "failed", "missing"):
            ms, hours = estimate(spec, probe)
        rows.append(Planned(spec, state, ms, hours))
    return rows


def state_of(spec: RunSpec) -> State:
    done = existing(spec)
    if done and done["status"] == "finished":
        return "done"
    if done and done["status"] == "diverged":
        return "diverged"
    if is_held(spec.work_folder):
        return "running"
    if done:
        return "failed"
    return "stopped" if checkpoint.exists(spec.work_folder) else "missing"


def estimate(spec: RunSpec, probe: bool) -> tuple[float | None, float | None]:
    """(ms per step, hours) from a record of the same setting, else from a few steps, else unknown."""
    costs = [
        (r["cost"]["ms_per_step"], (r["cost"]["train_s"] + r["cost"]["eval_s"]) / 3600)
        for root in results_roots()
        for path in sorted((root / "runs" / spec.place.folder).glob(f"{spec.place.identity}-*.json"))
        if (r := record.read(path)).get("cost") and r["status"] == "finished"
    ]
    if costs:
        return costs[-1]
    keys = spec.config["runtime"]
    how = "-".join(
        [keys["device"].replace(":", "-"), *([keys["backend"]] if keys["backend"] != "auto" else [])]
    )
    kept = work_root() / "probes" / f"{spec.place.identity}-{how}.json"
    if probe and not kept.exists():
        process = _child(spec, ["--probe", str(kept)])
        try:
            process.wait()
        finally:
            process.kill()  # if we were stopped meanwhile
            process.wait()
    if not kept.exists():
        return None, None
    timing = json.loads(kept.read_text(encoding="utf-8"))
    return timing["ms_per_step"], timing["hours"]


def carry_out(
    planned: list[Planned],
    *,
    jobs: int,
    force: bool = False,
    max_hours: float | None = None,
    tables: list[str] | None = None,
) -> Outcome:
    """Make the runs that are to do, `jobs` at a time, and never start one after `max_hours`.

    Ctrl-C and SIGTERM reach every run, which leaves a checkpoint; the same command goes on. A run that
    another process has begun meanwhile is passed over.
    """
    todo = [p.spec for p in planned if p.todo]
    if not todo:
        return Outcome()
    if jobs < 1:
        raise InputError(f"jobs must be at least 1; got {jobs}.")
    return _Crew(todo, jobs, force, max_hours, tables or []).work()


class _Crew:
    """Processes side by side, watched until all are done."""

    def __init__(
        self, todo: list[RunSpec], jobs: int, force: bool, max_hours: float | None, tables: list[str]
    ) -> None:
        self.todo, self.jobs, self.force, self.tables = list(todo), jobs, force, tables
        self.deadline = time.monotonic() + max_hours * 3600 if max_hours else None
        self.running: dict[str, tuple[subprocess.Popen[bytes], RunSpec]] = {}
        self.outcome = Outcome()
        self.total = len(todo)
        self.asked = False  # to stop, by a signal; the handler does nothing but say so
        self.stopping = False
        self.view = _view(self.total)

    def work(self) -> Outcome:
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        before = {s: signal.signal(s, self._ask) for s in signals}
        try:
            while self.todo or self.running:
                self._stop_if_due()
                self._start()
                self._collect()
                running = {label: _progress(spec) for label, (_, spec) in self.running.items()}
                self.view.show(running, len(self.outcome.codes))
                time.sleep(0.2)
        finally:
            self._leave_nothing_running()
            self.view.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self.outcome

    def _ask(self, _number: int, _frame: object) -> None:
        self.asked = True

    def _stop_if_due(self) -> None:
        late = self.deadline is not None and time.monotonic() > self.deadline
        if self.stopping or not (self.asked or late):
            return
        self.stopping = True
        self.view.note("stopping: each run writes a checkpoint; the same command goes on from there")
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for process, _ in self.running.values():
            process.send_signal(number)

    def _leave_nothing_running(self) -> None:
        """Only after an error of our own: runs must not go on without their launcher."""
        self._signal(signal.SIGTERM)
        for process, _ in self.running.values():
            process.wait()

    def _start(self) -> None:
        if self.stopping:
            self.outcome.left += [spec.label for spec in self.todo]
            self.todo.clear()
        while self.todo and len(self.running) < self.jobs:
            spec = self.todo.pop(0)
            if is_held(spec.work_folder):
                self.outcome.elsewhere.append(spec.label)
                self.view.note(f"{spec.label}: running already")
                continue
            try:
                self.running[spec.label] = (_child(spec, [], self.force, self.tables), spec)
            except OSError as error:  # a full disk, say: one run's fault, not the end of all
                self.outcome.codes[spec.label] = 1
                self.view.note(f"{spec.label}: cannot be started: {error}")

    def _collect(self) -> None:
        for label, (process, spec) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[label]
            if self.stopping and code == -signal.SIGTERM:
                code = 75  # so early that it had nothing to save
            self.outcome.codes[label] = code if code >= 0 else 1
            self.view.ended(label, code, _why(spec, code))


def _child(
    spec: RunSpec, extra: list[str], force: bool = False, tables: list[str] | None = None
) -> "subprocess.Popen[bytes]":
    """A worker in a process group of its own, so that Ctrl-C reaches it once, through us."""
    folder = spec.work_folder
    folder.mkdir(parents=True, exist_ok=True)
    options = {"spec": spec.to_json(), "force": force, "tables": tables or []}
    file = folder / "spec.json"
    atomic.write_json(file, options)
    threads = str(spec.config["runtime"]["threads"])
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "physml.worker", str(file), *extra],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


def _why(spec: RunSpec, code: int) -> str:
    if code == 0:
        return "finished"
    if code == 75:
        return "stopped; the same command goes on"
    if code < 0:
        hint = ": perhaps out of memory" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}; the same command goes on"
    output = spec.work_folder / "output.txt"
    lines = (
        output.read_text(encoding="utf-8", errors="replace").strip().splitlines() if output.exists() else []
    )
    last = lines[-1] if lines else "no output"
    return f"{last} (exit {code}; {shown(output)})"


def _progress(spec: RunSpec) -> tuple[int, int]:
    try:
        now = json.loads((spec.work_folder / "progress.json").read_text(encoding="utf-8"))
        return now["done"], now["total"]
    except (OSError, ValueError, KeyError):
        return 0, 0


def default_jobs() -> int:
    return max(1, len(os.sched_getaffinity(0)))


# ---------------------------------------------------------------------------- what is seen


class _Lines:
    """One line per event, and one per run and minute."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.said_at = time.monotonic()

    def show(self, running: dict[str, tuple[int, int]], done: int) -> None:
        if time.monotonic() - self.said_at > 60:
            self.said_at = time.monotonic()
            for label, (step, steps) in running.items():
                self.note(f"  {label}: step {step}/{steps}")

    def ended(self, label: str, code: int, why: str) -> None:
        self.note(f"{label}: {why}")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class _Bars(_Lines):
    """A bar for all runs and one for each that is running."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.all = self.progress.add_task("[bold]runs", total=total)
        self.bars: dict[str, Any] = {}
        self.progress.start()

    def show(self, running: dict[str, tuple[int, int]], done: int) -> None:
        self.progress.update(self.all, completed=done)
        for label, (step, steps) in running.items():
            if label not in self.bars:
                self.bars[label] = self.progress.add_task(label, total=None)
            self.progress.update(self.bars[label], completed=step, total=steps or None)
        for label in [b for b in self.bars if b not in running]:
            self.progress.remove_task(self.bars.pop(label))

    def note(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.progress.stop()


def _view(total: int) -> _Lines:
    return _Bars(total) if sys.stderr.isatty() else _Lines(total)


def temporary_results() -> Path:
    """A results root that is thrown away with the system's temporary files: for smoke runs."""
    return Path(tempfile.mkdtemp(prefix="physml-smoke-"))
