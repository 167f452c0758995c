"""Many runs: plan them, skip what is done, one process each, stop in time."""

import json
import math
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from physml import atomic, checkpoint, record
from physml.errors import DataError, InputError
from physml.lock import is_held
from physml.paths import results_roots, shown, work_root
from physml.progress import many
from physml.room import CONTEXT, GROWTH, MIB, Count, Machine, Needs, Room, Seat
from physml.run import existing, pick_device
from physml.runspec import RunSpec
from physml.starter import Process, Starter, can_fork, environment, fresh

SMOKE = 1024  # MiB, for a run at tiny size that nothing is known of
BESIDE_GPU = 4096  # MiB of main memory of a run on a GPU, unless it is known
NOTHING_KNOWN = Needs(1, math.inf, gpu_memory=math.inf)  # it could not be tried: it runs alone

State = Literal["done", "diverged", "running", "stopped", "failed", "missing", "blocked"]


@dataclass(frozen=True)
class Cost:
    """What a run will take, as far as it is known: time, and memory at its peak."""

    ms_per_step: float | None = None
    hours: float | None = None
    memory_mib: float | None = None
    gpu_mib: float | None = None


@dataclass(frozen=True)
class Planned:
    """A run and what is known of it before it is made."""

    spec: RunSpec
    state: State
    cost: Cost = Cost()
    reason: str | None = None  # why it is blocked

    @property
    def said(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state

    @property
    def todo(self) -> bool:
        return self.state in ("stopped", "failed", "missing")

    @property
    def ms_per_step(self) -> float | None:
        return self.cost.ms_per_step

    @property
    def hours(self) -> float | None:
        return self.cost.hours


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
    lacking: dict[tuple[Any, ...], str | None] = {}  # what runs of one setting have in common,
    told: dict[tuple[str, str], Cost | None] = {}  # looked up once
    for spec in specs:
        state = state_of(spec)
        if force and state in ("done", "diverged"):
            state = "missing"
        one = Planned(spec, state)
        if one.todo:
            key = (spec.datasets, spec.config["profile"], spec.config["data"]["verify"])
            if key not in lacking:
                lacking[key] = blocked_by(spec.config, spec.datasets)
            if reason := lacking[key]:
                one = Planned(spec, "blocked", reason=reason)
        if one.todo:
            setting = (spec.place.folder, spec.place.identity)
            if setting not in told:
                told[setting] = _of_records(*setting)
            one = replace(one, cost=told[setting] or _of_probe(spec, probe))
        rows.append(one)
    return rows


def blocked_by(config: dict[str, Any], datasets: Sequence[str]) -> str | None:
    """Which data a run of this config lacks; looks at names of files alone, and smoke runs lack none."""
    from physml.data.store import store_of
    from physml.data.verify import blocked

    return blocked(datasets, store_of(config)) if config["profile"] == "full" else None


def refuse_blocked(spec: RunSpec) -> None:
    """DataError, with all one needs to get the data, where a run lacks them."""
    from physml.data.store import store_of
    from physml.data.verify import refuse_absent

    if spec.config["profile"] == "full":
        refuse_absent(spec.datasets, store_of(spec.config))


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


def _of_records(folder: str, identity: str) -> Cost | None:
    """From the last record of a setting; the others are not read."""
    for root in reversed(results_roots()):
        for path in sorted((root / "runs" / folder).glob(f"{identity}-*.json"), reverse=True):
            made = record.read(path)
            if made.get("cost") and made["status"] == "finished":
                return _of_record(made)
    return None


def _of_record(made: dict[str, Any]) -> Cost:
    """Its memory is that of the device, of which main memory says nothing on a GPU."""
    cost = made["cost"]
    peak = cost.get("peak_memory_mib")
    on_cpu = (made.get("machine") or {}).get("device") == "cpu"
    return Cost(
        cost["ms_per_step"],
        (cost["train_s"] + cost["eval_s"]) / 3600,
        *((peak, None) if on_cpu else (None, peak)),
    )


def _of_probe(
    spec: RunSpec,
    probe: bool,
    stopped: Callable[[], bool] = lambda: False,
    starter: Starter | None = None,
) -> Cost:
    """Timed once, unless `stopped`; later from the file that was kept."""
    keys = spec.config["runtime"]
    device = keys["device"].replace(":", "-")
    kept = (
        work_root() / "probes" / f"{spec.place.identity}-{device}-{keys['backend']}-2.json"
    )  # 2: with memory
    if probe and not kept.exists():
        process = _child(spec, ["--probe", str(kept)], starter=starter)
        try:
            while process.poll() is None and not stopped():
                time.sleep(0.05)
        finally:
            process.kill()  # if we were stopped meanwhile
            process.wait()
    if not kept.exists():
        return Cost()
    told = json.loads(kept.read_text(encoding="utf-8"))
    return Cost(told["ms_per_step"], told["hours"], told["memory_mib"], told["gpu_mib"])


def threads(spec: RunSpec) -> int:
    return int(spec.config["runtime"]["threads"])


def device_of(spec: RunSpec) -> str:
    try:
        return pick_device(spec.config["runtime"]["device"])
    except DataError:  # the run itself will say it
        return "cpu"


def size(spec: RunSpec, cost: Cost) -> Needs | None:
    """What a run takes of the machine, by its cost; None where that does not tell the memory it will use."""
    device = device_of(spec)
    on_gpu = device.startswith("cuda")
    peak = cost.gpu_mib if on_gpu else cost.memory_mib
    if peak is None:
        return Needs(threads(spec), SMOKE * MIB, device) if spec.config["profile"] == "smoke" else None
    if not on_gpu:
        return Needs(threads(spec), GROWTH * peak * MIB)
    memory = GROWTH * (cost.memory_mib or BESIDE_GPU) * MIB
    return Needs(threads(spec), memory, device, GROWTH * peak * MIB + CONTEXT)


def footprint(spec: RunSpec) -> str:
    """Equal for runs that take the same memory: they differ in nothing but floats, seed or duration."""
    config, trainer = spec.config, spec.config["trainer"]
    kept = [config[key] for key in ("model", "net", "task", "optim", "precision", "profile", "runtime")]
    sizes = [trainer[key] for key in ("batch_size", "eval_batch_size")]
    return json.dumps(_without_floats([*kept, *sizes]), sort_keys=True)


def _without_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_floats(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_floats(v) for v in value]
    return None if isinstance(value, float) else value


def carry_out(
    planned: list[Planned],
    *,
    jobs: int | None,
    force: bool = False,
    max_hours: float | None = None,
    tables: list[str] | None = None,
) -> Outcome:
    """Make the runs that are to do, `jobs` at a time, and never start one after `max_hours`.

    jobs: None for as many as the machine has room for.

    Ctrl-C and SIGTERM reach every run, which leaves a checkpoint; the same command goes on. A run that
    another process has begun meanwhile is passed over.
    """
    todo = [p for p in planned if p.todo]
    if not todo:
        return Outcome()
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1; got {jobs}.")
    room = Machine() if jobs is None else Count(jobs)
    return _Crew(todo, room, force, max_hours, tables or []).work()


class _Crew:
    """Processes side by side, watched until all are done."""

    def __init__(
        self, todo: list[Planned], room: Room, force: bool, max_hours: float | None, tables: list[str]
    ) -> None:
        self.todo, self.room, self.force, self.tables = list(todo), room, force, tables
        self.needs: dict[str, Needs] = {}
        self.deadline = time.monotonic() + max_hours * 3600 if max_hours else None
        self.running: dict[str, tuple[Process, RunSpec, Seat]] = {}
        self.starter = Starter([one.spec for one in todo]) if len(todo) > 1 and can_fork() else None
        self.outcome = Outcome()
        self.total = len(todo)
        self.asked = False  # to stop, by a signal; the handler does nothing but say so
        self.stopping = False
        self.view = many(self.total)

    def work(self) -> Outcome:
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        before = {s: signal.signal(s, self._ask) for s in signals}
        try:
            self._measure()
            while self.todo or self.running:
                self._stop_if_due()
                self._start()
                self._collect()
                running = {label: _progress(spec) for label, (_, spec, _) in self.running.items()}
                self.view.show(running, len(self.outcome.codes))
                self._pause(0.2)
        finally:
            self._leave_nothing_running()
            if self.starter:
                self.starter.close()
            self.view.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self.outcome

    def _pause(self, seconds: float) -> None:
        if self.starter:
            self.starter.pause(seconds)
        else:
            time.sleep(seconds)

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
        for process, _, _ in self.running.values():
            process.send_signal(number)

    def _leave_nothing_running(self) -> None:
        """Only after an error of our own: runs must not go on without their launcher."""
        self._signal(signal.SIGTERM)
        for process, _, _ in self.running.values():
            process.wait()

    def _start(self) -> None:
        if self.stopping:
            self.outcome.left += [one.spec.label for one in self.todo]
            self.todo.clear()
        for one in list(self.todo):
            taken = [seat for _, _, seat in self.running.values()]
            seat = self.room.seat(self.needs[one.spec.label], taken)
            if seat and self._is_ready(one.spec, seat):
                self.todo.remove(one)
                self._start_one(one.spec, seat)

    def _is_ready(self, spec: RunSpec, seat: Seat) -> bool:
        """Whether what it is forked from is there: until then a stop is heard."""
        if self.starter is None or not may_fork(spec):
            return True
        return self.starter.prepare(environment(threads(spec), seat.environment))

    def _start_one(self, spec: RunSpec, seat: Seat) -> None:
        if is_held(spec.work_folder):
            self.outcome.elsewhere.append(spec.label)
            self.view.note(f"{spec.label}: running already")
            return
        try:
            process = _child(spec, [], self.force, self.tables, seat.environment, self.starter)
        except OSError as error:  # a full disk, say: one run's fault, not the end of all
            self.outcome.codes[spec.label] = 1
            self.view.note(f"{spec.label}: cannot be started: {error}")
            return
        seat.pid = process.pid
        self.running[spec.label] = (process, spec, seat)

    def _measure(self) -> None:
        """What each run needs. One of each unknown size is tried for a few steps, with nothing beside it."""
        ask = self.room.asks and self.total > 1
        sizes: dict[str, Needs] = {}
        unknown = []
        for one in self.todo:
            found = size(one.spec, one.cost) if ask else Needs(1, 0)
            if found is None:
                unknown.append(one.spec)
            else:
                sizes[footprint(one.spec)] = self.needs[one.spec.label] = found
        for spec in unknown:
            key = footprint(spec)
            if key not in sizes and not self.asked:
                sizes[key] = self._tried(spec)
            self.needs[spec.label] = sizes.get(key, NOTHING_KNOWN)

    def _tried(self, spec: RunSpec) -> Needs:
        self.view.note(f"{spec.label}: trying a few steps, to know how much memory it takes")
        try:
            cost = _of_probe(spec, True, lambda: self.asked, self.starter)
        except OSError:  # the run itself will say it
            cost = Cost()
        return size(spec, cost) or NOTHING_KNOWN

    def _collect(self) -> None:
        for label, (process, spec, _) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[label]
            if self.stopping and code == -signal.SIGTERM:
                code = 75  # so early that it had nothing to save
            self.outcome.codes[label] = code if code >= 0 else 1
            self.view.ended(label, code, _why(spec, code))


def _child(
    spec: RunSpec,
    extra: list[str],
    force: bool = False,
    tables: list[str] | None = None,
    more: dict[str, str] | None = None,
    starter: Starter | None = None,
) -> Process:
    """A worker, from the starter where it can make it."""
    folder = spec.work_folder
    folder.mkdir(parents=True, exist_ok=True)
    options = {"spec": spec.to_json(), "force": force, "tables": tables or []}
    file = folder / "spec.json"
    atomic.write_json(file, options)
    arguments, output, keys = [str(file), *extra], folder / "output.txt", environment(threads(spec), more)
    if starter is None or not may_fork(spec):
        return fresh(arguments, output, keys)
    return starter.start(arguments, output, keys, lambda: {"done": 0, "stopped": 75}.get(state_of(spec), 1))


def may_fork(spec: RunSpec) -> bool:
    """A GPU asks for a fresh process, and so do threads that a library starts when it is loaded."""
    return threads(spec) == 1 and device_of(spec) == "cpu"


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


def temporary_results() -> Path:
    """A results root that is thrown away with the system's temporary files: for smoke runs."""
    return Path(tempfile.mkdtemp(prefix="physml-smoke-"))
