"""The fork server's side: imports what every run needs, once, and turns a fork into a worker.

multiprocessing's fork server imports this module before it forks; PHYSML_FORK_PRELOAD then names the classes
of the planned runs. The server computes nothing: a fork of it is a fresh process after its imports.
"""

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from physml.base import files, opened
from physml.base.paths import ROOT
from physml.training.interrupt import SIGNALS

VARIABLE = "PHYSML_FORK_PRELOAD"  # set in the fork server alone: targets, separated by spaces


def command(arguments: Sequence[str]) -> list[str]:
    """The command line of a worker with an interpreter of its own."""
    return [sys.executable, "-P", "-m", "physml.queue.worker", *arguments]


def load(targets: Iterable[str]) -> None:
    """Import what every run needs, and the classes `targets`; a run reports what cannot be imported."""
    import torch  # noqa: F401

    from physml.config import build, resolve  # noqa: F401
    from physml.ops import backend  # noqa: F401
    from physml.queue import worker  # noqa: F401
    from physml.training import checkpoint, trainer  # noqa: F401

    for target in targets:
        with suppress(Exception):
            resolve.resolve(target)


def sources() -> dict[str, str]:
    """Fingerprints of the loaded files of the checkout."""
    ours = tuple(f"{ROOT / package}{os.sep}" for package in ("physml", "tasks"))
    loaded = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    return {name: files.fingerprint(Path(name)) for name in loaded if name.startswith(ours)}


def one_thread() -> bool:
    """True if the process has one thread, so that a fork is safe; linear algebra libraries may start more."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def run(arguments: list[str], output: str, variables: dict[str, str]) -> NoReturn:
    """The fork, as the worker: session, streams, variables and signals of a fresh process.

    It becomes a fresh process if the server has threads, or sources other than those on the disk.
    """
    os.setsid()
    with opened.appending(Path(output)) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.clear()
    os.environ.update(variables)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # which are blocked in the server
    if PRELOADED is None or sources() != PRELOADED:
        os.execve(sys.executable, command(arguments), variables)
    from physml.queue import worker

    sys.path[:] = PATH
    sys.argv = [str(worker.__file__), *arguments]
    multiprocessing.set_start_method(None, force=True)  # a run's own processes: the default of the platform
    worker.as_process(arguments)


PRELOADED: dict[str, str] | None = None  # sources that the fork server has imported; None: do not use forks
PATH: list[str] = []  # its sys.path

if VARIABLE in os.environ:
    began = time.time()
    sys.path[:] = list(dict.fromkeys([str(ROOT), *sys.path]))
    PATH = list(sys.path)
    gc.disable()  # a fifth of the time of the imports, to find that all of their objects are in use
    load(os.environ[VARIABLE].split())
    PRELOADED = sources() if one_thread() else None
    if any(Path(name).stat().st_mtime >= began for name in PRELOADED or ()):
        PRELOADED = None  # edited while they were imported
    gc.collect()
    gc.freeze()  # children leave these objects alone, so that their memory stays shared
    gc.enable()
