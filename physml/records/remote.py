"""Finished records to and from an object store or another machine, by any URL that fsspec knows.

A store is a copy and no queue: locks and checkpoints stay on a shared file system. What is there already is
never overwritten. What comes from a store is read and checked before it takes its place.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from physml.base import files
from physml.base.errors import DataError, RecordError
from physml.records import record
from physml.records.export import ADHOC

SUFFIXES = (".json", ".gz", ".xz", ".npz")
LARGEST = 256 * 2**20  # bytes of one file that is taken from a store


@dataclass
class Copied:
    """Result for each file. kept: another one is there already, and stays. refused: file -> why."""

    new: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def push(runs: Path, url: str) -> Copied:
    """Copy the records of tables, with their curves, to a store."""
    system, root = _store(url)
    made = Copied()
    for path in _files(runs):
        name = path.relative_to(runs).as_posix()
        target = f"{root}/{name}"
        if system.exists(target):
            same = system.size(target) == path.stat().st_size and system.cat_file(target) == path.read_bytes()
            (made.same if same else made.kept).append(name)
            continue
        system.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
        system.pipe_file(f"{target}.part", path.read_bytes())
        system.mv(f"{target}.part", target)
        made.new.append(name)
    return made


def pull(url: str, runs: Path) -> Copied:
    """Copy what is not here from a store. A record that cannot be read is refused, with its reason."""
    system, root = _store(url)
    made = Copied()
    runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=runs.parent, prefix=".pull-") as temporary:
        waiting = Path(temporary)
        for name, size in _listed(system, root):
            if (why := _strange(name, size)) is not None:
                made.refused[name] = why
                continue
            content = system.cat_file(f"{root}/{name}")
            here = runs / name
            if here.exists():
                (made.same if here.read_bytes() == content else made.kept).append(name)
                shutil.copyfile(here, _made(waiting / name))  # a setting that records beside it refer to
                continue
            _made(waiting / name).write_bytes(content)
            made.new.append(name)
        _refuse_unreadable(waiting, made)
        for name in made.new:
            content = (waiting / name).read_bytes()
            with files.writing(_made(runs / name)) as part:
                part.write_bytes(content)
    return made


def _refuse_unreadable(waiting: Path, made: Copied) -> None:
    for path in waiting.rglob(record.RUNS):
        name = path.relative_to(waiting).as_posix()
        if name not in made.new:
            continue
        try:
            record.read(path)
        except RecordError as error:
            made.new.remove(name)
            made.refused[name] = str(error).replace(f"{waiting}/", "")


def _store(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise DataError(f"{url} is no store: {error}. Name a URL such as s3://bucket/physml.") from error
    return system, root.rstrip("/")


def _files(runs: Path) -> Iterator[Path]:
    """Settings before the records that refer to them."""
    found = [path for path in runs.rglob("*") if path.is_file() and path.suffix in SUFFIXES]
    kept = [path for path in found if path.relative_to(runs).parts[0] != ADHOC]
    yield from sorted(kept, key=lambda path: (path.match(record.RUNS), path))


def _listed(system: Any, root: str) -> list[tuple[str, int]]:
    try:
        found = system.find(root, detail=True)
    except OSError as error:
        raise DataError(f"{root} cannot be listed: {error}.") from error
    begin = len(root) + 1
    return [(name[begin:], int(one.get("size") or 0)) for name, one in sorted(found.items())]


def _strange(name: str, size: int) -> str | None:
    """Why a name of a store has no place below results/runs."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or len(path.parts) < 2:
        return "is no path of a record"
    if path.suffix not in SUFFIXES:
        return "is no file of a record"
    return f"has {size} bytes, more than {LARGEST}" if size > LARGEST else None


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
