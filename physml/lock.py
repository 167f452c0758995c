"""One process per run. The kernel frees the lock when its holder dies, by whatever signal."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from physml.errors import Busy, DataError
from physml.paths import display_path, work_variable
from physml.records.provenance import host

PATIENCE_S = 0.5  # `is_held` holds the lock too, for a moment


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a work folder; Busy, with the holder's name, if another process does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DataError(
            f"{display_path(folder)} cannot be written: {error.strerror}. "
            f"Free space, or set {work_variable()} to another folder."
        ) from error
    try:
        if not _taken(file):
            holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
            raise Busy(f"{holder} works on {display_path(folder)}. Wait for it, or stop it and start again.")
        with contextlib.suppress(OSError):  # the name is for the message alone; a full disk must not matter
            os.ftruncate(file, 0)
            os.pwrite(file, host().encode(), 0)
        yield
    finally:
        os.close(file)


def _taken(file: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)


def is_held(folder: Path) -> bool:
    try:
        file = os.open(folder / "lock", os.O_RDONLY)
    except OSError:  # nothing there; what else may be wrong is told by whoever wants to hold it
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
