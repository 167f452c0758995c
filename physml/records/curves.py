"""Curves, arrays and scores of a run: the files that lie beside its record. No torch here."""

import csv
import gzip
import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from physml.errors import RecordError, suggest
from physml.paths import display_path
from physml.records.record import Record, finite


def read_scores(records: Iterable[Record], metric: str) -> np.ndarray:
    """The score of each run with its selected weights (n,). RecordError where one has none of that name."""
    part, _, name = metric.partition("/")
    values = []
    for record in records:
        scores = record.get("metrics", {}).get("best", {}).get(part, {})
        if scores.get(name) is None:
            raise RecordError(
                f"{display_path(Path(record['path']))} has no {metric}. {suggest(name, scores)}"
            )
        values.append(float(scores[name]))
    return np.array(values)


def _beside(record: Record, key: str) -> Path:
    """The file that a record names under `key`, which lies beside it."""
    if not record.get(key):
        raise RecordError(f"the record {display_path(Path(record['path']))} has no {key} file")
    return Path(record["path"]).parent / Path(record[key]).name


def read_curve(record: Record, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one metric from the curve_csv file of a record; rows without it are left out.

    Shapes: (n,), (n,). RecordError if the file is missing or damaged, or has no such column.
    """
    path = _beside(record, "curve_csv")
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            heads = list(reader.fieldnames or ())
            if metric not in heads:
                raise RecordError(f"{display_path(path)} has no column {metric}. {suggest(metric, heads)}")
            rows = [(float(row["step"]), float(row[metric])) for row in reader if row[metric]]
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{display_path(path)} can't be read: {error}") from error
    if not rows:
        raise RecordError(f"{display_path(path)} has no value of {metric}")
    table = np.array([row for row in rows if math.isfinite(row[1])])
    return table[:, 0], table[:, 1]


def read_array(record: Record, name: str) -> np.ndarray:
    """One array, flat, from the .npz file of a record. RecordError if it is missing or damaged."""
    path = _beside(record, "arrays")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if name not in arrays:
                raise RecordError(f"{display_path(path)} has no array {name}. {suggest(name, arrays.files)}")
            return np.asarray(arrays[name]).ravel()
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{display_path(path)} can't be read: {error}") from error


Row = dict[str, Any]


def of_part(row: Row, part: str) -> dict[str, float]:
    return {key.partition("/")[2]: value for key, value in row.items() if key.startswith(f"{part}/")}


def line(row: Row) -> str:
    """A row for metrics.jsonl."""
    return json.dumps(finite(row)) + "\n"


def curve_csv(rows: list[Row]) -> bytes:
    """Rows as gzipped CSV; the same rows give the same bytes."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return gzip.compress(text.getvalue().encode(), mtime=0)
