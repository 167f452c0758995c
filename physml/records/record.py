"""The files a run leaves, and how they are read: the only thing that tables read. No torch here.

A new record lies in two JSON files: one for the run, one for all that the runs of its setting share. The
setting's file is named by a hash of its content, so it is never rewritten, and two machines are merged by
copying files. `records.pack` joins the files of a folder in runs.jsonl. A packed run keeps its path: `read`
and `exists` look for its own file, which counts first, then for its line.
"""

import fnmatch
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from physml.base import files, opened
from physml.base.errors import InputError, RecordError
from physml.base.paths import display_path, results_roots
from physml.records import schema, shipped
from physml.records.schema import SCHEMA, Record

RUNS = "*-split*-seed*.json"
PACK = "runs.jsonl"
LARGEST = 1 << 30  # bytes of a pack
ADHOC = "adhoc"  # the folder of runs that belong to no table
SETTING = ".setting.json"


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

    def __post_init__(self) -> None:
        if self.folder.startswith("/") or ".." in f"{self.folder}/{self.stem}".split("/"):
            raise InputError(f"a run has no place outside of the folder of runs: {self.relative}.")

    @property
    def stem(self) -> str:
        return stem_of(vars(self))

    @property
    def relative(self) -> Path:
        return Path("runs") / self.folder / f"{self.stem}.json"


# ---------------------------------------------------------------------------- reading


def read(path: Path) -> Record:
    """One record, joined with its setting, with its `path`.

    RecordError if it is unreadable, truncated, foreign or newer.
    """
    content, pack = _found(path)
    version = content.get("schema") if isinstance(content, dict) else None
    if isinstance(content, dict) and "schema" in content and type(version) is not int:
        raise _foreign(path, f"its schema is {version!r}")
    if version not in (None, SCHEMA):
        newer = f"; this physml reads up to {SCHEMA}. Update physml."
        older = ", which is no longer read. Move it away and run again."
        raise RecordError(f"{place_of(path)} has schema {version}{newer if version > SCHEMA else older}")
    record = content if version is None else _joined(path, content, pack)
    if (fault := schema.problem(record)) is not None:
        raise _foreign(path, fault)
    return cast(Record, {**record, "path": str(path)})


def exists(path: Path) -> bool:
    """True if a run has a file of its own or is packed."""
    return path.exists() or path.stem in pack_of(path.parent).runs


def _found(path: Path) -> "tuple[Any, Pack | None]":
    """The content of a run's own file, else of its line in the pack, and the pack that has it."""
    try:
        return _parsed(opened.read_bytes(path), path), None
    except OSError:
        # The pack is looked at last: a run that is just being packed is in it once its file is gone.
        pack = pack_of(path.parent)
        return (pack.runs[path.stem], pack) if path.stem in pack.runs else (json_of(path), None)


def place_of(path: Path) -> str:
    """Place of the content of a run, for people."""
    if path.exists() or path.stem not in pack_of(path.parent).runs:
        return display_path(path)
    return f"{path.stem} in {display_path(path.with_name(PACK))}"


def _foreign(path: Path, what: str) -> RecordError:
    return RecordError(f"{place_of(path)} is not a record of physml: {what}. Move it away.")


def json_of(path: Path) -> Any:
    try:
        return _parsed(opened.read_bytes(path), path)
    except OSError as error:
        raise RecordError(f"{display_path(path)} cannot be read: {error.strerror}.") from error


def _parsed(content: bytes, path: Path, line: str = "") -> Any:
    """line: which of the file, for an error."""
    try:
        return opened.parsed(content.decode("utf-8"))
    except ValueError as error:
        ours = {root.absolute() for root in results_roots()} & set(path.absolute().parents)
        todo = "Delete it and run again" if ours else "Name the file of a run"
        raise RecordError(f"{display_path(path)}{line} is damaged: {error}. {todo}.") from error


def _joined(path: Path, run: dict[str, Any], pack: "Pack | None") -> dict[str, Any]:
    """A run joined with its setting. pack: that has the run."""
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
    shared = (pack.settings.get(file.name) if pack else None) or _setting_of(path, file)
    own = {key: value for key, value in run.items() if key not in ("setting", "check")}
    at = {key: run.get(key) for key in ("split", "seed")}
    joined = {**shared, **own, "config": {**shared["config"], **at}}
    if isinstance(own.get("data"), dict):
        joined["data"] = {**(shared.get("data") or {}), **own["data"]}
    return joined


def _setting_of(path: Path, file: Path) -> dict[str, Any]:
    """The setting of a run at `path`: from its own file, else from the pack."""
    try:
        stamp = file.stat().st_mtime_ns
    except OSError as error:
        if (packed := pack_of(path.parent).settings.get(file.name)) is not None:
            return packed
        raise RecordError(
            f"{place_of(path)} belongs to the setting {display_path(file)}, which cannot be "
            f"read: {error.strerror}. Put that file beside the record again."
        ) from error
    return _setting(file, stamp)


@lru_cache(maxsize=256)
def _setting(path: Path, stamp: int) -> dict[str, Any]:
    """The content of a setting's file, checked against its name. stamp: when the file was last changed."""
    content: dict[str, Any] = json_of(path)
    identity, _, digest = path.name.removesuffix(SETTING).partition("-")
    if not _is_setting(content):
        raise RecordError(f"{display_path(path)} is not a setting of physml. Put the right file there.")
    if content.get("identity") != identity or digest_of(content) != digest:
        raise RecordError(
            f"{display_path(path)} is not what its name says: it has identity "
            f"{content.get('identity')} and hash {digest_of(content)}. Put the right file there."
        )
    return content


def _is_setting(content: Any) -> bool:
    sound = isinstance(content, dict) and not schema.too_deep(content)
    return sound and isinstance(content.get("config"), dict)


@dataclass(frozen=True)
class Pack:
    """The runs of a folder that are packed, by the stems of their paths, and settings by names of files."""

    runs: dict[str, dict[str, Any]]
    settings: dict[str, dict[str, Any]]


def pack_of(folder: Path) -> Pack:
    """The packed runs of a folder. RecordError for a damaged line, or two lines of a run that differ."""
    path = folder / PACK
    try:
        now = path.stat()
    except OSError:
        return _shipped(folder) if shipped.SHIPPED in folder.parents else Pack({}, {})
    return _pack(path, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)


@lru_cache(maxsize=64)
def _pack(path: Path, *_state: int) -> Pack:
    """_state: changes with the file."""
    return _of_lines(opened.read_bytes(path, LARGEST).splitlines(), path)


@lru_cache(maxsize=64)
def _shipped(folder: Path) -> Pack:
    return _of_lines(shipped.lines(folder), folder / PACK)


def _of_lines(lines: list[bytes], path: Path) -> Pack:
    pack = Pack({}, {})
    for number, line in enumerate(lines, 1):
        at = f", line {number},"
        content = _parsed(line, path, at)
        if isinstance(content, dict) and {"setting", "identity", "split", "seed"} <= content.keys():
            if pack.runs.setdefault(stem_of(content), content) != content:
                raise RecordError(
                    f"{display_path(path)}{at} is another record of {stem_of(content)} than a line above. "
                    "Delete one of them."
                )
        elif _is_setting(content):
            name = setting_path(Path(), str(content.get("identity")), digest_of(content)).name
            pack.settings[name] = content
        else:
            raise RecordError(f"{display_path(path)}{at} is no run and no setting. Delete it.")
    return pack


def run_paths(folder: Path) -> list[Path]:
    """The paths of all runs of a folder, of those too that are packed and have no file of their own."""
    own = fnmatch.filter(files.names_in(folder), RUNS)  # before the pack, as in `_found`
    return sorted(
        {folder / name for name in own} | {folder / f"{stem}.json" for stem in pack_of(folder).runs}
    )


def below_runs(path: Path) -> list[str]:
    """The folders of a record below that of all runs, by its path; none where it lies elsewhere."""
    *above, _ = path.parts
    return list(above[len(above) - above[::-1].index("runs") :]) if "runs" in above else []


def runs_below(folder: Path) -> Iterator[Path]:
    """The same of a folder and all folders below it. Read each before the next: a pack is read once then."""
    for subfolder in folders_below(folder):
        yield from run_paths(subfolder)


def folders_below(folder: Path) -> list[Path]:
    """The folder and all below it that have files or shipped runs, sorted."""
    own = [Path(name) for name, _, inside in files.walk(folder) if inside]
    return sorted([*own, *shipped.folders_below(folder)])


def adhoc_folders() -> list[str]:
    """Folders of runs that belong to no table, below results/runs: adhoc/mine, adhoc/lem/adding-lem."""
    roots = [root / "runs" for root in results_roots()]
    folders = [(root, path) for root in roots for at in ("*/", "*/*/") for path in root.glob(f"{ADHOC}/{at}")]
    return [path.relative_to(root).as_posix() for root, path in folders if any(path.glob("*.json*"))]


def records(
    folder: str,
    roots: Iterable[Path] | None = None,
    places: Collection[tuple[int, int]] | None = None,
    noting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Record]:
    """The records of an experiment in all results roots; the first root wins, but a failure hides no result
    of a later one.

    places: pairs of split and seed; None: all. noting: a context in which each is read, so that one that is
    damaged may leave the others.
    """
    by_name: dict[str, Record] = {}
    for root in results_roots() if roots is None else roots:
        for path in run_paths(root / "runs" / folder):
            earlier = by_name.get(path.name)
            if earlier and earlier["status"] != "failed":
                continue
            if places is None or _split_and_seed(path) in places:
                with noting():
                    new = read(path)
                    by_name[path.name] = earlier if earlier and new["status"] == "failed" else new
    return list(by_name.values())


def records_beside(path: Path) -> list[Record]:
    """The records of the folder of a record; of one in a results root, those of all roots."""
    folder = path.absolute().parent
    roots = [root / "runs" for root in results_roots()]
    inside = next((root for root in roots if root in folder.parents), None)
    if inside:
        return records(str(folder.relative_to(inside)))
    return [read(beside) for beside in run_paths(folder)]


def _split_and_seed(path: Path) -> tuple[int, int] | None:
    match = re.search(r"-split(\d+)-seed(\d+)$", path.stem)
    return (int(match[1]), int(match[2])) if match else None


# ---------------------------------------------------------------------------- writing


def write(path: Path, record: Mapping[str, Any]) -> None:
    """The setting's file, if it is not there, then the run's: each whole or not at all."""
    setting, run = split(finite(dict(record)))
    file = setting_path(path.parent, run["identity"], run["setting"])
    try:
        present = json_of(file) == setting
    except RecordError:
        present = False
    if not present:
        files.write_json(file, setting)
    files.write_json(path, checked(run))


def stem_of(run: Mapping[str, Any]) -> str:
    """The name of a run's file, without its ending."""
    return f"{run['identity']}-split{run['split']}-seed{run['seed']}"


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
    return shared, first | {"setting": digest_of(shared)} | {k: v for k, v in run.items() if k not in first}


def checked(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file with its hash, so that a changed digit is noticed; keys as text, as when read."""
    read_back: dict[str, Any] = json.loads(files.json_text(content))
    return {**read_back, "check": check_of(read_back)}


def check_of(content: Mapping[str, Any]) -> str:
    """The hash of the content of a file of a run or search, which has it as `check`."""
    return digest_of({key: value for key, value in content.items() if key != "check"})


def digest_of(setting: Mapping[str, Any]) -> str:
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
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        return {str(item["name"]): {k: v for k, v in item.items() if k != "name"} for item in value}
    return value
