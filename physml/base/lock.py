"""One process per run, by $PHYSML_LOCKS: `flock`, which the kernel frees when its holder dies, or `lease`."""

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from physml.base import files, lease, opened
from physml.base.errors import Busy, ConfigError
from physml.base.lease import Lease
from physml.base.paths import display_path, unwritable, work_variable

PATIENCE_S = 0.5  # `is_held` holds the lock too, for a moment


def host() -> str:
    """This process, for people: the name of its machine and its number there."""
    return f"{platform.node()} (pid {os.getpid()})"


@dataclass(frozen=True)
class Hold:
    """A work folder that this process works in. lease: None: a flock, which nobody can take over."""

    folder: Path
    lease: Lease | None = None

    def refuse_if_lost(self) -> None:
        """Busy where another process is known to have taken the folder over; costs one look."""
        if self.lease and self.lease.lost:
            raise self._lost()

    def confirm(self) -> None:
        """Before a result is written: Busy unless the folder is ours for the time that this takes."""
        try:
            if self.lease:
                self.lease.confirm()
        except lease.Lost as error:
            raise self._lost() from error

    def _lost(self) -> Busy:
        return Busy(
            f"{lease.holder(self.folder)} has taken {display_path(self.folder)} over, "
            "as this process was silent for too long."
        )


def by_lease() -> bool:
    """ConfigError for an unknown kind of lock."""
    kind = os.environ.get("PHYSML_LOCKS") or "flock"
    if kind not in ("flock", "lease"):
        raise ConfigError(f"PHYSML_LOCKS must be flock or lease; got {kind!r}.")
    return kind == "lease"


@contextlib.contextmanager
def held(folder: Path, wait_s: float = 0.0) -> Iterator[Hold]:
    """Hold the lock of a work folder; Busy, with the holder's name, if another does, after `wait_s`."""
    hold, end = _leased if by_lease() else _flocked, time.monotonic() + wait_s
    with contextlib.ExitStack() as stack:
        try:
            while True:
                try:
                    lock = stack.enter_context(hold(folder))
                    break
                except Busy:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.1)
        except OSError as error:
            raise unwritable(folder, error, work_variable()) from error
        yield lock


@contextlib.contextmanager
def _flocked(folder: Path) -> Iterator[Hold]:
    path = folder / "lock"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(files.locked(path, PATIENCE_S))
        except BlockingIOError as error:
            with opened.reading(path) as content:
                holder = content.read(200).decode(errors="replace").strip() or "another process"
            raise _busy(holder, folder) from error
        if lease.is_held(folder):
            raise _busy(lease.holder(folder), folder)
        with contextlib.suppress(OSError):  # the name is for the message alone; a full disk must not matter
            os.ftruncate(file, 0)
            os.pwrite(file, host().encode(), 0)
        yield Hold(folder)


@contextlib.contextmanager
def _leased(folder: Path) -> Iterator[Hold]:
    try:
        acquired = Lease(folder)
    except BlockingIOError as error:
        raise _busy(lease.holder(folder), folder) from error
    try:
        yield Hold(folder, acquired)
    finally:
        acquired.give_back()


def _busy(holder: str, folder: Path) -> Busy:
    return Busy(f"{holder} works on {display_path(folder)}. Wait for it, or stop it and start again.")


def is_held(folder: Path) -> bool:
    """True if a process works in a folder; leases count under both kinds of lock."""
    return lease.is_held(folder) or (not by_lease() and files.is_locked(folder / "lock"))
