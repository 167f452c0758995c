"""Curves, arrays and scores of a run: the files that lie beside its record. No torch here.

A curve is a gzipped CSV: a row per evaluation, numbers of 6 digits. It is a file of the run until
`physml records pack` joins the curves of a setting into one file, compressed by xz, with the columns split
and seed.
"""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from physml.base import files, opened
from physml.base.errors import RecordError, suggest
from physml.base.paths import display_path
from physml.records.record import finite
from physml.records.schema import Record
from physml.records.shipped import is_shipped

MOST = 150  # rows of a curve, of each kind of row
PACKED = ".curves.csv.xz"
OWN = ".curve.csv.gz"

Row = dict[str, Any]
Table = tuple[list[str], list[dict[str, str]]]  # the names of the columns, and the rows
Runs = dict[tuple[int, int], list[dict[str, str]]]  # rows by split and seed


def read_scores(records: Iterable[Record], metric: str) -> np.ndarray:
    """The score of each run with its selected weights (n,). RecordError where one has none of that name."""
    part, _, name = metric.partition("/")
    values = []
    for record in records:
        scores = (record["metrics"]["best"] or {}).get(part, {})
        if (score := scores.get(name)) is None:
            raise RecordError(
                f"{display_path(Path(record['path']))} has no {metric}. {suggest(name, scores)}"
            )
        values.append(float(score))
    return np.array(values)


def read_array(record: Record, name: str) -> np.ndarray:
    """One array, flat, from the .npz file of a record. RecordError if it is missing or damaged."""
    path = _beside(record, record.get("arrays"), "arrays")
    with _readable(path), opened.reading(path) as file, np.load(file, allow_pickle=False) as arrays:
        most = opened.SPARE + opened.RATIO * os.fstat(file.fileno()).st_size
        if sum(member.file_size for member in arrays.zip.infolist()) > most:
            raise ValueError(f"it unpacks to more than {most} bytes")
        if name not in arrays:
            raise RecordError(f"{display_path(path)} has no array {name}. {suggest(name, arrays.files)}")
        return np.asarray(arrays[name]).ravel()


def _beside(record: Record, name: str | None, key: str) -> Path:
    """A file that a record names, which lies beside it."""
    if not name:
        hint = ". None came with physml; --force trains the run again" if is_shipped(record) else ""
        raise RecordError(f"the record {display_path(Path(record['path']))} has no {key} file{hint}")
    return Path(record["path"]).parent / Path(name).name


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A RecordError in place of what reading a file raises where it is missing, damaged or no such file."""
    faults = (OSError, EOFError, MemoryError, ValueError, KeyError, TypeError, AttributeError)
    try:
        yield
    except (*faults, csv.Error, zlib.error, zipfile.BadZipFile) as error:
        raise RecordError(f"{display_path(path)} can't be read: {error}") from error


# ---------------------------------------------------------------------------- reading a curve


def read_curve(record: Record, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one metric from the curve of a record; rows without it are left out.

    Shapes: (n,), (n,). RecordError if the file is missing or damaged, or has no such column.
    """
    path, (heads, rows) = curve_of(record)
    if metric not in heads:
        raise RecordError(f"{display_path(path)} has no column {metric}. {suggest(metric, heads)}")
    with _readable(path):
        pairs = [(float(row["step"]), float(row[metric])) for row in rows if row[metric]]
    table = np.array([pair for pair in pairs if math.isfinite(pair[1])])
    if not len(table):
        raise RecordError(f"{display_path(path)} has no finite value of {metric}")
    return table[:, 0], table[:, 1]


def curve_of(record: Record) -> tuple[Path, Table]:
    """The curve of a run and the file that has it: the run's own, else one that was packed."""
    own = _beside(record, record.get("curve"), "curve")
    if not own.exists():
        for path in packs(own.parent, record["identity"]):
            heads, runs = _packed(path, path.stat().st_mtime_ns)
            if rows := runs.get((record["split"], record["seed"])):
                return path, (heads, rows)
    return own, read_table(own)


def packs(folder: Path, identity: str) -> list[Path]:
    """The files of packed curves of a setting: one, or several where two machines were merged."""
    return sorted(folder.glob(f"{identity}-*{PACKED}"))


def read_table(path: Path) -> Table:
    """A compressed CSV. RecordError if it is missing or damaged."""
    with _readable(path):
        content = opened.inflated(opened.read_bytes(path))
        reader = csv.DictReader(io.StringIO(content.decode(), newline=""))
        return list(reader.fieldnames or ()), list(reader)


@lru_cache(maxsize=4)
def _packed(path: Path, stamp: int) -> tuple[list[str], Runs]:
    """The curves of a pack by split and seed. stamp: when the file was last changed."""
    heads, rows = read_table(path)
    runs: Runs = {}
    try:
        for row in rows:
            runs.setdefault((int(row.pop("split")), int(row.pop("seed"))), []).append(row)
    except (KeyError, ValueError, TypeError) as error:
        raise RecordError(f"{display_path(path)} can't be read: a row without split or seed") from error
    return [head for head in heads if head not in ("split", "seed")], runs


# ---------------------------------------------------------------------------- writing


def of_part(row: Row, part: str) -> dict[str, float]:
    return {key.partition("/")[2]: value for key, value in row.items() if key.startswith(f"{part}/")}


def line(row: Row) -> str:
    """A row for metrics.jsonl."""
    return json.dumps(finite(row)) + "\n"


def curve_csv(rows: Sequence[Row], selected: int | None = None) -> bytes:
    """Rows as gzipped CSV, thinned; the same rows, the same bytes. selected: the step of a row to keep."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return gzip.compress(_csv(names, thinned(rows, selected)), mtime=0)


def thinned(rows: Sequence[Row], selected: int | None = None) -> list[Row]:
    """At most MOST rows, evenly spaced, with the first, the last and the selected one.

    Rows that lack a column, such as a score on test, are thinned apart from those that have it, so that each
    column keeps as many values as it can.
    """
    kinds: dict[tuple[str, ...], list[int]] = {}
    for i, row in enumerate(rows):
        kinds.setdefault(tuple(k for k, value in row.items() if value not in (None, "")), []).append(i)
    kept: set[int] = set()
    for indices in kinds.values():
        if len(indices) <= MOST:
            kept.update(indices)
            continue
        kept.update(indices[i] for i in np.linspace(0, len(indices) - 1, MOST - 1).round().astype(int))
        kept.update(i for i in indices if selected is not None and str(rows[i].get("step")) == str(selected))
    return [rows[i] for i in sorted(kept)]


def _csv(names: Sequence[str], rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _digits(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _digits(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _rounded(path: Path) -> Table:
    """The curve of a run, its numbers to 6 digits. RecordError where something is no number."""
    heads, rows = read_table(path)
    with _readable(path):
        return heads, [{name: _number(text) for name, text in row.items()} for row in rows]


def _number(text: str) -> str:
    whole = not text or text.removeprefix("-").isdecimal()
    return text if whole else _digits(float(text))


def _filled(rows: Iterable[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if value != ""} for row in rows]


_NAME = re.compile(rf"(\w+)-split(\d+)-seed(\d+){re.escape(OWN)}")


def pack(folder: Path) -> int:
    """Join the curves of each setting in a folder into one file; how many files of runs went into it.

    The joined file is whole before any other is removed. RecordError, and nothing is removed, where two packs
    disagree on a run.
    """
    own: dict[str, dict[Path, tuple[int, int]]] = {}
    for path in sorted(folder.glob(f"*{OWN}")):
        if match := _NAME.fullmatch(path.name):
            own.setdefault(match[1], {})[path] = int(match[2]), int(match[3])
    old = {path.name.partition("-")[0] for path in folder.glob(f"*-*{PACKED}")}
    return sum(_pack_one(folder, identity, own.get(identity, {})) for identity in sorted({*own, *old}))


def _pack_one(folder: Path, identity: str, own: dict[Path, tuple[int, int]]) -> int:
    """own: the files of runs, with their splits and seeds."""
    old = packs(folder, identity)  # several where two machines were merged
    if not own and len(old) == 1:
        return 0
    heads: dict[str, None] = {}
    runs: Runs = {}
    source: dict[tuple[int, int], Path] = {}
    for path in old:
        names, packed = _packed(path, path.stat().st_mtime_ns)
        heads |= dict.fromkeys(names)
        for at, rows in packed.items():
            if _filled(runs.setdefault(at, rows)) != _filled(rows):  # a pack may have more columns
                raise RecordError(
                    f"{display_path(source[at])} and {display_path(path)} have different curves of "
                    f"split {at[0]} seed {at[1]}. Delete the file that is wrong."
                )
            source[at] = path
    before = {path: opened.read_bytes(path) for path in own}
    for path, at in own.items():  # newer than what was packed
        names, runs[at] = _rounded(path)
        heads |= dict.fromkeys(names)
    ordered = sorted(runs.items())
    joined = [{"split": str(a), "seed": str(b), **row} for (a, b), rows in ordered for row in rows]
    content = _csv(["split", "seed", *heads], joined)
    packed_path = folder / f"{identity}-{hashlib.sha256(content).hexdigest()[:8]}{PACKED}"
    compressed = opened.lzma_module().compress(content)
    files.write(packed_path, lambda file: file.write(compressed))
    for path in own:
        if opened.read_bytes(path) == before[path]:  # else a run has just been made anew
            path.unlink()
    for path in old:
        if path != packed_path:
            path.unlink()
    return len(own)


def own_path(record_path: Path) -> Path:
    """Path of a run's curve: beside its record."""
    return record_path.with_name(record_path.stem + OWN)
