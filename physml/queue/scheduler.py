"""Runs worker processes concurrently until the queue is empty."""

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from physml.base.errors import InputError
from physml.base.lock import is_held
from physml.base.paths import display_path, unwritable, work_variable
from physml.config.resolve import name_plugins
from physml.queue.planning import Planned, _of_probe
from physml.queue.processes import (
    ForkServer,
    Process,
    can_fork,
    device_of,
    output_lines,
    pause,
    start_worker,
    threads,
)
from physml.queue.worker import BUSY
from physml.records.costs import Cost
from physml.run.live import Live
from physml.run.progress import many
from physml.run.resources import CONTEXT, GROWTH, MIB, SMOKE, Machine, Resources, Slot
from physml.run.spec import RunSpec
from physml.training.interrupt import SIGNALS, handled

BESIDE_GPU = 4096  # MiB of main memory of a run on a GPU, unless it is known
UNKNOWN = Resources(1, math.inf, gpu_memory=math.inf)  # it could not be tried: it runs alone


@dataclass
class Outcome:
    """The exit codes of a batch of runs."""

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


@dataclass
class Batch:
    """Runs that are to do, and how; see `carry_out`."""

    todo: list[Planned]
    machine: Machine
    force: bool = False
    max_hours: float | None = None
    tables: list[str] = field(default_factory=list)
    ended: Callable[[RunSpec], str] | None = None
    names: Mapping[str, str] | None = None


_MAKER: ContextVar[Callable[[Batch], Outcome] | None] = ContextVar("maker", default=None)


@contextlib.contextmanager
def made_by(make: Callable[[Batch], Outcome]) -> Iterator[None]:
    """Inside, `carry_out` leaves the runs to another maker, such as a pilot."""
    token = _MAKER.set(make)
    try:
        yield
    finally:
        _MAKER.reset(token)


def estimate(spec: RunSpec, cost: Cost) -> Resources | None:
    """The resources of a run, by its cost; None if its memory is unknown."""
    device = device_of(spec)
    on_gpu = device.startswith("cuda")
    peak = cost.gpu_mib if on_gpu else cost.memory_mib
    if peak is None:
        return Resources(threads(spec), SMOKE * MIB, device) if spec.config["profile"] == "smoke" else None
    if not on_gpu:
        return Resources(threads(spec), GROWTH * peak * MIB)
    memory = GROWTH * (cost.memory_mib or BESIDE_GPU) * MIB
    return Resources(threads(spec), memory, device, GROWTH * peak * MIB + CONTEXT)


def footprint(spec: RunSpec) -> str:
    """Equal for runs that take the same memory: they differ in nothing but floats, seed or duration."""
    config, trainer = spec.config, spec.config["trainer"]
    kept = [config[key] for key in ("model", "net", "task", "optim", "precision", "profile", "runtime")]
    sizes = [trainer[key] for key in ("batch_size", "eval_batch_size")]
    return json.dumps(json.loads(json.dumps([*kept, *sizes]), parse_float=lambda _: None), sort_keys=True)


def carry_out(
    planned: list[Planned],
    *,
    jobs: int | None,
    force: bool = False,
    max_hours: float | None = None,
    tables: list[str] | None = None,
    ended: Callable[[RunSpec], str] | None = None,
    names: Mapping[str, str] | None = None,
) -> Outcome:
    """Make the runs that are to do, `jobs` at a time, and never start one after `max_hours`.

    jobs: None for as many as the machine can hold. ended: called after each run; its text is shown.
    names: of runs while they are shown, by their labels.

    Ctrl-C and SIGTERM reach every run, which leaves a checkpoint; the same command goes on. A run that
    another process has begun meanwhile is passed over.
    """
    todo = [p for p in planned if p.todo]
    if not todo:
        return Outcome()
    name_plugins(run.spec.config for run in todo)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1; got {jobs}.")
    batch = Batch(todo, Machine(jobs), force, max_hours, tables or [], ended, names)
    make = maker()
    return Scheduler(batch).work() if make is None else make(batch)


def maker() -> Callable[[Batch], Outcome] | None:
    """The function set by `made_by`."""
    return _MAKER.get()


class Scheduler:
    """Runs worker processes concurrently until the queue is empty."""

    def __init__(self, batch: Batch) -> None:
        self.todo, self.machine, self.force = list(batch.todo), batch.machine, batch.force
        self.tables, self.ended = batch.tables, batch.ended
        self.needs: dict[str, Resources] = {}
        self.deadline = time.monotonic() + batch.max_hours * 3600 if batch.max_hours else None
        self.running: dict[str, tuple[Process, RunSpec, Slot]] = {}
        self.server = (
            ForkServer([run.spec for run in self.todo]) if len(self.todo) > 1 and can_fork() else None
        )
        self.outcome = Outcome()
        self.interrupted = False  # by a signal
        self.stopping = False
        self.view = many(len(self.todo), batch.names)

    def work(self) -> Outcome:
        with handled(SIGNALS, self._interrupt):
            try:
                self._measure()
                while self._more():
                    self._stop_if_due()
                    self._start()
                    self._collect()
                    running = [spec for _, spec, _ in self.running.values()]
                    lives = {spec.label: Live.read(spec.work_folder) for spec in running}
                    self.view.show(lives, len(self.outcome.codes))
                    pause([process for process, _, _ in self.running.values()], 0.2)
            finally:  # after an error of our own runs must not go on without their launcher
                self._signal(signal.SIGTERM)
                for process, _, _ in self.running.values():
                    process.wait()
                self.view.close()
        return self.outcome

    def _more(self) -> bool:
        return bool(self.todo or self.running)

    def _interrupt(self, _number: int, _frame: object) -> None:
        self.interrupted = True

    def _stop_if_due(self) -> None:
        late = self.deadline is not None and time.monotonic() > self.deadline
        if self.stopping or not (self.interrupted or late):
            return
        self.stopping = True
        self.view.note("stopping: each run writes a checkpoint; the same command goes on from there")
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for process, _, _ in self.running.values():
            process.send_signal(number)

    def _start(self) -> None:
        if self.stopping:
            self.outcome.left += [run.spec.label for run in self.todo]
            self.todo.clear()
        for run in list(self.todo):
            taken = [slot for _, _, slot in self.running.values()]
            slot = self.machine.slot(self.needs[run.spec.label], taken)
            if slot and not self.interrupted:
                self.todo.remove(run)
                self._start_one(run, slot)

    def _start_one(self, run: Planned, slot: Slot) -> None:
        spec = run.spec
        if is_held(spec.work_folder):
            self._leave(run)
            return
        try:
            process = start_worker(spec, [], self.force, self.tables, slot.environment, self.server)
        except OSError as error:  # such as a full disk
            self.outcome.codes[spec.label] = 1
            reason = unwritable(spec.work_folder, error, work_variable())
            self.view.note(f"{self.view.named(spec.label)}: cannot be started: {reason}")
            return
        slot.pid = process.pid
        self.running[spec.label] = (process, spec, slot)

    def _leave(self, run: Planned) -> None:
        """Another process works on it."""
        self.outcome.elsewhere.append(run.spec.label)
        self.view.note(f"{self.view.named(run.spec.label)}: running already")

    def _measure(self) -> None:
        """Estimate the resources of each run; one of each unknown size is tried for a few steps, alone."""
        estimates = self.machine.needs_estimate and len(self.todo) > 1
        sizes: dict[str, Resources] = {}
        unknown = []
        for run in self.todo:
            needs = estimate(run.spec, run.cost) if estimates else Resources(1, 0)
            if needs is None:
                unknown.append(run.spec)
            else:
                sizes[footprint(run.spec)] = self.needs[run.spec.label] = needs
        for spec in unknown:
            key = footprint(spec)
            if key not in sizes and not self.interrupted:
                sizes[key] = self._tried(spec)
            self.needs[spec.label] = sizes.get(key, UNKNOWN)

    def _tried(self, spec: RunSpec) -> Resources:
        self.view.note(f"{self.view.named(spec.label)}: trying a few steps, to know how much memory it takes")
        try:
            cost = _of_probe(spec, True, lambda: self._looked(spec), self.server)
        except OSError:  # the run itself will report it
            cost = Cost()
        return estimate(spec, cost) or UNKNOWN

    def _looked(self, spec: RunSpec) -> bool:
        """Show a trial; True once it is to be stopped."""
        self.view.show({spec.label: Live.read(spec.work_folder)}, 0)
        return self.interrupted

    def _collect(self) -> None:
        for label, (process, spec, _) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[label]
            if self.stopping and code == -signal.SIGTERM:
                code = 75  # so early that it had nothing to save
            if code == BUSY:
                self._leave(Planned(spec, "running"))
            elif self._ended(spec, code):
                more = f"; {self.ended(spec)}" if self.ended else ""
                self.view.note(f"{self.view.named(spec.label)}: {why(spec, code)}{more}")

    def _ended(self, spec: RunSpec, code: int) -> bool:
        """Take note of an exit code; whether it is to be shown."""
        self.outcome.codes[spec.label] = code if code >= 0 else 1
        return True


def why(spec: RunSpec, code: int) -> str:
    """An exit code of a run, in words."""
    if code == 0:
        return "finished"
    if code == 75:
        return "stopped; the same command goes on"
    if code < 0:
        hint = ": perhaps out of memory" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}; the same command goes on"
    return f"{last_words(spec)} (exit {code}; {display_path(spec.output_file)})"


def last_words(spec: RunSpec) -> str:
    """The last line that a worker of a run has printed."""
    lines = output_lines(spec)
    return lines[-1] if lines else "no output"
