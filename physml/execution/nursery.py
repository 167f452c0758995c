"""A process that has imported all that runs need, and forks one for each: `python -m physml.execution.nursery FD ...`.

Importing torch and taking it apart again takes a process longer than a small graph takes to be trained. So
the launcher (`physml.execution.starter`) keeps one of these, which never computes anything: a fork of it is what a
fresh process is after its imports.

Messages over the socket FD, one JSON object each. From the launcher: {"run": [arguments of physml.execution.worker]}
and with it the open file for its output. To the launcher: {"ready": bool} once, {"pid": n} or {"stale": true}
for every run, {"ended": pid, "code": n} for each that has. When the launcher is gone the nursery goes too;
its runs go on.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from physml.config.resolve import OWN
from physml.paths import ROOT

MESSAGE = 1 << 16  # bytes at most
OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # of the launcher and the runs; nothing to the nursery


@dataclass(frozen=True)
class Order:
    """Arguments of a worker, and the open file for its output."""

    arguments: list[str]
    output: int


def main(arguments: list[str]) -> NoReturn:
    """Serve until the launcher is gone. A forked child comes out of it too, and is a worker."""
    began = time.time_ns()
    channel = socket.socket(fileno=int(arguments[0]))
    channel.set_inheritable(False)
    for number in OURS:
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # a fifth of the time of the imports, to find that all of their objects are in use
    load(arguments[1:])
    order = Nursery(channel, began).serve()
    if order is None:
        os._exit(0)
    from physml.execution import worker

    worker.as_process(order.arguments)


def load(targets: Iterable[str]) -> None:
    """Import what every run needs, and the classes `targets`; what cannot be imported the run will say."""
    import torch

    from physml.config import build, resolve  # noqa: F401
    from physml.execution import cost_probe, worker  # noqa: F401
    from physml.ops import backend  # noqa: F401
    from physml.training import checkpoint, trainer  # noqa: F401

    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)  # no backward: threads of autograd, where there are any, survive no fork
    torch.optim.Adam([parameter]).step()  # makes torch import the rest of itself
    for target in targets:
        with suppress(Exception):
            resolve.resolve(target)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else every child would write what is in their buffers


class Nursery:
    """The loop: fork when asked to, tell who has ended. began: when its imports did, in ns since 1970."""

    def __init__(self, channel: socket.socket, began: int) -> None:
        self.channel = channel
        self.alive: set[int] = set()
        self.sources = sources()
        self.whole = (
            max(self.sources.values(), default=0) < began
        )  # nothing was changed while it was imported
        self.wake = os.pipe()
        for end in self.wake:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake[1], warn_on_full_buffer=False)

    def serve(self) -> Order | None:
        """In the nursery: None, when the launcher is gone. In a child: what to run."""
        gc.collect()
        gc.freeze()  # children leave these objects alone, so that their memory stays shared
        gc.enable()
        child: Order | None = None
        with suppress(OSError):  # the launcher is gone
            self._tell(ready=one_thread())
            while order := self._asked():
                if self._forked():
                    child = order
                    break
                os.close(order.output)
        if child:
            self._become(child)
        return child

    def _asked(self) -> Order | None:
        """What is to be run next, after waiting for it; None if nothing ever will be."""
        while True:
            there, _, _ = select.select([self.channel.fileno(), self.wake[0]], [], [])
            self._reap()
            if self.channel.fileno() in there:
                text, files, _, _ = socket.recv_fds(self.channel, MESSAGE, 1)
                return Order(json.loads(text)["run"], files[0]) if text else None

    def _forked(self) -> bool:
        """Fork; whether this is the child."""
        if not self.whole or self.sources != sources():
            self._tell(stale=True)
            return False
        signal.pthread_sigmask(signal.SIG_BLOCK, OURS)  # a child gets what is sent to it before it is ready
        try:
            pid = os.fork()
        except OSError:  # no memory, say: the launcher tries another way
            pid = -1
        if pid == 0:
            return True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OURS)
        if pid > 0:
            self.alive.add(pid)
            self._tell(pid=pid)
        else:
            self._tell(stale=True)
        return False

    def _become(self, order: Order) -> None:
        """What a fresh process has: session, signals, streams; nothing of the nursery."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        self.channel.close()
        for stream in (1, 2):
            os.dup2(order.output, stream)
        for file in (order.output, *self.wake):
            os.close(file)
        sys.argv = [sys.argv[0], *order.arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OURS)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.wake[0], MESSAGE)
        for pid in list(self.alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.alive.remove(pid)
                self._tell(ended=pid, code=os.waitstatus_to_exitcode(status))

    def _tell(self, **what: Any) -> None:
        self.channel.send(json.dumps(what).encode())


def one_thread() -> bool:
    """Whether a fork is safe: threads, such as those of a library of products, are not there after it."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def sources() -> dict[str, int]:
    """When the loaded files of the checkout were last changed: a later run is of the later code."""
    ours = tuple(f"{ROOT / package}{os.sep}" for package in OWN)
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    paths = [Path(file) for file in files if file.startswith(ours)]
    return {str(path): path.stat().st_mtime_ns if path.exists() else 0 for path in paths}


if __name__ == "__main__":
    main(sys.argv[1:])
