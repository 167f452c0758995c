"""The states of all tables, kept in the cache as long as the files that they come from are the same.

All tables are read again where the program or any config has changed, by size, times or inode; one table
where a record of its experiments, the presence of its data, or a lock of its runs has. With configs or
plugins of one's own nothing is kept, because what they read is not known here.
"""

import contextlib
import dataclasses
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.lock import is_held
from physml.base.paths import CONF, PACKAGE, TASKS, cache_root, data_root, own_conf, results_roots, work_root

FORM = 5  # of the index file
State = tuple[str, float]  # a digest, and the time of the newest change
Runs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Listed:
    """A table in a list: its state in words, its outcomes, and the verdict on its claim."""

    ident: str
    title: str
    state: str
    outcomes: dict[str, int] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)


class TableIndex:
    """States of tables by their ids. `get` gives None for a table that must be read."""

    def __init__(self) -> None:
        self.path = cache_root() / "tables.json"
        self.usable = own_conf() is None
        self.began = time.time()
        self.base = _base() if self.usable else ("", 0.0)
        self.folders: dict[str, State] = {}
        self.changed = False
        self.known: dict[str, Any] = self._read() if self.usable else {}

    def _read(self) -> dict[str, Any]:
        try:
            content = opened.read_json(self.path, opened.LARGE)
            return dict(content["tables"]) if content["base"] == self.base[0] else {}
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or not ours: it is written anew
            return {}

    def get(self, ident: str) -> Listed | None:
        try:
            entry = self.known[ident]
            same = entry["state"] == self.state(entry["runs"], entry["data"])[0]
            return Listed(**entry["listed"]) if same else None
        except (KeyError, TypeError, ValueError):
            return None

    def state(self, runs: Runs = (), data: Sequence[str] = ()) -> State:
        """State of what a table is made of besides the program and the configs.

        runs: pairs of an experiment's folder and its identity. data: names of files and folders, below the
        roots of data.
        """
        newest, parts = self.base[1], []
        for folder, identity in runs:
            if folder not in self.folders:
                self.folders[folder] = _state(root / "runs" / folder for root in results_roots())
            state, changed = self.folders[folder]
            newest = max(newest, changed)
            parts += [folder, state, *_held(folder, identity)]
        roots = [root for root in (data_root(), cache_root() / "files") if root]
        parts += [str(root / name) for root in roots for name in data if (root / name).exists()]
        return _digest(parts), newest

    def keep(self, listed: Listed, state: State, runs: Runs = (), data: Sequence[str] = ()) -> None:
        """state: as it was before the table was read."""
        if self.usable and state[1] < self.began - files.SETTLED_S:
            entry = {"runs": runs, "data": data, "state": state[0], "listed": dataclasses.asdict(listed)}
            self.known[listed.ident] = entry
            self.changed = True

    def save(self) -> None:
        """A cache that cannot be written is none: the next list is slower."""
        if self.changed:
            with contextlib.suppress(OSError):
                files.write_json(self.path, {"base": self.base[0], "tables": self.known})


def _base() -> State:
    """The state of the program, its configs and searches, and where results and data are looked for."""
    places = [*results_roots(), work_root(), cache_root(), data_root()]
    state, newest = _state([PACKAGE, TASKS, CONF, *(root / "search" for root in results_roots())])
    return _digest([str(FORM), *map(str, places), state]), newest


def _state(folders: Iterable[Path]) -> State:
    """The state of all files below folders: their times, one of which no program can set, size and inode."""
    newest, parts = 0, []
    for top in folders:
        for folder, names, inside in files.walk(top):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted(inside):
                path = Path(folder, name)
                try:
                    stat = path.stat()
                except FileNotFoundError:  # removed since the folder was listed
                    continue
                newest = max(newest, stat.st_mtime_ns, stat.st_ctime_ns)
                parts.append(f"{path} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}")
    return _digest(parts), newest / 1e9


def _held(folder: str, identity: str) -> list[str]:
    """The runs of an experiment that a process works on."""
    place = work_root() / folder
    return [name for name in files.names_in(place) if name.startswith(identity) and is_held(place / name)]


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# ---------------------------------------------------------------------------- reading a table


def read(ident: str, index: TableIndex) -> Listed:
    """The state of a table, from the index or from its records; what is read is kept."""
    if (listed := index.get(ident)) is not None:
        return listed
    from physml.report.table import spec as tables

    path = tables.find_table(ident)
    if tables.kind_of(path) == "settings":
        from physml.report.table.settings import collect_settings, load_settings

        settings = load_settings(path)
        listed = Listed(ident, settings.title, collect_settings(settings).state)
        index.keep(listed, index.state())
        return listed
    return _of_results(ident, path, index)


def _of_results(ident: str, path: Path, index: TableIndex) -> Listed:
    from physml.queue.requested import RequestedRuns, RunOptions
    from physml.report.outcome import outcome_of
    from physml.report.table.collect import collect, states, table_state
    from physml.report.table.spec import load_table
    from physml.run.spec import folder_of

    spec = load_table(path)
    requested = RequestedRuns(spec.runs, RunOptions(), spec.id)
    runs = tuple((folder_of(name), identity or "") for name, identity in requested.identities.items())
    data = _data_names(requested.datasets)
    before = index.state(runs, data)
    records = requested.wanted_records()
    blocked, running = requested.untrainable, requested.running()
    table = collect(spec, requested.identities, records, running, blocked=blocked, ranks=False)
    claims = {str(table.claim_verdict or "no verdict yet"): 1} if table.claim else {}
    outcomes = Counter(outcome_of(state).name for state in states(table))
    listed = Listed(ident, spec.title, table_state(table), dict(outcomes), claims)
    if not requested.plugins:
        index.keep(listed, before, runs, data)
    return listed


def _data_names(datasets: Iterable[str]) -> tuple[str, ...]:
    """Names that the files of data sets may have below a root of data, and their folders."""
    from physml.data.datasets import upstream

    names: dict[str, None] = {}
    for name in sorted(datasets):
        for file in upstream(name).files:
            names |= dict.fromkeys((file.name, *file.also, *([file.folder] if file.folder else [])))
    return tuple(names)
