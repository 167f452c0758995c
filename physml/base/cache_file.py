"""Rows in a SQLite file of the cache folder, each checked by a hash: what cannot be read is not there.

Such a file only saves time. It may be removed at any time, and several processes may use it at once.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from physml.base.paths import cache_root

T = TypeVar("T")
PATIENCE_S = 2.0  # for another process that writes
# Errors that a sound file gives too: another process holds it, or the folder cannot be written.
NOT_ITS_FAULT = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_FULL")
# Apart, so that a look at all heads does not read the values.
TABLES = """
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS heads
    (place TEXT, name TEXT, state TEXT, hash TEXT, PRIMARY KEY (place, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies
    (place TEXT, name TEXT, value TEXT, hash TEXT, PRIMARY KEY (place, name));
"""


def hash_of(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def code_hash(*sources: Path) -> str:
    """Hash of the contents of source files; as a key it keeps values of other code from being used."""
    return hash_of(*(hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(sources)))


class CacheFile:
    """Values by place and name, each with a state: a text that says what the value was made of.

    Open from the first use until `close`.

    Args:
        name: Name of the file in the cache folder.
        code: Hash of the code that makes the values.
    """

    def __init__(self, name: str, code: str) -> None:
        self.path, self.code = cache_root() / name, code
        self.database: sqlite3.Connection | None = None

    def states(self, place: str) -> dict[str, str]:
        """The states of all names of a place."""

        def read(database: sqlite3.Connection) -> dict[str, str]:
            rows = database.execute("SELECT name, state, hash FROM heads WHERE place = ?", (place,))
            return {n: state for n, state, check in rows if check == hash_of(self.code, place, n, state)}

        return self._use(read) or {}

    def values(self, place: str, states: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The values of names in the states that are wanted, as far as they are there."""

        def read(database: sqlite3.Connection) -> dict[str, str]:
            found = {}
            for name, state in states:
                query = "SELECT value, hash FROM bodies WHERE place = ? AND name = ?"
                for value, check in database.execute(query, (place, name)):
                    if check == hash_of(self.code, place, name, state, value):
                        found[name] = value
            return found

        return self._use(read) or {}

    def put(self, place: str, rows: Iterable[tuple[str, str, str]], gone: Iterable[str] = ()) -> None:
        """Keep rows of name, state and value, and remove those that are gone, all or none of them."""

        def write(database: sqlite3.Connection) -> None:
            for name in gone:
                for table in ("heads", "bodies"):
                    database.execute(f"DELETE FROM {table} WHERE place = ? AND name = ?", (place, name))
            for name, state, value in rows:
                head = (place, name, state, hash_of(self.code, place, name, state))
                body = (place, name, value, hash_of(self.code, place, name, state, value))
                database.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?)", head)
                database.execute("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?, ?)", body)

        self._use(write)

    def close(self) -> None:
        if self.database:
            self.database.close()
            self.database = None

    def _use(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """None where the file cannot be used; a damaged one is removed, so that it is made anew."""
        try:
            if self.database is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.database = sqlite3.connect(self.path, PATIENCE_S)
                self.database.executescript(TABLES)
            with self.database:
                return action(self.database)
        except sqlite3.Error as error:
            self.close()
            if not getattr(error, "sqlite_errorname", "").startswith(NOT_ITS_FAULT):
                with suppress(OSError):
                    self.path.unlink()
        except (OSError, ValueError):  # no folder, or a path that is no UTF-8
            self.close()
        return None
