"""One process per run. The kernel frees the lock when its holder dies, by whatever signal."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from physml import files
from physml.errors import Busy, DataError
from physml.paths import display_path, work_variable
from physml.records.provenance import host

PATIENCE_S = 0.5  # `is_held` holds the lock too, for a moment


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a work folder; Busy, with the holder's name, if another process does."""
    path = folder / "lock"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(files.locked(path, PATIENCE_S))
        except BlockingIOError as error:
            holder = path.read_bytes()[:200].decode(errors="replace").strip() or "another process"
            raise Busy(
                f"{holder} works on {display_path(folder)}. Wait for it, or stop it and start again."
            ) from error
        except OSError as error:
            raise DataError(
                f"{display_path(folder)} cannot be written: {error.strerror}. "
                f"Free space, or set {work_variable()} to another folder."
            ) from error
        with contextlib.suppress(OSError):  # the name is for the message alone; a full disk must not matter
            os.ftruncate(file, 0)
            os.pwrite(file, host().encode(), 0)
        yield


def is_held(folder: Path) -> bool:
    return files.is_locked(folder / "lock")
