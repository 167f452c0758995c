"""`physml data list | get | check`: the data of the tasks, where they lie and whether they are sound."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from physml.data import fetch
from physml.data.store import Generated, Store, read_arrays
from physml.data.task import Task
from physml.errors import DataError

State = Literal["present", "absent", "sound", "damaged", "drawn when used"]


@dataclass(frozen=True)
class DataRow:
    """One data set of one task. `size` in bytes, as it lies on disk or as published; None: not known."""

    task: str
    name: str
    kind: Literal["generated", "file", "none"]
    state: State
    size: int | None
    path: Path | None
    note: str = ""


def list_data(tasks: Mapping[str, Task], store: Store) -> list[DataRow]:
    """What is there, by name alone: nothing is read, downloaded or generated."""
    rows = []
    for task_name, task in tasks.items():
        sources = task.sources()
        if not sources:
            rows.append(DataRow(task_name, task_name, "none", "drawn when used", None, None))
        for source in sources:
            path = _path(source, store)
            there = path.is_file()
            size = path.stat().st_size if there else None
            if isinstance(source, Generated):
                note = ", ".join(f"{k} {_short(v)}" for k, v in source.key.items())
                kind: Literal["generated", "file"] = "generated"
            else:
                note, kind = f"{source.purpose} ({source.licence})", "file"
                size = size if there else source.size
            state: State = "present" if there else "absent"
            rows.append(DataRow(task_name, source.name, kind, state, size, path, note))
    return rows


def check_data(tasks: Mapping[str, Task], store: Store) -> list[DataRow]:
    """As `list_data`, and what is there is read and compared with its checksum: `sound` or `damaged`."""
    return [
        _checked(row, source, store)
        for task_name, task in tasks.items()
        for row, source in zip(list_data({task_name: task}, store), task.sources() or (None,), strict=True)
    ]


def get_data(tasks: Mapping[str, Task], store: Store) -> list[DataRow]:
    """Generate or download what is missing, then check everything.

    Raises DataError where a file cannot be had; generated data that cannot be written stay `absent`.
    """
    for task in tasks.values():
        for source in task.sources():
            if isinstance(source, Generated):
                store.get(source)
            else:
                fetch.get(source, store)
    return check_data(tasks, store)


def _path(source: Generated | fetch.DataFile, store: Store) -> Path:
    if isinstance(source, Generated):
        return store.path(source)
    return fetch.find(source, store) or next(fetch.places(source, store))


def _short(value: object) -> str:
    return "/".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _checked(row: DataRow, source: Generated | fetch.DataFile | None, store: Store) -> DataRow:
    if source is None or row.state == "absent":
        return row
    try:
        if isinstance(source, Generated):
            read_arrays(store.path(source), source.asked)
        else:
            fetch.verified(source, store)
    except (DataError, OSError) as error:
        return DataRow(row.task, row.name, row.kind, "damaged", row.size, row.path, str(error))
    return DataRow(row.task, row.name, row.kind, "sound", row.size, row.path, row.note)
