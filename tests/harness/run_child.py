"""What the fork server of `run_harness` imports before it forks, and what its children do.

One step of an optimizer makes torch import the rest of itself, once for all children.
"""

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
from pathlib import Path
from typing import IO, Any

import matplotlib.backends.backend_agg
import matplotlib.figure
import torch
import wandb
from torch import nn

from physml import files
from physml.cli import main
from physml.execution import nursery, worker
from physml.models import gated, rnn
from physml.training import trainer

PRELOADED = (main, trainer, worker, gated, rnn, wandb, matplotlib)

parameter = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([parameter])
parameter.sum().backward()
optimizer.step()


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


def enter_nursery(arguments: list[str], options: dict[str, Any]) -> None:
    """With nothing open but its own socket, so that it sees the end of the launcher."""
    os.setsid()
    for file in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if file > 2 and file not in options["pass_fds"]:
            with suppress(OSError):
                os.close(file)
    os.environ.clear()
    os.environ.update(options["env"])
    try:
        nursery.main(arguments)
    finally:
        traceback.print_exc()
        os._exit(70)


class Forked:
    """A worker or a nursery as a fork of the launcher, with what that uses of subprocess.Popen."""

    def __init__(self, command: list[str], **options: Any) -> None:
        if command[1:4] not in (
            ["-P", "-m", "physml.execution.worker"],
            ["-P", "-m", "physml.execution.nursery"],
        ):
            raise OSError("not a worker")  # git, which tells the commit: it may be missing
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            if command[3] == "physml.execution.nursery":
                enter_nursery(command[4:], options)
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
    """`physml ARGUMENTS`, whose workers are forks."""
    subprocess.Popen = Forked  # type: ignore[assignment,misc]
    return main.main(arguments)


def write_slowly(arguments: list[str]) -> int:
    """Write half of a file, say so, and wait to be killed."""

    def fill(file: IO[bytes]) -> None:
        file.write(b"half")
        file.flush()
        Path(arguments[1]).touch()
        time.sleep(600)

    files.write(Path(arguments[0]), fill)
    return 0
