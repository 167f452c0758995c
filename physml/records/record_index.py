"""An index of records in the cache, so that a folder of many is read without a look into each file.

A row has the content of a file as it was checked when it was read. It holds as long as size, times and inode
of the file and of that of its setting are the same. A file that is new, changed or damaged is read as ever.
"""

import json
import os
import time
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from physml.cache_file import CacheFile, code_hash
from physml.files import SETTLED_S
from physml.paths import results_roots
from physml.records import record, schema
from physml.records.record import RUNS, setting_name
from physml.records.schema import Record

Stat = tuple[int, int, int, int]  # size, times of content and entry in ns, inode
Run = tuple[int, int]  # split, seed


class RecordIndex:
    """Records by their folder below results/runs, until `close`."""

    def __init__(self) -> None:
        sources = map(Path, (__file__, record.__file__, schema.__file__))
        self.rows = CacheFile("records.sqlite", code_hash(*sources))

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
        began, stats = time.time(), file_stats(folder)
        names = sorted(name for name in stats if name not in seen and fnmatchcase(name, RUNS))
        seen.update(names)
        states = self.rows.states(str(folder)) if names else {}
        runs = {name: _run_of(states[name], name, stats) for name in names if name in states}
        chosen = [(name, states[name]) for name, run in runs.items() if run in wanted]
        values = self.rows.values(str(folder), chosen)
        found, fresh = [], []
        for name in names:
            if (run := runs.get(name)) is not None and run not in wanted:
                continue
            path = folder / name
            if name in values:
                made = cast(Record, record.from_content(path, json.loads(values[name])))
            else:
                content, made = record.read_with_content(path)
                setting = setting_name(content)
                if _settled((stats[name], stats.get(setting)), began):
                    state = _state((made["split"], made["seed"]), name, setting, stats)
                    fresh.append((name, state, json.dumps(content)))
            if (made["split"], made["seed"]) in wanted:
                found.append(cast(Record, {**made, "path": str(path)}))
        gone = states.keys() - stats.keys()
        if fresh or gone:
            self.rows.put(str(folder), fresh, gone)
        return found


def file_stats(folder: Path) -> dict[str, Stat]:
    """The JSON files of a folder, each with what changes when it is edited or replaced."""
    found: dict[str, Stat] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".json"):
                    try:
                        told = entry.stat()
                    except FileNotFoundError:  # removed since
                        continue
                    found[entry.name] = (told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)
    except OSError:
        return {}
    return found


def _state(run: Run, name: str, setting: str, stats: Mapping[str, Stat]) -> str:
    return f"{run[0]}|{run[1]}|{setting}|{stats[name]}|{stats.get(setting)}"


def _run_of(state: str, name: str, stats: Mapping[str, Stat]) -> Run | None:
    """Split and seed of a row; None where the files are others by now."""
    split, seed, setting, _ = state.split("|", 3)
    run = int(split), int(seed)
    return run if state == _state(run, name, setting, stats) else None


def _settled(stats: Iterable[Stat | None], began: float) -> bool:
    """Whether no file may change again within the tick of its clock that its times name."""
    return all(max(one[1:3]) < (began - SETTLED_S) * 1e9 for one in stats if one)
