"""One worker process per run: a fork of a process that has imported torch, or a fresh Python.

A fork has its own process id, session, log and exit code, and the environment of a fresh process; it differs
only in the seconds that its imports do not take. `PHYSML_FORK=0` starts fresh processes only.
"""

import contextlib
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterable
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Union

from physml.base import files, lease, opened
from physml.base.errors import DataError
from physml.base.paths import ROOT
from physml.ops import waiting
from physml.queue import preload
from physml.run.resources import pick_device
from physml.run.spec import RunSpec
from physml.run.state import state_of
from physml.training.interrupt import SIGNALS

TARGETS = ("physml.", "tasks.", "torch_geometric.nn.")  # worth an import before the fork
SERVER_DIED = 255  # the exit code that multiprocessing reports of children of a dead fork server
Process = Union["subprocess.Popen[bytes]", "Forked"]


def start_worker(
    spec: RunSpec,
    extra: list[str],
    force: bool = False,
    tables: list[str] | None = None,
    more: dict[str, str] | None = None,
    server: "ForkServer | None" = None,
) -> Process:
    """A worker process for one run, with further arguments and environment variables.

    tables: ids of those that the run is for. server: forks the worker, if the run may be a fork.
    """
    spec.work_folder.mkdir(parents=True, exist_ok=True)
    text = files.json_text({"spec": spec.to_json(), "force": force, "tables": tables or []})
    files.write_text(spec.file, text)
    # A config names code to run, and others may write in the folder: the worker takes no other file.
    arguments = [str(spec.file), "--sha256", hashlib.sha256(text.encode()).hexdigest(), *extra]
    output, variables = spec.output_file, environment(threads(spec), more)
    fork = server.start(arguments, output, variables) if server and may_fork(spec) else None
    return Forked(fork, spec) if fork else start_fresh(arguments, output, variables)


def start_fresh(arguments: list[str], output: Path, variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A Python of its own, in its own session, so that Ctrl-C reaches it once, through the scheduler."""
    with opened.appending(output) as file:
        return subprocess.Popen(
            preload.command(arguments),
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
        )


def output_lines(spec: RunSpec) -> list[str]:
    """The last lines of `log_file`."""
    try:
        with opened.reading(spec.log_file) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - opened.LARGE))
            return file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return []


def environment(n_threads: int, more: dict[str, str] | None = None) -> dict[str, str]:
    """Variables of a worker: ours, with the number of threads, which libraries read when they are loaded."""
    n = str(n_threads)
    waits = waiting.variables() if n_threads > 1 else {}
    variables = {**os.environ, **waits, "OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, **(more or {})}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return variables


def threads(spec: RunSpec) -> int:
    return int(spec.config["runtime"]["threads"])


def device_of(spec: RunSpec) -> str:
    try:
        return pick_device(spec.config["runtime"]["device"])
    except DataError:  # the run itself will report it
        return "cpu"


def can_fork() -> bool:
    return sys.platform == "linux" and os.environ.get("PHYSML_FORK", "1") != "0"


def may_fork(spec: RunSpec) -> bool:
    """A GPU needs a fresh process, and so do threads that a library starts when it is loaded."""
    return threads(spec) == 1 and device_of(spec) == "cpu"


def targets_of(config: Any) -> set[str]:
    """Our classes, and layers of PyG, that a config names."""
    if isinstance(config, dict):
        target = config.get("_target_")
        own = {target} if isinstance(target, str) and target.startswith(TARGETS) else set()
        return own.union(*map(targets_of, config.values()))
    return set().union(*map(targets_of, config)) if isinstance(config, list | tuple) else set()


class ForkServer:
    """Starts workers as forks of multiprocessing's fork server, which imports torch and the models once.

    The server lives as long as this process or one of the runs. A run whose preloaded sources were edited
    meanwhile replaces itself by a fresh process (`preload.run`).
    """

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self.targets = sorted({target for spec in specs for target in targets_of(spec.config)})
        self.context = multiprocessing.get_context("forkserver")

    def start(
        self, arguments: list[str], output: Path, variables: dict[str, str]
    ) -> ForkServerProcess | None:
        """A worker as a fork, once the server is ready; None where no server can be started."""
        process = self.context.Process(target=preload.run, args=(arguments, str(output), variables))
        main = sys.modules["__main__"]
        try:
            self._ensure_running(variables)
            # A fork must not import the script that is running, which may do its work at import.
            sys.modules["__main__"] = types.ModuleType("__main__")
            process.start()
        except (OSError, EOFError):  # no memory, or the server died of an import
            return None
        finally:
            sys.modules["__main__"] = main
        return process

    def _ensure_running(self, variables: dict[str, str]) -> None:
        """Start the server unless it runs, with the variables of a run and signals blocked.

        Signals to our process group then leave it alone; a run takes them once it has its own session.
        """
        self.context.set_forkserver_preload([preload.__name__])
        resource_tracker.ensure_running()  # it would unblock the signals
        ours = dict(os.environ)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            os.environ.update({**variables, "PYTHONSAFEPATH": "1", preload.VARIABLE: " ".join(self.targets)})
            forkserver.ensure_running()
        finally:
            os.environ.clear()
            os.environ.update(ours)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Forked:
    """A forked run, with the methods of `subprocess.Popen` that the scheduler uses."""

    def __init__(self, process: ForkServerProcess, spec: RunSpec) -> None:
        self.process, self.spec = process, spec
        self.pid = process.pid or 0
        self.code: int | None = None

    @property
    def server_died(self) -> bool:
        return self.process.exitcode == SERVER_DIED

    def poll(self) -> int | None:
        if self.code is None and not self.server_died:
            self.code = self.process.exitcode
        elif self.code is None and lease.started(self.pid) is None:
            forced = (self.spec.work_folder / "forced").exists()  # the record is that of an earlier run
            self.code = {"done": 0, "stopped": 75}.get("stopped" if forced else state_of(self.spec), 1)
        return self.code

    def wait(self) -> int:
        self.process.join()
        while (code := self.poll()) is None:
            time.sleep(0.05)
        return code

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def pause(processes: Iterable[Process], seconds: float) -> None:
    """Wait for so long, or until a fork has ended."""
    forks = [process for process in processes if isinstance(process, Forked) and not process.server_died]
    connection.wait([fork.process.sentinel for fork in forks], seconds)
