"""runs.csv: a row per run, made from the records of a results root, for pandas and other readers."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from physml.base import files
from physml.base.text import csv_cell
from physml.records import record
from physml.records.schema import Record

NAME = "runs.csv"

# Column -> the keys that lead to its value in a record. Columns such as best/test/rmse follow.
COLUMNS: dict[str, tuple[str, ...]] = {
    **{key: (key,) for key in ("experiment", "identity", "split", "seed", "status", "reason", "protocol")},
    **{key: (key,) for key in ("precision", "backend", "short")},
    "provenance": ("provenance", "kind"),
    "data": ("data", "kind"),
    "fingerprint": ("data", "fingerprint"),
    **{f"selected_{key}": ("selected", key) for key in ("step", "epoch")},
    **{key: (key,) for key in ("n_steps", "n_epochs", "n_parameters", "n_parameters_printed")},
    **{key: ("cost", key) for key in ("train_s", "cpu_s", "eval_s", "ms_per_step", "peak_memory_mib")},
    **{key: ("code", key) for key in ("commit", "dirty", "version")},
    **{key: ("machine", key) for key in ("device", "cpu", "torch")},
    **{key: (key,) for key in ("started", "ended")},
}


def run_paths(root: Path) -> Iterator[Path]:
    """The paths of all runs of tables below a results root, in a fixed order."""
    own = root / "runs" / record.ADHOC
    return (path for path in record.runs_below(root / "runs") if own not in path.parents)


def runs_csv(*roots: Path) -> str:
    """The content of runs.csv, by results roots; of a run in two of them the first counts."""
    paths = {path.relative_to(root): path for root in reversed(roots) for path in run_paths(root)}
    rows = [_row(record.read(path)) for path in paths.values()]
    rows.sort(key=lambda row: (row["experiment"], row["identity"], row["split"], row["seed"]))
    metrics = sorted({name for row in rows for name in row} - COLUMNS.keys())
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, *metrics], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def write_runs_csv(root: Path) -> Path:
    files.write_text(root / NAME, runs_csv(root))
    return root / NAME


def _row(record: Record) -> dict[str, Any]:
    metrics = {
        f"{which}/{part}/{name}": value
        for which, parts in (("best", record["metrics"]["best"]), ("last", record["metrics"]["last"]))
        for part, scores in (parts or {}).items()
        for name, value in scores.items()
    }
    return {column: _value(record, keys) for column, keys in COLUMNS.items()} | metrics


def _value(record: Record, keys: tuple[str, ...]) -> Any:
    value: Any = record
    for key in keys:
        value = (value or {}).get(key)
    return value
