"""The file that a name of a config means: of conf/, of a folder of one's own, or at a path. YAML alone.

A name, `lem`, means the file of its group in conf/ or in $PHYSML_CONF, a folder with the same groups. A path
means a table, `./mine.yaml`, or a row of a study, `./study.yaml:row`. In a file it counts from its folder.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from physml.base.errors import ConfigError, suggest
from physml.base.files import cached_by_file
from physml.base.paths import CONF, display_path, expanded, own_conf
from physml.config.load import read_yaml

T = TypeVar("T")
YAML = (".yaml", ".yml")
# An id stands in commands of a shell, names of files and pages.
ID = re.compile(r"\w[\w.-]*", re.ASCII)
RENAME = "Its file must be named by letters, digits and `_.-` alone. Rename it."
_ROW = re.compile(r"(.+\.ya?ml):([^/:]*)", re.DOTALL)
_NAMING = ("experiment", "table")  # fields of tables and figures that hold a name


# ---------------------------------------------------------------------------- names


def folders() -> tuple[Path, ...]:
    """conf/, and the folder of one's own before it."""
    own = own_conf()
    return (CONF,) if own is None else _with_own(own, CONF)


@cache
def _with_own(own: Path, conf: Path) -> tuple[Path, ...]:
    if not own.is_dir():
        raise ConfigError(f"PHYSML_CONF={own} is no folder. Make it, or unset PHYSML_CONF.")
    groups = sorted(path.name for path in conf.iterdir() if path.is_dir())
    if not any((own / group).is_dir() for group in groups):
        raise ConfigError(f"PHYSML_CONF={own} needs a folder such as study or table; it may have {groups}.")
    return (conf,) if own.samefile(conf) else (own, conf)


def files(group: str) -> dict[str, Path]:
    """Every file of a group by its name. ConfigError for one of one's own with the name of a shipped one."""
    by_name: dict[str, Path] = {}
    for folder in (root / group for root in folders()):
        for path in sorted(folder.rglob("*.yaml")):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if not is_id(name):
                raise ConfigError(f"{str(path)!r} has no name for a {group}. {RENAME}")
            if name in by_name:
                raise _taken(group, name, by_name[name])
            by_name[name] = path
    return by_name


def find(group: str, name: str) -> Path | None:
    """The file of a name, without a look at all files; None where there is none."""
    if not is_id(name):
        return None
    paths = [root / group / f"{name}.yaml" for root in folders()]
    existing = [path for path in paths if is_file(path)]
    if len(existing) > 1:
        raise _taken(group, name, existing[0])
    return existing[0] if existing else None


def other_kind(name: str) -> str:
    """A hint where a name is that of something else than was asked for; else empty."""
    uses = {"table": "physml table", "figure": "physml figure", "model": "model=", "task": "task="}
    for group, use in uses.items():
        if find(group, name):
            return f"{name} is a {group}: {use}{'' if use.endswith('=') else ' '}{name}."
    return ""


def is_id(name: str) -> bool:
    """True if each part of a name, as of lem/fitzhugh_nagumo, is an id."""
    return all(map(ID.fullmatch, name.split("/")))


def _taken(group: str, name: str, own: Path) -> ConfigError:
    return ConfigError(f"{own}: physml has a {group} named {name} already. Rename the file.")


def is_file(path: Path) -> bool:
    """True if the file exists; False for a name that no file can have."""
    with suppress(OSError, ValueError):
        return path.is_file()
    return False


def is_own(path: Path) -> bool:
    """True if a file lies outside conf/."""
    return CONF not in path.parents


# ---------------------------------------------------------------------------- paths


def is_path(name: str) -> bool:
    """True if a name is a path, `./mine.yaml` or `./study.yaml:row`."""
    return name.endswith(YAML) or _ROW.fullmatch(name) is not None


def row_at(name: str) -> tuple[str, str] | None:
    """Study and row of `./study.yaml:row`; None for anything else."""
    match = _ROW.fullmatch(name)
    return (match[1], match[2]) if match else None


def absolute(name: str, folder: Path | None = None) -> str:
    """A path as it counts from a folder, by default the working folder; any other name as it is."""
    if not is_path(name):
        return name
    return _spelled((folder or Path.cwd()) / expanded(name.strip("'\"")))


def _spelled(path: Path) -> str:
    """A path in one spelling, so that a file is known again; the name of the file itself is kept."""
    if not str(path).isprintable():
        raise ConfigError(f"a path must be of printable characters; got {str(path)!r}.")
    if not ID.fullmatch(path.name.partition(":")[0]):
        raise ConfigError(f"{str(path)!r} is no name of a config. {RENAME}")
    return str(Path(os.path.realpath(path.parent)) / path.name)


def shown(name: str) -> str:
    """A path without its folder, as records have it: a moved file stays the same setting."""
    return f"./{Path(name).name}" if is_path(name) else name


def flat(name: str) -> str:
    """A name as part of a file's name: of a path the stem, `study-row` for a row."""
    if row := row_at(name):
        return f"{Path(row[0]).stem}-{row[1]}"
    return Path(name).stem if is_path(name) else name.replace("/", "-")


def at_path(group: str, name: str) -> Path:
    """The table or figure at a path. ConfigError where there is none, or where its id is taken."""
    path = Path(absolute(name))
    if not is_file(path):
        known = sorted(str(file.name) for file in path.parent.glob("*.yaml") if is_file(file))
        raise ConfigError(f"there is no {group} file {path}. {suggest(path.name, known)}")
    if (kind := kind_at(path)) not in ("", group):
        use = "Name a table, or a row, as" if kind == "study" else f"Use physml {kind}"
        raise ConfigError(f"{name} is a {kind}. {use} {name}{':ROW' if kind == 'study' else ''}.")
    same = find(group, path.stem)
    if same and not same.samefile(path):
        raise _taken(group, path.stem, path)
    return path


def kind_at(path: Path) -> str:
    """Study, table or figure, by the content of a file; empty where it says neither."""
    data = read_yaml(path) if is_file(path) else {}
    if "rows" in data:
        return "study" if isinstance(data["rows"], dict) else "table"
    return "figure" if {"panels", "function", "table"} & data.keys() else ""


def placed(spec: T, folder: Path) -> T:
    """A table or figure whose paths of experiments count from its folder."""
    if isinstance(spec, tuple):
        return tuple(placed(part, folder) for part in spec)  # type: ignore[return-value]
    if isinstance(spec, dict):
        return {key: placed(part, folder) for key, part in spec.items()}  # type: ignore[return-value]
    if not dataclasses.is_dataclass(spec) or isinstance(spec, type):
        return spec
    changed = {}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        is_name = field.name in _NAMING and isinstance(value, str)
        other = absolute(value, folder) if is_name else placed(value, folder)
        if other != value:
            changed[field.name] = other
    return dataclasses.replace(spec, **changed) if changed else spec


# ---------------------------------------------------------------------------- contents


@cached_by_file
def content(path: Path) -> dict[str, Any]:
    """The keys of a file, with absolute paths of plugins. Shared: not to be altered."""
    data = read_yaml(path)
    return data | {"plugins": plugins(data, path)} if "plugins" in data else data


def plugins(data: dict[str, Any], path: Path) -> list[str]:
    """The absolute paths of the Python files that a config names in `plugins`."""
    value = data["plugins"]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{path}: plugins must be a list of files, as [my_rnn.py]; got {value!r}.")
    return [_spelled(path.parent / expanded(name)) for name in value]


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's config with plugins by their file names alone: a path is of one machine."""
    plugins = [Path(str(name)).name for name in config.get("plugins") or ()]
    return {**config, **({"plugins": plugins} if plugins else {})}


def folder_mark(path: Path) -> str:
    """The folder of a config of one's own, for lists; empty for one of conf/."""
    own = own_conf()
    return display_path(own) if own and is_own(path) else ""
