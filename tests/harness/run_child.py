"""What the fork server of `run_harness` imports before it forks, and what its children do."""

import atexit
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker, util
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from physml.base import files, paths
from physml.cli import main
from physml.models.sequence import gated, rnn
from physml.queue import preload, scheduler, worker
from physml.training import trainer

PRELOADED = (main, trainer, worker, gated, rnn)


def enter(function: Callable[..., int], arguments: list[str], roots: dict[str, str], output: str) -> None:
    """Call `function` as a process of its own: session, streams, environment, exit code."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.setsid()
    os.environ.update(roots)
    warnings.simplefilter("error")
    try:
        sys.exit(function(arguments))
    finally:
        atexit._run_exitfuncs()  # children of a fork server leave them out


def fork_server(_path: str, arguments: list[str], keep: list[int]) -> int:
    """The launcher's fork server as a fork of the launcher, in place of multiprocessing.util.spawnv_passfds.

    Nothing is open but its own pipes, so that it sees the end of the launcher.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        for file in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if file > 2 and file not in keep:
                with suppress(OSError):
                    os.close(file)
        del sys.modules[preload.__name__]
        exec(arguments[-1])
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


POPEN = subprocess.Popen


class Forked:
    """A worker as a fork of the launcher, with the methods of subprocess.Popen that the launcher uses."""

    def __new__(cls, command: list[str], **options: Any) -> Any:
        if command[1:4] == ["-P", "-m", "physml.queue.worker"]:
            return super().__new__(cls)
        if command[0] == "git":
            raise OSError("no git")  # which tells the commit: it may be missing
        return POPEN(command, **options)  # a compiler

    def __init__(self, command: list[str], **options: Any) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            try:
                enter(worker.main, command[4:], {}, str(Path(command[4]).parent / "output.txt"))
            except SystemExit as end:
                os._exit(int(end.code or 0))
            finally:
                os._exit(1)

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        assert self.code is not None
        return self.code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def command(arguments: list[str]) -> int:
    """`physml ARGUMENTS`, whose workers and fork server are forks."""
    subprocess.Popen = Forked  # type: ignore[assignment,misc]
    resource_tracker.ensure_running()
    util.spawnv_passfds = fork_server  # type: ignore[attr-defined]
    return main.main(arguments)


def elsewhere(arguments: list[str]) -> int:
    """`command` in another folder, the first argument, and on a wide terminal."""
    os.chdir(arguments[0])
    os.environ["COLUMNS"] = "220"
    return command(arguments[1:])


def out_of_time(arguments: list[str]) -> int:
    """`command`, for which hours have passed as soon as one of its runs has begun."""

    def begun() -> set[Path]:
        return set(paths.work_root().rglob("metrics.jsonl"))

    def monotonic() -> float:
        return time.monotonic() + (24 * 3600 if begun() > before else 0)

    before = begun()
    scheduler.time = SimpleNamespace(monotonic=monotonic)  # type: ignore[assignment]
    return command(arguments)


def write_slowly(arguments: list[str]) -> int:
    """Write half of a file, say so, and wait to be killed. With "named" without O_TMPFILE."""
    path, begun, *named = arguments
    if named:
        del os.O_TMPFILE

    def fill(file: IO[bytes]) -> None:
        file.write(b"half")
        file.flush()
        Path(begun).touch()
        time.sleep(600)

    files.write(Path(path), fill)
    return 0
