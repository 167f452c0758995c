"""`physml data list | get | check`: data sets and generated data, where they lie, whether they are sound.

Without torch, but for `get` of data that a task generates.
"""

import json
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from physml.base.errors import ConfigError, DataError, suggest
from physml.config import conf_files
from physml.config.load import read_yaml
from physml.data import verify
from physml.data.cache import asked_of, read_arrays
from physml.data.datasets import DataFile, Upstream, dataset_names, upstream
from physml.data.fetch import download
from physml.data.locate import find, half, missing, other_root, unreadable
from physml.data.readers import reader
from physml.data.store import Store

log = logging.getLogger(__name__)

State = Literal[
    "present", "absent", "sound", "content-verified", "unverified", "damaged", "unreadable", "made when used"
]


@dataclass(frozen=True)
class DataRow:
    """One file. `size` in bytes, as it lies on disk, or as published; None: not known."""

    dataset: str  # or the task that generates it
    file: str
    state: State
    size: int | None
    path: Path | None
    licence: str = ""
    note: str = ""


@dataclass(frozen=True)
class Chosen:
    """The resolved names of a command: data sets, and tasks whose data are generated or drawn."""

    datasets: tuple[str, ...]
    tasks: tuple[str, ...]


def choose(names: Sequence[str]) -> Chosen:
    """Data sets by their names, or by those of tasks that read them; all where none is named.

    Errors: ConfigError for an unknown name, with near names.
    """
    of_task = task_datasets()
    datasets, tasks = dataset_names(), [name for name, reads in of_task.items() if not reads]
    if not names:
        return Chosen(tuple(datasets), tuple(tasks))
    chosen: dict[str, None] = {}
    generating: dict[str, None] = {}
    for name in names:
        if name in datasets:
            chosen[name] = None
        elif name in of_task:
            chosen |= dict.fromkeys(of_task[name])
            generating |= {} if of_task[name] else {name: None}
        else:
            raise ConfigError(f"there is no data set or task {name}. {suggest(name, {*datasets, *of_task})}")
    return Chosen(tuple(chosen), tuple(generating))


def task_datasets() -> dict[str, list[str]]:
    """The data sets that each task of conf/task reads; own.yaml, which names no class, is left out."""
    tasks = conf_files.files("task")
    return {name: read_yaml(tasks[name]).get("datasets") or [] for name in sorted(tasks) if name != "own"}


# ---------------------------------------------------------------------------- list


def list_data(chosen: Chosen, store: Store) -> list[DataRow]:
    """The files that are there, by name only: nothing is read, downloaded or generated."""
    rows = [row for name in chosen.datasets for row in _listed(upstream(name), store)]
    return rows + [row for name in chosen.tasks for row in _generated(name, store)]


def _listed(dataset: Upstream, store: Store) -> Iterator[DataRow]:
    missing_files = missing(dataset, store)
    for file in dataset.files:
        path = find(file, store)
        size = path.stat().st_size if path is not None and path.is_file() else file.size
        state: State = "absent" if path is None else "present"
        note = file.purpose
        if path is None and (why := unreadable(file, store)):
            state, note = "unreadable", f"{note}; {why}"
        elif path is None and file.optional:
            note += "; optional"
        elif path is None and (part := half(file, store)):
            note += f"; {size_text(part.stat().st_size)} of it downloaded"
        elif path is None and file not in missing_files:
            note += f"; in {file.inside}" if file.inside else "; its members are there"
        elif path is None and not file.checksum:
            note += "; no published checksum"
        yield DataRow(dataset.name, file.name, state, size, path, dataset.licence, note)


def summary(chosen: Chosen, store: Store) -> list[str]:
    """How much of what was asked for is there; where something is missing, how to get it.

    A PHYSML_DATA that is no folder, or one too deep or too high, is told.
    """
    absent = {name: missing(upstream(name), store) for name in chosen.datasets}
    absent |= {name: list(upstream(name).files) for name in chosen.datasets if not _any(name, store)}
    gone = [file for files in absent.values() for file in files]
    if not gone:
        return []
    here = sum(not files for files in absent.values())
    line = f"{here} of {len(absent)} data sets at hand. To get one: physml data get NAME"
    if store.data is None:
        return [line, "PHYSML_DATA, a folder of files that you have already, is not set."]
    hints = (other_root(file, store.data) for file in gone)
    return [line, *[hint for hint in hints if hint][:1]]


def incomplete(names: Sequence[str], chosen: Chosen, store: Store) -> list[str]:
    """The chosen data sets of which files are missing or unreadable; none where nothing was named."""
    if not names:
        return []
    return [
        name
        for name in chosen.datasets
        if missing(upstream(name), store)
        or (name in names and not _any(name, store))
        or any((path := find(file, store)) and not os.access(path, os.R_OK) for file in upstream(name).files)
    ]


def _any(name: str, store: Store) -> bool:
    return any(find(file, store) is not None for file in upstream(name).files)


def size_text(size: int | None) -> str:
    """
    Example:
        >>> size_text(28881), size_text(9912422), size_text(2428923189)
        ('28.2 KiB', '9.5 MiB', '2.3 GiB')
    """
    if size is None:
        return ""
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if size >= 2 ** (10 * power):
            return f"{size / 2 ** (10 * power):.1f} {unit}"
    return f"{size / 2**10:.1f} KiB"


def _generated(task: str, store: Store) -> Iterator[DataRow]:
    """The files of a task in the cache. Which others it needs is known only when it is built."""
    paths = [path for name in cached_as(task) for path in (store.cache / "generated").glob(f"{name}-*.npz")]
    for path in sorted(paths):
        yield DataRow(task, path.name, "present", path.stat().st_size, path, note=_made_for(path))
    if not paths:
        yield DataRow(task, "", "made when used", None, None, note="generated or drawn; nothing to download")


def cached_as(task: str) -> tuple[str, str]:
    """How the names of its files begin: by the module of its class, or by the class, of rows of a hub."""
    *_, module, name = str(read_yaml(conf_files.files("task")[task]).get("_target_", f"{task}.")).split(".")
    return module, f"hub_{name}"


def _made_for(path: Path) -> str:
    """The arguments that generated data were made for, as `n_points 1001, data_seed 1234`."""
    try:
        key = json.loads(asked_of(path))["key"]
        said = [f"{name} {_short(value)}" for name, value in key.items()]
    except (DataError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "generated; what for cannot be read"
    return ", ".join(["generated", *said])


def _short(value: Any) -> str:
    return " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


# ---------------------------------------------------------------------------- check


def check_data(chosen: Chosen, store: Store) -> list[DataRow]:
    """The rows of `list_data`, with the state of each file that is present after reading and comparing it.

    A file is `sound` where its published checksum agrees; `content-verified` where, under
    data.verify=content, what the reader returns is the published content; `unverified` where nothing is
    published to compare it with: it is then the file that was first seen, and can be read; `unreadable` where
    it may not be opened; else `damaged`.
    """
    rows = [row for name in chosen.datasets for row in _checked(upstream(name), store)]
    return rows + [_checked_generated(row) for name in chosen.tasks for row in _generated(name, store)]


# What is said of a file whose bytes are proved by nothing published, by how it is known instead.
NOTES = {
    "first seen": "no published checksum; pinned when first seen",
    "content": "other bytes than published, the same content",
    "off": "compared with nothing, as --verify off says",
}


def _checked(dataset: Upstream, store: Store) -> list[DataRow]:
    """Rows after comparing, and where bytes prove nothing, reading: what the reader rejects is damaged."""
    rows = []
    for row, file in zip(_listed(dataset, store), dataset.files, strict=True):
        rows.append(row if row.path is None else _compared(dataset, file, row, store))
    unproved = [row for row in rows if row.note in NOTES.values()]
    usable = all(row in unproved or row.path is None or row.state == "sound" for row in rows)
    if unproved and usable and not missing(dataset, store):
        try:
            store.read(reader(dataset.name))
        except DataError as error:
            return [replace(r, state="damaged", note=str(error)) if r in unproved else r for r in rows]
    return rows


def _compared(dataset: Upstream, file: DataFile, row: DataRow, store: Store) -> DataRow:
    assert row.path is not None
    states: dict[str, State] = {"bytes": "sound", "content": "content-verified"}
    try:
        how = verify.verify(dataset, file, row.path, store, fresh=True)["verified"]
    except verify.Unverifiable as error:
        return replace(row, state="unverified", note=str(error))
    except OSError as error:
        return replace(row, state="unreadable", note=f"{row.path} cannot be read: {error.strerror}")
    except DataError as error:
        return replace(row, state="damaged", note=str(error))
    return replace(row, state=states.get(how, "unverified"), note=NOTES.get(how, ""))


def _checked_generated(row: DataRow) -> DataRow:
    if row.path is None:
        return row
    try:
        read_arrays(row.path, asked_of(row.path))
    except (DataError, OSError) as error:
        return replace(row, state="damaged", note=str(error))
    return replace(row, state="sound")


# ---------------------------------------------------------------------------- get


def get_data(chosen: Chosen, store: Store) -> list[DataRow]:
    """Download what is missing, generate what tasks want at their own sizes, then check everything.

    Raises DataError where a file cannot be had; generated data that cannot be written stay absent.
    """
    errors = []
    for name in chosen.datasets:
        reader(name)  # before anything is downloaded
    for name in chosen.datasets:
        try:
            download.get(upstream(name), store)
        except DataError as error:  # the others may be had
            errors.append(str(error))
    for task in _built(chosen.tasks):
        for source in task.sources():
            store.get(source)
    if errors:
        raise DataError("\n".join(errors))
    rows = check_data(chosen, store)
    if notes := [row.note for row in rows if row.state == "unreadable"]:
        raise DataError("\n".join(notes))
    return rows


def _built(tasks: Collection[str]) -> list[Any]:
    from physml.config.build import build_task
    from physml.config.compose import compose

    return [build_task(compose([f"task={name}", "+model._target_=none"]).config) for name in tasks]
