"""Check that pilots can share a folder: locks and renames, tried by two processes.

The two meet in the folder itself, so they may be on two nodes. One holds a lock and is killed; the other says
whether it saw the lock, whether it was freed, and whether it ever read half a file.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.errors import DataError
from physml.base.lock import host

NAME = ".physml-shared"  # in the folder, while it is tried
WRITES = 200  # of a file that the other process reads meanwhile
RACES = 50  # files that both processes try to create
UNSEEN = "not seen by the other process: set PHYSML_LOCKS=lease for all pilots"
PERIOD_S = 0.05

_HOLDER = """
import sys, time
from pathlib import Path
from physml.base import files
with files.locked(Path(sys.argv[1]), 0.0):
    files.write_json(Path(sys.argv[2]), {})
    time.sleep(3600)
"""


@dataclass(frozen=True)
class Finding:
    """One property of the folder. ok: pilots may rely on it."""

    name: str
    ok: bool
    text: str


def check(folder: Path, nodes: int, wait_s: float) -> list[Finding]:
    """Try a folder with a second process: one that is started here, or, with two nodes, one started there.

    Raises:
        DataError: The folder is not there or cannot be written, or nobody came within `wait_s` seconds.
    """
    place = folder / NAME
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder. Name one that is there, on the disk that pilots share.")
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}. Name a folder of yours.") from error
    other = None
    if nodes == 1:
        code = (
            "import sys; from pathlib import Path; from physml.queue import shared_folder as s; "
            "s.check(Path(sys.argv[1]), 2, float(sys.argv[2]))"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(wait_s)], stderr=subprocess.DEVNULL
        )
    try:
        return _Meeting(place, wait_s).findings()
    except DataError as error:
        if other is None:
            raise
        raise DataError(f"the trial took longer than {wait_s:g} s. Give it more with --wait.") from error
    finally:
        if other:
            other.kill()
            other.wait()
            shutil.rmtree(place, ignore_errors=True)


class _Meeting:
    """One of the two processes. Messages are files, written under another name and renamed."""

    def __init__(self, place: Path, wait_s: float) -> None:
        self.place, self.until = place, time.monotonic() + wait_s
        self.me = f"{time.time_ns()}-{os.getpid()}-{host().split()[0]}"
        self.trial = place  # then a folder of its own, for a killed trial may have left messages here

    def findings(self) -> list[Finding]:
        self._tell(f"hello-{self.me}", {})
        try:
            return self._met()
        except BaseException:  # so that nobody waits for us
            (self.place / f"hello-{self.me}").unlink(missing_ok=True)
            raise

    def _met(self) -> list[Finding]:
        self._wait(lambda: len(self._hellos()) > 1, "a second process")
        first, second = sorted(self._hellos())[:2]
        if self.me not in (first, second):
            raise DataError(f"more than two processes try {self.place.parent}. Start two.")
        self.trial = self.place / f"trial-{first}"
        if self.me == first:
            self._hold()
        else:
            self._look()
        result = self._read("result")
        self._tell(f"left-{self.me}", {})
        if self.me == first:  # the other has still to read the result
            with contextlib.suppress(DataError):
                self._wait(lambda: (self.trial / f"left-{second}").exists(), "the other's end")
            shutil.rmtree(self.place, ignore_errors=True)
        return [Finding(**finding) for finding in result["findings"]]

    def _hold(self) -> None:
        """A child holds a lock and is killed; then a file is written many times."""
        lock, held = self.trial / "lock", self.trial / "held"
        with subprocess.Popen([sys.executable, "-c", _HOLDER, str(lock), str(held)]) as child:
            try:
                self._read("seen")
            finally:
                child.kill()
        self._tell("killed", {})
        for k in range(WRITES):
            self._tell("changing", {"k": k, "body": "x" * (k * 97 % 5000)})
        self._tell("written", {"created": self._created()})
        self._read("result")

    def _look(self) -> None:
        lock = self.trial / "lock"
        self._read("held")
        seen = files.is_locked(lock)
        self._tell("seen", {})
        self._read("killed")
        freed = self._becomes(lambda: not files.is_locked(lock))
        torn = reads = 0
        while not (self.trial / "written").exists():
            with contextlib.suppress(FileNotFoundError):
                text = opened.read_bytes(self.trial / "changing").decode()
                reads += 1
                torn += not _whole(text)
            self._in_time("the end of the writing")
        created = self._created() + self._read("written")["created"]
        findings = [
            Finding("lock", seen, "seen by the other process" if seen else UNSEEN),
            Finding("lock of a killed process", freed, "freed" if freed else "still held after 10 s"),
            Finding(
                "created files", created == RACES, f"{RACES} files were created by {created} processes in all"
            ),
            Finding("renamed files", torn == 0, f"{torn} of {reads} reads found half a file"),
        ]
        self._tell("result", {"findings": [vars(finding) for finding in findings]})

    def _created(self) -> int:
        """How many files this process created and the other did not: leases rest on that."""
        count = 0
        for k in range(RACES):
            with contextlib.suppress(FileExistsError):
                (self.trial / f"race-{k}").touch(exist_ok=False)
                count += 1
        return count

    # ------------------------------------------------------------------ messages

    def _hellos(self) -> list[str]:
        """Processes that are there now: what a killed trial has left is soon too old to count."""
        names = [path.name.removeprefix("hello-") for path in self.place.glob("hello-[0-9]*-*")]
        return [name for name in names if abs(time.time_ns() - int(name.partition("-")[0])) < 600 * 10**9]

    def _tell(self, name: str, content: dict[str, Any]) -> None:
        files.write_json(self.trial / name, content)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.trial / name
        self._wait(path.exists, f"the message {name!r}")
        message: dict[str, Any] = opened.read_json(path)
        return message

    def _becomes(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + 10.0
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(PERIOD_S)
        return True

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            self._in_time(what)
            time.sleep(PERIOD_S)

    def _in_time(self, what: str) -> None:
        if time.monotonic() > self.until:
            raise DataError(
                f"waited in vain for {what} in {self.place}. Start the same command on the other node "
                "at the same time; remove that folder if an earlier trial left it."
            )


def _whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
