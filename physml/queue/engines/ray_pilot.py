"""One pilot, as the child of a Ray worker: the code that Ray runs on a node.

Ray sends this module by value, so its own Python on a node needs nothing of physml. The pilot is a process of
its own: signals and prints of Ray do not mix with it.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STOP = "stop"  # a file in the folder of a submission: its pilots are to end
LOOK_S = 0.5

# The pilot is stopped when its parent dies, by any signal. Ray's workers block SIGINT in their children.
_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(75)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Order:
    """An order to start a pilot."""

    command: Sequence[str]  # the pilot
    environment: dict[str, str]  # variables beside those of the Ray worker, which has its GPUs
    cwd: str  # its working folder
    folder: str  # shared, of the submission: logs, and the file that stops it
    number: int  # number of this pilot

    @property
    def stopped(self) -> bool:
        return (Path(self.folder) / STOP).exists()


class Again(Exception):
    """The pilot was stopped or killed, and nobody has ended the submission: Ray starts it again."""


def run(order: Order) -> int:
    """A pilot from start to end; its exit code.

    Raises:
        Again: It was stopped or killed.
    """
    if order.stopped:
        return 75
    command = [order.command[0], "-c", _WITH_PARENT, str(os.getpid()), *order.command]
    with (Path(order.folder) / f"pilot-{order.number}.log").open("ab") as log:
        pilot = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **order.environment},
            cwd=order.cwd,
            start_new_session=True,
        )
    try:
        while (code := pilot.poll()) is None and not order.stopped:
            time.sleep(LOOK_S)
    finally:  # also where Ray cancels the task
        with contextlib.suppress(ProcessLookupError):
            pilot.terminate()
        pilot.wait()
    if code is None or order.stopped:
        return 75
    if code == 75 or code < 0:
        raise Again(f"pilot {order.number} ended with {code}")
    return code


class DetachedPilot:
    """A Ray actor that outlives the command: it starts its pilot where it is made, and made again."""

    def __init__(self, order: Order) -> None:
        import ray

        self.me = ray.get_runtime_context().current_actor
        threading.Thread(target=self._work, args=(order,), daemon=True).start()

    def _work(self, order: Order) -> None:
        import ray

        try:
            run(order)
        except Again:
            os._exit(75)  # Ray makes the actor again, perhaps elsewhere
        ray.kill(self.me, no_restart=True)
