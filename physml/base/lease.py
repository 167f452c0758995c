"""Leases: who works in a folder, on file systems whose `flock` does not reach other nodes.

A lease is a file `lease/<n>` that is created exclusively: of several takers the file system lets one win. The
largest number counts. Its holder adds a byte to it every few seconds. A process that has watched it for
some periods, by its own clock, without a new byte may create `lease/<n + 1>`. No file is removed, so none is
created twice, and no two clocks are compared.

A holder that was stopped for long learns of its loss before it writes: it too must create the next file.
"""

import contextlib
import errno
import json
import os
import platform
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physml.base import opened
from physml.base.errors import ConfigError

NAME = "lease"
MISSED = 6  # periods without a byte, after which a lease has run out
FREE = b"free\n"  # the end of a lease that was given back
NUMBER = re.compile("[1-9][0-9]*")
RIGHT: dict[str, Callable[[Any], bool]] = {  # key of a lease -> whether a value can be right
    **dict.fromkeys(("host", "boot", "space"), lambda value: isinstance(value, str) and value.isprintable()),
    **dict.fromkeys(("pid", "started"), lambda value: type(value) is int),
    "period_s": lambda value: type(value) in (int, float) and 0 < value < 3600,
}
_SEEN: dict[Path, tuple[int, float]] = {}  # lease -> its size, and since when we know it


def period_s() -> float:
    """Seconds between two bytes of a holder: $PHYSML_LEASE_S, else 10."""
    text = os.environ.get("PHYSML_LEASE_S") or "10"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise ConfigError(f"PHYSML_LEASE_S must be a number of seconds below 3600; got {text!r}.")
    return seconds


class Lost(Exception):
    """Another process has taken the lease over."""


class Lease:
    """A lease that this process holds and renews.

    Raises:
        BlockingIOError: Another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / NAME
        if self.place.is_symlink():
            raise OSError(errno.ELOOP, "its folder of leases is a link", str(self.place))
        self.place.mkdir(parents=True, exist_ok=True)
        self.period_s = period_s()
        self.number = _watched(self.place) + 1
        try:
            self._create(self.number)
        except FileExistsError as error:
            raise BlockingIOError from error
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.thread.start()

    @property
    def lost(self) -> bool:
        """True if another process is known to have taken it over; `confirm` makes sure."""
        try:
            return (self.place / str(self.number + 1)).exists()
        except OSError:  # a server that does not answer for a while
            return False

    def confirm(self) -> None:
        """Hold it for a full time from now on.

        Raises:
            Lost: Another process was quicker.
        """
        try:
            self._create(self.number + 1)
        except FileExistsError as error:
            raise Lost from error
        self.number += 1

    def give_back(self) -> None:
        self.ended.set()
        self.thread.join()
        with contextlib.suppress(OSError):  # it runs out
            _append(self.place / str(self.number), b"\n" + FREE)

    def _create(self, number: int) -> None:
        content = json.dumps(_self() | {"period_s": self.period_s})
        _create(self.place / str(number), f"{content}\n".encode())

    def _renew(self) -> None:
        while not self.ended.wait(self.period_s) and not self.lost:
            with contextlib.suppress(OSError):  # a full disk: if it stays full, the lease runs out
                _append(self.place / str(self.number), b".")


def is_held(folder: Path) -> bool:
    """True if a process holds the lease of a folder; one that has run out is given back for all to see."""
    place = folder / NAME
    number = _newest(place)
    if not number:
        return False
    state = _state(place / str(number))
    if state == "expired":
        with contextlib.suppress(OSError):  # another was quicker, or we may not write
            _create(place / str(number + 1), FREE)
    return state == "held"


def holder(folder: Path) -> str:
    """The host and process that hold or have held the lease, as far as is known."""
    process = _read(folder / NAME / str(_newest(folder / NAME))).process
    return (
        f"{process['host']} (pid {process['pid']})"
        if {"host", "pid"} <= process.keys()
        else "another process"
    )


def _watched(place: Path) -> int:
    """The number of the newest lease, which is free or has run out; 0: there is none.

    Watches a lease until its holder shows a sign of life, or for as long as it takes to run out.

    Raises:
        BlockingIOError: Its holder is alive.
    """
    first: tuple[int, int] | None = None
    while True:
        number = _newest(place)
        path = place / str(number)
        if not number or _state(path) != "held":
            return number
        content = _read(path)
        now = number, content.size
        if first not in (None, now) or (_is_ours(content.process) and _is_alive(content.process)):
            raise BlockingIOError
        first = now
        time.sleep(min(1.0, period_s() / 4))


def _state(path: Path) -> str:
    """State of a lease: "free", "held", or "expired" if we have seen it unchanged for long enough."""
    began = time.monotonic()  # before it is read: what was read is at least as new
    content = _read(path)
    process = content.process
    if content.free or (_is_ours(process) and not _is_alive(process)):
        return "free"
    size, since = _SEEN.get(path, (-1, 0.0))
    if size != content.size:
        _SEEN[path] = content.size, time.monotonic()
        return "held"
    return "expired" if began - since > MISSED * process.get("period_s", period_s()) else "held"


# ---------------------------------------------------------------------------- processes


def _self() -> dict[str, Any]:
    """This process: host, start of the machine, space of process ids, id, and its own start."""
    return {"host": platform.node(), "pid": os.getpid(), "started": started(os.getpid()), **_machine()}


def _machine() -> dict[str, str]:
    """Keys shared by all processes that see each other's ids; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return {"boot": boot, "space": str(Path("/proc/self/ns/pid").readlink())}
    except OSError:
        return {}


def _is_ours(process: dict[str, Any]) -> bool:
    """True if a process is or was on this machine, where we would see it."""
    here = _machine()
    return bool(here) and process.get("host") == platform.node() and here.items() <= process.items()


def _is_alive(process: dict[str, Any]) -> bool:
    return process.get("started") is not None and started(process.get("pid", 0)) == process["started"]


def started(pid: int) -> int | None:
    """When a process was started, in ticks; None: it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = stat.rpartition(")")[2].split()
    return None if words[0] in "ZX" else int(words[19])


# ---------------------------------------------------------------------------- files


def _newest(place: Path) -> int:
    try:
        return max((int(entry.name) for entry in place.iterdir() if NUMBER.fullmatch(entry.name)), default=0)
    except OSError:
        return 0


def _create(path: Path, content: bytes) -> None:
    """Raises FileExistsError where another process has created it."""
    _append(path, content, os.O_CREAT | os.O_EXCL)


def _append(path: Path, content: bytes, flags: int = 0) -> None:
    file = opened.descriptor(path, os.O_WRONLY | os.O_APPEND | flags)
    try:
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)


@dataclass(frozen=True)
class _Content:
    """A lease as it lies on the disk: its size, its first line, and whether it was given back."""

    size: int = 0
    process: dict[str, Any] = field(default_factory=dict)
    free: bool = False


def _read(path: Path) -> _Content:
    """Empty where the lease cannot be read, or is no regular file."""
    try:
        with opened.reading(path) as file:
            first = file.readline(opened.SMALL)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(FREE)))
            return _Content(size, _holder(first), file.read(len(FREE)) == FREE)
    except OSError:
        return _Content()


def _holder(line: bytes) -> dict[str, Any]:
    """The first line of a lease, its keys as far as they can be right; empty while it is being written."""
    try:
        process = opened.parsed(line.decode())
    except ValueError:
        return {}
    return (
        {k: v for k, v in process.items() if k in RIGHT and RIGHT[k](v)} if isinstance(process, dict) else {}
    )
