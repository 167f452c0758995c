"""Starts workers: forks of a nursery where that is possible, else a Python of their own for each.

A fork has its own process id, session, log and exit code, and the environment of a fresh process; it is told
from one by nothing but the seconds of its imports. `PHYSML_FORK=0` does without.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from physml.execution.run_spec import RunSpec
from physml.paths import ROOT

OWN = ("physml.", "tasks.", "torch_geometric.nn.")


class Process(Protocol):
    """What the launcher uses of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


def fresh(arguments: Sequence[str], output: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """A worker in a process group of its own, so that Ctrl-C reaches it once, through us."""
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "physml.execution.worker", *arguments],
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


def environment(n_threads: int, more: dict[str, str] | None = None) -> dict[str, str]:
    """Of a worker: ours, with the number of threads before any library can start some."""
    n = str(n_threads)
    found = {**os.environ, "OMP_NUM_THREADS": n, "MKL_NUM_THREADS": n, **(more or {})}
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return found


def can_fork() -> bool:
    return sys.platform == "linux" and os.environ.get("PHYSML_FORK", "1") != "0"


class Starter:
    """Nurseries, one for each environment; usually one. Close it when all its processes have ended."""

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self.targets = sorted({t for spec in specs for t in targets_of(spec.config)})
        self.nurseries: dict[str, Nursery] = {}
        self.left: list[Nursery] = []  # out of date, but some of their runs go on

    def prepare(self, environment: dict[str, str]) -> bool:
        """Begin what `start` will need; whether it is there."""
        return not self._nursery(environment).warming

    def start(
        self,
        arguments: Sequence[str],
        output: Path,
        environment: dict[str, str],
        lost: Callable[[], int],
    ) -> Process:
        """A worker as a fork, after waiting for the nursery; as a fresh process if that can't be.

        lost: what exit code to assume of a run whose nursery has died.
        """
        for _ in range(2):  # the first may be out of date
            nursery = self._nursery(environment)
            if forked := nursery.fork(arguments, output, lost):
                return forked
            if nursery.refuses:
                break
            self.left.append(self.nurseries.pop(self._key(environment)))
        return fresh(arguments, output, environment)

    def pause(self, seconds: float) -> None:
        """Wait for so long, or until a fork has ended."""
        live = [n for n in [*self.nurseries.values(), *self.left] if not n.gone]
        if not live:
            time.sleep(seconds)
            return
        select.select([n.channel for n in live], [], [], seconds)
        for nursery in live:
            nursery.hear()  # that it has died too: else the next pause would be none

    def close(self) -> None:
        for nursery in [*self.nurseries.values(), *self.left]:
            nursery.close()
        self.nurseries, self.left = {}, []

    def _nursery(self, environment: dict[str, str]) -> "Nursery":
        key = self._key(environment)
        if key not in self.nurseries:
            self.nurseries[key] = Nursery(self.targets, environment)
        return self.nurseries[key]

    @staticmethod
    def _key(environment: dict[str, str]) -> str:
        return json.dumps([str(Path.cwd()), environment], sort_keys=True)


class Nursery:
    """Our end of `physml.execution.nursery`."""

    def __init__(self, targets: Sequence[str], environment: dict[str, str]) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "physml.execution.nursery", str(theirs.fileno()), *targets],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
        self.ready: bool | None = None
        self.stale = self.gone = False
        self.begun: int | None = None  # the process that was asked for last
        self.codes: dict[int, int] = {}

    @property
    def warming(self) -> bool:
        self.hear()
        return self.ready is None and not self.gone

    @property
    def refuses(self) -> bool:
        """It lives, or never came to life, and forks nothing: another one would not either."""
        return not self.ready

    def fork(self, arguments: Sequence[str], output: Path, lost: Callable[[], int]) -> "Forked | None":
        while self.warming:
            self.hear(wait=True)
        if not self.ready or self.gone:
            return None
        self.begun = None
        with output.open("ab") as file:
            message = json.dumps({"run": list(arguments)}).encode()
            try:
                socket.send_fds(self.channel, [message], [file.fileno()])
            except OSError:  # it has died
                return None
        while self.begun is None and not self.stale and not self.gone:
            self.hear(wait=True)
        return Forked(self, self.begun, lost) if self.begun else None

    def hear(self, wait: bool = False) -> None:
        """Take in what it says, all that is there; with `wait`, at least one message."""
        while not self.gone:
            try:
                text = self.channel.recv(1 << 16, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                text = b""
            self._take(json.loads(text) if text else {"gone": True})
            wait = False

    def _take(self, told: dict[str, Any]) -> None:
        if "ended" in told:
            self.codes[told["ended"]] = told["code"]
        elif "pid" in told:
            self.begun = told["pid"]
        else:
            self.ready = told.get("ready", self.ready)
            self.stale, self.gone = told.get("stale", self.stale), told.get("gone", self.gone)

    def close(self) -> None:
        self.channel.close()
        self.gone = True
        self.process.wait()


class Forked:
    """A run that a nursery has forked."""

    def __init__(self, nursery: Nursery, pid: int, lost: Callable[[], int]) -> None:
        self.nursery, self.pid, self.lost = nursery, pid, lost
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            self.nursery.hear()
            self.code = self.nursery.codes.pop(self.pid, None)
        if self.code is None and self.nursery.gone and not lives(self.pid):
            self.code = self.lost()
        return self.code

    def wait(self) -> int:
        while (code := self.poll()) is None:
            if self.nursery.gone:
                time.sleep(0.05)
            else:
                select.select([self.nursery.channel], [], [])
        return code

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def lives(pid: int) -> bool:
    """A process that has ended may still have its number, until someone asks for its exit code."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def targets_of(config: Any) -> set[str]:
    """Classes of ours, and layers of PyG, that a config names."""
    if isinstance(config, dict):
        target = config.get("_target_")
        own = {target} if isinstance(target, str) and target.startswith(OWN) else set()
        return own.union(*map(targets_of, config.values()))
    return set().union(*map(targets_of, config)) if isinstance(config, list | tuple) else set()
