"""Runs for tests: tiny specs, in this process or as processes of their own.

A fork server that has imported torch makes the processes, so that each takes milliseconds to start and is
still real: it has a process id, its own signals and locks, and can be killed.
"""

import csv
import gzip
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import run_child

from physml.base import lock
from physml.base.paths import ROOT
from physml.cli import main
from physml.config.compose import compose, names
from physml.config.overrides import expand
from physml.config.resolve import resolve
from physml.queue import planning, worker
from physml.run.perform import perform
from physml.run.progress import LineReporter
from physml.run.spec import RunSpec, checked_specs
from physml.training import checkpoint
from physml.training.interrupt import Interrupt
from physml.training.trainer import Trainer

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures_tasks.py"
ODD = HERE / "odd_tasks.py"
SMALL = (
    *("model=lstm", "model.d_hidden=5", "tracker=none", "profile=smoke", "seed=0"),
    *("trainer.epochs=3", "trainer.max_steps=null", "trainer.batch_size=4"),
)


@cache
def server() -> Any:
    """The fork server, which has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([run_child.__name__, "run_preload"])
    with pytest.MonkeyPatch.context() as patch:  # not all Pythons hand sys.path on to what is preloaded
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
        forkserver.ensure_running()
    return context


def odd(*overrides: str, **arguments: Any) -> list[str]:
    """Overrides for task Odd, with what differs from a quick and healthy one."""
    task = {"n": 16, "protocol": "clean", "trouble": "none", "at": 0, "step_s": 0.0, "eval_s": 0.0}
    chosen = [f"+task.{key}={value}" for key, value in (task | arguments).items()]
    return [*SMALL, f"plugins=[{ODD}]", "task._target_=odd_tasks.Odd", *chosen, *overrides]


def spec_of(overrides: list[str]) -> RunSpec:
    return checked_specs([compose(overrides)], run=True)[0]


def make(spec: RunSpec, **options: Any) -> dict[str, Any]:
    return perform(spec, LineReporter(), **options)


def curve(spec: RunSpec) -> list[dict[str, str]]:
    """Rows of the curve file, as written, without the times."""
    record = json.loads(spec.record_path.read_text())
    with gzip.open(spec.record_path.parent / record["curve"], "rt") as file:
        return times_off(csv.DictReader(file))


def trainer(
    spec: RunSpec, task: Any, stop: Interrupt | None = None, save: Any = lambda _: None, rows: Any = None
) -> Trainer:
    """Of the run, in this process; what it says of each row is added to `rows`."""
    on_row = ([] if rows is None else rows).append
    options = {"report": LineReporter(), "save": save, "stop": stop or Interrupt(), "on_row": on_row}
    return Trainer(spec.config, spec.parts, task, "cpu", **options)


def odd_trainer(spec: RunSpec, *options: Any, **more: Any) -> Trainer:
    """The same on the task Odd, with its data."""
    task = task_class("Odd")(**{k: v for k, v in spec.config["task"].items() if k != "_target_"})
    task.load(None, 0)
    return trainer(spec, task, *options, **more)


def times_off(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def texas(*overrides: str) -> list[str]:
    """Overrides for a small network on one graph."""
    small = ("model=graphcon_gcn", "task=texas", "tracker=none", "profile=smoke", "seed=0", "net.hidden=8")
    return [*small, "trainer.max_steps=null", "optim.lr=0.05", *overrides]


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """What must be bit-equal between two makings of a run."""
    return {k: record[k] for k in ("status", "metrics", "selected", "n_steps", "n_epochs", "n_parameters")}


class Started:
    """A process, with the methods of subprocess.Popen that the launcher uses."""

    def __init__(self, function: Callable[..., int], arguments: list[str], output: Path) -> None:
        output.parent.mkdir(parents=True, exist_ok=True)
        self.arguments, self.output = arguments, output
        roots = {k: v for k, v in os.environ.items() if k.startswith(("PHYSML_", "WANDB_", "NETRC"))}
        enter = (function, arguments, roots, str(output))
        self.process = server().Process(target=run_child.enter, args=enter)
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float = 120.0) -> int:
        self.process.join(timeout)
        assert self.process.exitcode is not None, self.text()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()

    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def start(spec: RunSpec, *, force: bool = False) -> Started:
    """The run as the launcher's worker process."""
    file = spec.work_folder / "spec.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"spec": spec.to_json(), "force": force, "tables": []}))
    return Started(worker.main, [str(file)], spec.work_folder / "output.txt")


def start_holding(spec: RunSpec) -> Started:
    """The run as a worker process that has its lock already."""
    process = start(spec)
    until(lambda: is_held(spec))
    return process


def start_command(arguments: list[str], output: Path) -> Started:
    return Started(main.main, arguments, output)


def start_many(
    overrides: list[str], output: Path, *flags: str, command: Callable[[list[str]], int] = run_child.command
) -> Started:
    """`physml run -m` with quick workers, as a process."""
    return Started(command, ["run", "-m", *overrides, *flags], output)


def specs_of(overrides: list[str]) -> list[RunSpec]:
    return checked_specs([compose(combination) for combination in expand(overrides, names)], run=True)


def until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def task_class(name: str) -> Any:
    """A class of the plugin as runs in this process see it."""
    return resolve(f"odd_tasks.{name}", [str(ODD)])


def holder(spec: RunSpec) -> int:
    return int((spec.work_folder / "lock").read_text().partition("(pid ")[2].rstrip(")"))


def is_held(spec: RunSpec) -> bool:
    return lock.is_held(spec.work_folder)


def begun(spec: RunSpec) -> bool:
    return (spec.work_folder / "metrics.jsonl").exists()


def states(specs: list[RunSpec], **options: Any) -> list[str]:
    return [run.state for run in planning.plan(specs, **options)]


def steps_done(spec: RunSpec) -> int:
    state = checkpoint.load(spec.work_folder, spec.place.identity)
    return state["trainer"]["step"] if state else 0


def bound(selector):
    """A selector that knows a metric to be lowered and one to be raised."""
    selector.bind("mse", {"mse": "lower", "accuracy": "higher"})
    return selector


def scripted(monkeypatch, values):
    """Validation gives these values, epoch by epoch; test gives ten times the same."""
    metrics = Trainer.metrics

    def given(self, part, epoch):
        metrics(self, part, epoch)
        return {"mse": values[epoch - 1] * (10.0 if part == "test" else 1.0)}

    monkeypatch.setattr(Trainer, "metrics", given)
