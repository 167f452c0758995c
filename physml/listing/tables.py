"""The states of all tables, kept in the cache as long as the files that they come from are the same.

A table is read again where one of these has changed, by size, times or inode: the program, a config that it
is read from, a record of its experiments, the presence of its data, or a lock of its runs. With configs or
plugins of one's own nothing is kept, because what they read is not known here.
"""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base import files
from physml.base.lock import is_held
from physml.base.paths import (
    CONF,
    PACKAGE,
    TASKS,
    cache_root,
    data_root,
    own_conf,
    results_root,
    results_roots,
    work_root,
)
from physml.records.record_index import FolderStats

if TYPE_CHECKING:
    from physml.queue.requested import Kept, RequestedRuns

FORM = 3  # of the index file


@dataclass(frozen=True)
class Listed:
    """A table in a list: its state in words, its outcomes, and the verdict on its claim."""

    ident: str
    title: str
    state: str
    outcomes: dict[str, int] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sources:
    """Sources of a table besides the program.

    runs: pairs of an experiment's folder and its identity. data: names of files and folders, below the roots
    of data. configs: files and folders, those that are not there too.
    """

    runs: tuple[tuple[str, str], ...] = ()
    data: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()


class TableIndex:
    """States of tables by their ids. `get` gives None for a table that must be read."""

    def __init__(self) -> None:
        self.path = cache_root() / "tables.json"
        self.usable = own_conf() is None
        self.began = time.time()
        self.base = _base() if self.usable else ""
        self.folders: dict[str, tuple[str, float]] = {}
        self.configs: dict[str, tuple[str, float]] = {}
        self.changed = False
        self.stats = FolderStats()
        self.kept: Kept | None = None
        self.known: dict[str, Any] = self._read() if self.usable else {}

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            return dict(content["tables"]) if content["base"] == self.base else {}
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or not ours: it is written anew
            return {}

    def get(self, ident: str) -> Listed | None:
        try:
            entry = self.known[ident]
            sources = Sources(tuple(map(tuple, entry["runs"])), tuple(entry["data"]), tuple(entry["configs"]))
            same = entry["state"] == self.state(sources)[0]
            return Listed(**entry["listed"]) if same else None
        except (KeyError, TypeError, ValueError):
            return None

    def state(self, sources: Sources) -> tuple[str, float]:
        """A digest of the state of all sources, and when the newest of them was changed."""
        newest, parts = 0.0, []
        for config in sources.configs:
            if config not in self.configs:
                self.configs[config] = _config(Path(config))
            state, changed = self.configs[config]
            newest = max(newest, changed)
            parts += [config, state]
        for folder, identity in sources.runs:
            if folder not in self.folders:
                self.folders[folder] = _records(folder, self.stats)
            state, changed = self.folders[folder]
            newest = max(newest, changed)
            parts += [folder, state, *_held(folder, identity)]
        roots = [root for root in (data_root(), cache_root() / "files") if root]
        parts += [str(root / name) for root in roots for name in sources.data if (root / name).exists()]
        return _digest(parts), newest

    def same(self, ident: str, inputs: str) -> Listed | None:
        """The table where it was made of the same, though configs have changed."""
        try:
            entry = self.known[ident]
            return Listed(**entry["listed"]) if entry["inputs"] == inputs else None
        except (KeyError, TypeError, ValueError):
            return None

    def keep(self, listed: Listed, sources: Sources, state: tuple[str, float], inputs: str = "") -> None:
        """state: of the sources before the table was read. inputs: a digest of all that it is made of."""
        if self.usable and state[1] < self.began - files.SETTLED_S:
            entry = {"state": state[0], "inputs": inputs, "listed": dataclasses.asdict(listed)}
            self.known[listed.ident] = dataclasses.asdict(sources) | entry
            self.changed = True

    def keeping(self) -> "Kept":
        """Configs and records of the cache, for all tables that are read again."""
        from physml.queue.requested import Kept

        self.kept = self.kept or Kept(self.stats)
        return self.kept

    def save(self) -> None:
        """A cache that cannot be written is none: the next list is slower."""
        if self.kept:
            self.kept.close()
        if self.changed:
            try:
                files.write_json(self.path, {"base": self.base, "tables": self.known})
            except OSError:
                return


def _base() -> str:
    """The state of the program, and where results and data are looked for."""
    places = [*results_roots(), work_root(), cache_root(), data_root()]
    found = [f"{path} {_stat(path)}" for root in (PACKAGE, TASKS) for path in _all(root)]
    search = sorted((results_root() / "search").glob("*.json"))
    return _digest([str(FORM), *map(str, places), *found, *(f"{path} {_stat(path)}" for path in search)])


def _stat(path: Path) -> str:
    """Changes with every change of a file: its times, one of which no program can set, size and inode."""
    try:
        found = path.stat()
    except FileNotFoundError:  # removed since the folder was listed
        return ""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _config(path: Path) -> tuple[str, float]:
    """The state of a file, or of the names in a folder, and when it was changed; 0: it is not there."""
    if path.is_dir():
        return _digest(str(file.relative_to(path)) for file in sorted(path.rglob("*.yaml"))), 0.0
    return _stat(path), path.stat().st_ctime if path.exists() else 0.0


def _all(root: Path) -> Iterator[Path]:
    for folder, names, inside in os.walk(root):
        names[:] = sorted(name for name in names if name != "__pycache__")
        yield from (Path(folder, name) for name in sorted(inside))


def _records(folder: str, stats: FolderStats) -> tuple[str, float]:
    """The state of the records of an experiment in all results roots, and the newest change."""
    found = {str(root): stats.of(root / "runs" / folder) for root in results_roots()}
    changes = [int(stat.split(" ", 2)[1]) for of_root in found.values() for stat in of_root.values()]
    return _digest([json.dumps(found, sort_keys=True)]), max(changes, default=0) / 1e9


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
    with files.noting() as configs:
        return _read(ident, path, index, configs)


def _read(ident: str, path: Path, index: TableIndex, configs: set[Path]) -> Listed:
    """configs: those that have been read so far."""
    from physml.report.table import spec as tables

    if tables.kind_of(path) == "settings":
        from physml.report.table.settings import collect_settings, load_settings

        settings = load_settings(path)
        listed = Listed(ident, settings.title, collect_settings(settings).state)
        sources = Sources(configs=_below_conf(configs))
        index.keep(listed, sources, index.state(sources))
        return listed
    return _of_results(ident, path, index, configs)


def _below_conf(paths: Iterable[Path]) -> tuple[str, ...]:
    """The configs among files; of the program the base of the index knows."""
    return tuple(sorted(str(path) for path in paths if CONF in path.parents))


def _of_results(ident: str, path: Path, index: TableIndex, configs: set[Path]) -> Listed:
    from physml.queue.requested import RequestedRuns, RunOptions
    from physml.report.table.collect import collect, outcomes, table_state
    from physml.report.table.spec import load_table
    from physml.run.spec import folder_of

    with files.noting() as own:
        spec = load_table(path)
    requested = RequestedRuns(spec.runs, RunOptions(), spec.id, kept=index.keeping())
    runs = tuple((folder_of(name), identity or "") for name, identity in requested.identities.items())
    data = _data_names(requested.datasets)
    sources = Sources(runs, data, _below_conf(configs))
    before = index.state(sources)
    inputs = _inputs(requested, index.state(Sources(runs, data, _below_conf(own)))[0])
    if (listed := index.same(ident, inputs)) is None:
        blocked = requested.untrainable
        records = requested.wanted_records()
        running = requested.running()
        table = collect(spec, requested.identities, records, running, blocked=blocked, ranks=False)
        claims = {str(table.claim_verdict or "no verdict yet"): 1} if table.claim else {}
        listed = Listed(ident, spec.title, table_state(table), dict(outcomes(table)), claims)
    if not requested.plugins:
        index.keep(listed, sources, before, inputs)
    return listed


def _inputs(requested: "RequestedRuns", state: str) -> str:
    """A digest of what a table is made of: its config, identities, records, data, what cannot be trained.

    state: of its own config, of records and data.
    """
    return _digest([state, json.dumps([requested.identities, requested.untrainable])])


def _data_names(datasets: Iterable[str]) -> tuple[str, ...]:
    """Names that the files of data sets may have below a root of data, and their folders."""
    from physml.data.datasets import upstream

    found: dict[str, None] = {}
    for name in sorted(datasets):
        for file in upstream(name).files:
            found |= dict.fromkeys((file.name, *file.also, *([file.folder] if file.folder else [])))
    return tuple(found)
