"""How often a run was begun in vain, so that pilots give up one that always fails.

An attempt is in vain if it ended neither with a result nor by a stop, and left no newer checkpoint: a run
that was killed a hundred times and came on each time is never given up.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from physml.base import files, opened
from physml.base.errors import Preempted
from physml.base.lock import host
from physml.records.provenance import now
from physml.run.spec import RunSpec
from physml.training import checkpoint

LIMIT = 3  # attempts in vain
NAME = "attempts.json"


@contextlib.contextmanager
def counted(folder: Path) -> Iterator[None]:
    """One attempt at the run of a work folder, whose lock we hold."""
    content = {"in_vain": in_vain(folder) + 1, "host": host(), "began": now(), "checkpoint": _newest(folder)}
    with contextlib.suppress(OSError):  # a full disk must not stop a run because of this
        files.write_json(folder / NAME, content)
    try:
        yield
    except (Preempted, KeyboardInterrupt):
        forget(folder)
        raise


def forget(folder: Path) -> bool:
    """Start counting anew; False where nothing was counted."""
    try:
        (folder / NAME).unlink()
    except FileNotFoundError:
        return False
    return True


def last_host(folder: Path) -> str | None:
    """The machine and process of the last attempt; None where there was none."""
    host = opened.read_mapping(folder / NAME).get("host")
    return host if isinstance(host, str) else None


def in_vain(folder: Path) -> int:
    """Attempts in vain so far, the one that runs now among them."""
    attempt = opened.read_mapping(folder / NAME)
    count = attempt.get("in_vain", 0)
    if not isinstance(count, int) or _newest(folder) not in (None, attempt.get("checkpoint")):
        return 0
    return count


def _newest(folder: Path) -> int | None:
    """The time of the last checkpoint, which tells it from others: clocks may be wrong."""
    with contextlib.suppress(OSError):
        return (folder / checkpoint.NAMES[0]).stat().st_mtime_ns
    return None


def given_up(spec: RunSpec) -> bool:
    return in_vain(spec.work_folder) >= LIMIT
