"""One process per run. The kernel frees the lock when its holder dies, by whatever signal."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from physml.errors import Busy
from physml.paths import shown
from physml.provenance import host


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a work folder; Busy, with the holder's name, if another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise Busy(f"{holder} works on {shown(folder)}. Wait for it, or stop it and start again.") from None
        with contextlib.suppress(OSError):  # the name is for the message alone; a full disk must not matter
            file.truncate(0)
            file.write(host())
            file.flush()
        yield


def is_held(folder: Path) -> bool:
    if not (folder / "lock").exists():
        return False
    with (folder / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
