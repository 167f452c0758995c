"""An index of records in the cache, so that a folder of many is read without a look into each file.

What a file said holds as long as size, times and inode of the file and of that of its setting are the same. A
file that is new, changed or damaged is read as ever. Kept are split and seed of all records, and the content
of those that were wanted.
"""

import json
import os
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from physml.base.cache_file import CacheFile, code_hash
from physml.base.files import SETTLED_S
from physml.base.paths import results_roots
from physml.records import record, schema
from physml.records.record import RUNS, setting_name
from physml.records.schema import Record

Run = tuple[int, int]  # split, seed
FOLDERS = ""  # the place of the rows of folders; those of records have the folder as their place


@dataclass
class Folder:
    """The files of a folder with their stats, which are empty where they do not count; what each run's is.

    files: a stat does not count where the file had just been changed, or is a run's that was not read.
    runs: file -> split, seed and the name of the setting's file, which is empty where there is none.
    """

    files: dict[str, str] = field(default_factory=dict)
    runs: dict[str, tuple[int, int, str]] = field(default_factory=dict)


class FolderStats:
    """Stats of the JSON files of folders, taken once each."""

    def __init__(self) -> None:
        self.began = time.time()
        self.known: dict[Path, dict[str, str]] = {}

    def of(self, folder: Path) -> dict[str, str]:
        if folder not in self.known:
            self.known[folder] = file_stats(folder)
        return self.known[folder]


class RecordIndex:
    """Records by their folder below results/runs, until `close`.

    Args:
        stats: File states of the folders, as they are now; None: taken at the first look.
    """

    def __init__(self, stats: FolderStats | None = None) -> None:
        sources = map(Path, (__file__, record.__file__, schema.__file__))
        self.rows = CacheFile("records.sqlite", code_hash(*sources))
        self.stats = stats or FolderStats()

    def records(
        self, folder: str, wanted: Collection[Run], roots: Iterable[Path] | None = None
    ) -> list[Record]:
        """The records of the wanted splits and seeds, as `record.records` gives them.

        Errors: RecordError for any record of the folder that is unreadable, truncated, foreign or newer.
        """
        seen: set[str] = set()
        found: list[Record] = []
        for root in results_roots() if roots is None else roots:
            found += self._of_folder(root / "runs" / folder, seen, wanted)
        return found

    def close(self) -> None:
        self.rows.close()

    def _of_folder(self, folder: Path, seen: set[str], wanted: Collection[Run]) -> list[Record]:
        """seen: names in an earlier root, which wins; those of this folder are added."""
        if not (stats := self.stats.of(folder)):
            return []
        kept = self._kept(folder)
        same = kept.files == stats
        names = kept.runs if same else [name for name in stats if fnmatchcase(name, RUNS)]
        known = (
            kept.runs if same else {name: run for name, run in kept.runs.items() if _holds(name, kept, stats)}
        )
        chosen = {
            name for name in names if name not in seen and (name not in known or known[name][:2] in wanted)
        }
        seen.update(names)
        states = [(name, _state(stats, name, known[name][2])) for name in chosen & known.keys()]
        values = self.rows.values(str(folder), states)
        found, fresh = [], {}
        for name in sorted(chosen):
            path = folder / name
            if name in values:
                made = cast(Record, record.from_content(path, json.loads(values[name])))
            else:
                fresh[name], made = record.read_with_content(path)
            if (made["split"], made["seed"]) in wanted:
                found.append(cast(Record, {**made, "path": str(path)}))
        if fresh or not same:
            self._keep(folder, kept, known, fresh, wanted)
        return found

    def _kept(self, folder: Path) -> Folder:
        """The index's entry of a folder; empty if the row is missing or not ours."""
        try:
            value = json.loads(self.rows.values(FOLDERS, [(str(folder), "")])[str(folder)])
            return Folder(value["files"], {name: tuple(run) for name, run in value["runs"].items()})
        except (KeyError, TypeError, ValueError, AttributeError):
            return Folder()

    def _keep(
        self,
        folder: Path,
        kept: Folder,
        known: Mapping[str, tuple[int, int, str]],
        fresh: Mapping[str, Mapping[str, Any]],
        wanted: Collection[Run],
    ) -> None:
        """known: of `kept` what still holds. fresh: the contents of the files that were read."""
        stats = self.stats.of(folder)
        files = {name: stat if _settled(stat, self.stats.began) else "" for name, stat in stats.items()}
        runs, rows = dict(known), []
        for name, content in fresh.items():
            run = int(content["split"]), int(content["seed"]), setting_name(content)
            if files[name] and (not run[2] or files.get(run[2])):
                runs[name] = run
                if run[:2] in wanted:
                    rows.append((name, _state(stats, name, run[2]), json.dumps(content)))
        files |= {name: "" for name in files if name not in runs and fnmatchcase(name, RUNS)}
        if Folder(files, runs) != kept:
            self.rows.put(FOLDERS, [(str(folder), "", json.dumps({"files": files, "runs": runs}))])
        gone = kept.runs.keys() - stats.keys()
        if rows or gone:
            self.rows.put(str(folder), rows, gone)


def file_stats(folder: Path) -> dict[str, str]:
    """The JSON files of a folder, each with what changes when it is edited or replaced.

    That is: size, times of content and entry in ns, inode.
    """
    found: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".json"):
                    try:
                        told = entry.stat()
                    except FileNotFoundError:  # removed since
                        continue
                    found[entry.name] = f"{told.st_size} {told.st_mtime_ns} {told.st_ctime_ns} {told.st_ino}"
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return found


def _state(stats: Mapping[str, str], name: str, setting: str) -> str:
    return f"{stats[name]}|{setting}|{stats.get(setting)}"


def _holds(name: str, kept: Folder, stats: Mapping[str, str]) -> bool:
    """True if a run's file, and that of its setting, are unchanged."""
    setting = kept.runs[name][2]
    same = name in stats and kept.files.get(name) == stats[name]
    return same and (not setting or (setting in stats and kept.files.get(setting) == stats[setting]))


def _settled(stat: str, began: float) -> bool:
    """True if a file cannot change again within the clock tick of its times."""
    _, content, entry, _ = map(int, stat.split())
    return max(content, entry) < (began - SETTLED_S) * 1e9
