"""Processes below this one, whoever has started them: waited for, counted and ended."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker


def _stat(pid: int | str) -> list[bytes]:
    """State, parent and so on of a process; empty where it is gone."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(file, 1 << 12).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(file)


def _stats() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - so often that the objects of pathlib would count
        if name.isdigit() and (words := _stat(name)):
            yield int(name), words


def cpu_s(pid: int) -> float:
    words = _stat(pid)
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") if words else 0.0


def descendants() -> list[int]:
    """Processes below this one, the youngest last; those of the interpreter itself left out."""
    parents = {pid: int(words[1]) for pid, words in _stats() if words[0] not in (b"Z", b"X")}
    pids = [os.getpid()]
    for ancestor in pids:
        pids += sorted(
            child for child, parent in parents.items() if parent == ancestor and child != _tracker()
        )
    return pids[1:]


def _tracker() -> int | None:
    return getattr(resource_tracker._resource_tracker, "_pid", None)


def swept(seconds: float = 10.0) -> bool:
    """Wait for all processes of a round, and kill what is left; False if something was."""
    until = time.monotonic() + seconds
    while (left := descendants()) and time.monotonic() < until:
        reap()
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    reap()
    return not left


def reap() -> None:
    """Orphans that have ended; commands are waited for by their own objects."""
    ours = [b"Z", str(os.getpid()).encode()]
    for pid, words in _stats():
        if words[:2] == ours and pid != _tracker():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
