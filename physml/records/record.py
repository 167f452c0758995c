"""The files a run leaves, and how they are read: the only thing that tables read. No torch here.

A record lies in two JSON files: one for the run, one for all that the runs of its setting share. The
setting's file is named by a hash of its content, so it is never rewritten, and two machines are merged by
copying files.
"""

import fnmatch
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

from physml.base import files, opened
from physml.base.errors import RecordError
from physml.base.paths import display_path, results_roots
from physml.records import schema
from physml.records.schema import SCHEMA, Record

RUNS = "*-split*-seed*.json"


@dataclass(frozen=True)
class Place:
    """Place of one run's record below a results root.

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


# ---------------------------------------------------------------------------- reading


def read(path: Path) -> Record:
    """One record, joined with its setting. RecordError if it is unreadable, truncated, foreign or newer."""
    return read_with_content(path)[1]


def schema_of(path: Path) -> int:
    """The schema that a record is written in."""
    return int(read_with_content(path)[0].get("schema") or 0)


def read_with_content(path: Path) -> tuple[dict[str, Any], Record]:
    """The content of a run's file, and the record."""
    content = json_of(path)
    record, setting = _from_content(path, content)
    sound = setting.sound_with(content) if setting else schema.NONE
    if (said := schema.problem(record, sound)) is not None:
        raise _foreign(path, said)
    return content, cast(Record, record)


def from_content(path: Path, content: Any) -> dict[str, Any]:
    """The record of a run from the content of its file, joined with its setting; the keys are not checked."""
    return _from_content(path, content)[0]


def _from_content(path: Path, content: Any) -> "tuple[dict[str, Any], Setting | None]":
    found = content.get("schema") if isinstance(content, dict) else None
    if isinstance(content, dict) and "schema" in content and type(found) is not int:
        raise _foreign(path, f"its schema is {found!r}")
    if isinstance(found, int) and found > SCHEMA:
        raise RecordError(
            f"{display_path(path)} has schema {found}; this physml reads up to {SCHEMA}. Update physml."
        )
    if found is None:
        return cast(dict[str, Any], content), None
    return _joined(path, content) if found == SCHEMA else (schema.upgraded(content), None)


def _foreign(path: Path, what: str) -> RecordError:
    return RecordError(f"{display_path(path)} is not a record of physml: {what}. Move it away.")


def json_of(path: Path) -> Any:
    try:
        return opened.read_json(path, opened.LARGE)
    except OSError as error:
        raise RecordError(f"{display_path(path)} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # no JSON, no UTF-8, a number of thousands of digits
        raise RecordError(f"{display_path(path)} is damaged: {error}. Delete it and run again.") from error


@dataclass(frozen=True)
class Setting:
    """The content of a setting's file."""

    content: dict[str, Any]

    @cached_property
    def sound(self) -> frozenset[str]:
        return schema.sound_keys(self.content)

    def sound_with(self, run: dict[str, Any]) -> frozenset[str]:
        """The keys of the record of a run that need no check beside that of the setting, made once."""
        sound = self.sound - run.keys()
        # The keys of data are those of both, and none is required.
        return sound | (self.sound & schema.sound_keys({"data": run["data"]})) if "data" in run else sound


def _joined(path: Path, run: dict[str, Any]) -> tuple[dict[str, Any], Setting]:
    identity, digest = run.get("identity"), run.get("setting")
    for key, value in {"identity": identity, "setting": digest}.items():
        if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{8}", value):
            raise _foreign(path, f"its {key} is {value!r}" if key in run else f"it has no {key}")
    if "check" in run and run["check"] != check_of(run):
        raise RecordError(
            f"{display_path(path)} is damaged: its content has the hash {check_of(run)}, not {run['check']}. "
            "Put the right file there, or delete it and run again."
        )
    file = setting_path(path.parent, str(identity), str(digest))
    try:
        stamp = file.stat().st_mtime_ns
    except OSError as error:
        raise RecordError(
            f"{display_path(path)} belongs to the setting {display_path(file)}, which cannot be "
            f"read: {error.strerror}. Put that file beside the record again."
        ) from error
    setting = _setting(file, stamp)
    shared = setting.content
    own = {key: value for key, value in run.items() if key not in ("setting", "check")}
    at = {key: run.get(key) for key in ("split", "seed")}
    joined = {**shared, **own, "config": {**shared["config"], **at}}
    if isinstance(own.get("data"), dict):
        joined["data"] = {**(shared.get("data") or {}), **own["data"]}
    return joined, setting


@lru_cache(maxsize=256)
def _setting(path: Path, stamp: int) -> Setting:
    """The content of a setting's file, checked against its name. stamp: when the file was last changed."""
    content = json_of(path)
    identity, _, digest = path.name.removesuffix(SETTING).partition("-")
    sound = isinstance(content, dict) and not schema.too_deep(content)
    if not sound or not isinstance(content.get("config"), dict):
        raise RecordError(f"{display_path(path)} is not a setting of physml. Put the right file there.")
    if content.get("identity") != identity or _digest(content) != digest:
        raise RecordError(
            f"{display_path(path)} is not what its name says: it has identity "
            f"{content.get('identity')} and hash {_digest(content)}. Put the right file there."
        )
    return Setting(content)


def records(folder: str, roots: Iterable[Path] | None = None) -> list[Record]:
    """All records of an experiment in all results roots; the first root wins. Each gets a `path`."""
    found: dict[str, Record] = {}
    for root in results_roots() if roots is None else roots:
        place = root / "runs" / folder
        for name in fnmatch.filter(files.names_in(place), RUNS):
            if name not in found:
                found[name] = {**read(place / name), "path": str(place / name)}
    return list(found.values())


# ---------------------------------------------------------------------------- writing

SETTING = ".setting.json"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """The setting's file, if it is not there, then the run's: each whole or not at all."""
    setting, run = split(finite(dict(record)))
    file = setting_path(path.parent, run["identity"], run["setting"])
    try:
        there = json_of(file) == setting
    except RecordError:
        there = False
    if not there:
        files.write_json(file, setting)
    run = json.loads(files.json_text(run))  # its keys as text, as they are read
    files.write_json(path, run | {"check": check_of(run)})


def setting_name(content: Mapping[str, Any]) -> str:
    """The name of the setting's file by the content of the run's; empty where the run's has all."""
    if content.get("schema") != SCHEMA:
        return ""
    return setting_path(Path(), content["identity"], content["setting"]).name


def setting_path(folder: Path, identity: str, digest: str) -> Path:
    return folder / f"{identity}-{digest}{SETTING}"


def split(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of the setting's file, and of the run's, which names the other by its hash."""
    config, data = dict(record["config"]), record.get("data")
    for key in ("split", "seed"):
        config.pop(key, None)
    shared: dict[str, Any] = {key: record[key] for key in schema.SHARED if key in record} | {"config": config}
    run = {key: value for key, value in record.items() if key not in (*schema.SHARED, "path", "skipped")}
    if isinstance(data, dict):
        shared["data"] = {key: value for key, value in data.items() if key != "sizes"}
        run |= {"data": {"sizes": data["sizes"]}} if "sizes" in data else {}
    first = {"schema": SCHEMA, "experiment": record["experiment"], "identity": record["identity"]}
    return shared, first | {"setting": _digest(shared)} | {k: v for k, v in run.items() if k not in first}


def check_of(run: Mapping[str, Any]) -> str:
    """The hash of a run's content, which its file has as `check`, so that a changed digit is noticed."""
    return _digest({key: value for key, value in run.items() if key != "check"})


def _digest(setting: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:8]


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
    """Leaves in which two records differ: (key, in a, in b). Lists of named things are compared by name."""
    a, b = _by_name(a), _by_name(b)
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted({*a, *b})
        return [d for k in keys for d in differences(a.get(k), b.get(k), f"{where}.{k}" if where else str(k))]
    return [] if a == b else [(where, a, b)]


def _by_name(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(one, dict) and "name" in one for one in value):
        return {str(one["name"]): {k: v for k, v in one.items() if k != "name"} for one in value}
    return value
