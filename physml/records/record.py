"""The JSON file a run leaves: the only thing that tables read. No torch here."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml import files
from physml.errors import RecordError
from physml.paths import display_path, results_roots

SCHEMA = 1
REQUIRED = ("schema", "experiment", "identity", "split", "seed", "status", "metrics", "config")


@dataclass(frozen=True)
class Place:
    """Where the record of one run lies below a results root.

    Example:
        >>> Place("lem/fitzhugh_nagumo-lem", "88829d05", split=0, seed=3).relative
        PosixPath('runs/lem/fitzhugh_nagumo-lem/88829d05-split0-seed3.json')
    """

    folder: str
    identity: str
    split: int
    seed: int

    @property
    def stem(self) -> str:
        return f"{self.identity}-split{self.split}-seed{self.seed}"

    @property
    def relative(self) -> Path:
        return Path("runs") / self.folder / f"{self.stem}.json"


def read(path: Path) -> dict[str, Any]:
    """One record. RecordError if the file is unreadable, truncated, foreign or of a newer schema."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{display_path(path)} cannot be read: {error.strerror}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{display_path(path)} is damaged: {error}. Delete it and run again.") from error
    missing = [key for key in REQUIRED if key not in record] if isinstance(record, dict) else list(REQUIRED)
    if missing or not isinstance(record["schema"], int):
        what = f"it has no {', '.join(missing)}" if missing else f"its schema is {record['schema']!r}"
        raise RecordError(f"{display_path(path)} is not a record of physml: {what}. Move it away.")
    if record["schema"] > SCHEMA:
        raise RecordError(
            f"{display_path(path)} has schema {record['schema']}; this physml reads up to {SCHEMA}. "
            "Update physml."
        )
    return record


def write(path: Path, record: dict[str, Any]) -> None:
    files.write_json(path, finite(record))


def records(folder: str, roots: Iterable[Path] | None = None) -> list[dict[str, Any]]:
    """All records of an experiment in all results roots; the first root wins. Each gets a `path`."""
    found: dict[str, dict[str, Any]] = {}
    for root in results_roots() if roots is None else roots:
        for path in sorted((root / "runs" / folder).glob("*-split*-seed*.json")):
            if path.name not in found:
                found[path.name] = {**read(path), "path": str(path)}
    return list(found.values())


def finite(value: Any) -> Any:
    """NaN and infinities as null, for JSON has neither."""
    match value:
        case dict():
            return {k: finite(v) for k, v in value.items()}
        case list() | tuple():
            return [finite(v) for v in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def differences(a: Any, b: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves in which two records differ: (key, in a, in b)."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted({*a, *b})
        return [d for k in keys for d in differences(a.get(k), b.get(k), f"{where}.{k}" if where else str(k))]
    return [] if a == b else [(where, a, b)]


Record = Mapping[str, Any]
