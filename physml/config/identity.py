"""The identity of a setting: a hash of everything that can move its number, and of nothing else."""

import hashlib
import json
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError
from physml.config.class_source import (
    FIRST_NAMES,
    MOVED,
    OWN_PACKAGES,
    ClassSource,
    data_sha256,
    file_names,
    file_sha256,
    own_file,
    read_class,
    read_class_in,
    renamed,
)

TRAINER_VERSION = 1  # raised when the loop, the seeding or the selection change numbers

MOVING = ("model", "net", "task", "trainer", "optim", "precision", "profile")


def payload(config: dict[str, Any]) -> dict[str, Any]:
    """The hashed values: the moving parts of a composed config, versions of code, sources of plugins.

    A key with value null is left out where null is what the class takes by default, so a new option that
    defaults to null keeps old identities.
    """
    plugins = [Path(p) for p in config.get("plugins") or []]
    classes = {key: class_source(config[key], plugins) for key in ("model", "net", "task")}
    return {
        **{key: _moving(config[key], classes.get(key)) for key in MOVING},
        "versions": {
            **{key: source.version if source else None for key, source in classes.items()},
            "trainer": TRAINER_VERSION,
        },
        **({"plugins": {p.name: file_sha256(p) for p in plugins}} if plugins else {}),
        **({"files": own} if (own := own_files(config["task"], classes["task"])) else {}),
    }


def own_files(task: dict[str, Any], source: ClassSource | None) -> dict[str, str]:
    """The sha256 of the data files that a task names in `task.files`, or else in its class."""
    if source is None:
        return {}
    names = file_names(task["files"]) if task.get("files") is not None else source.files or ()
    return {name: data_sha256(own_file(source.file, name)) for name in names}


def identity(config: dict[str, Any]) -> str:
    """Eight hex digits. Equal for 1 and 1.0; the order of keys does not matter."""
    hashed = payload(config)
    try:
        text = json.dumps(hashed, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise ConfigError("a number of the config is not finite. Use null, or a large number.") from error
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _moving(value: Any, source: ClassSource | None) -> Any:
    """Without the kernel backend of our own layers, which is equal to its reference by test."""
    plain = canonical(value)
    if not isinstance(value, dict):
        return plain
    if str(value.get("_target_")).startswith("physml."):
        plain.pop("backend", None)
    kept = {key: None for key, v in value.items() if v is None and source and key in source.defaults}
    return plain | kept


def canonical(value: Any) -> Any:
    """JSON values: nulls dropped from mappings, whole floats as integers, classes by their first names."""
    match value:
        case dict():
            plain = {str(k): canonical(v) for k, v in value.items() if v is not None}
            if isinstance(target := plain.get("_target_"), str):
                plain["_target_"] = renamed(renamed(target, MOVED), FIRST_NAMES)
            return plain
        case list() | tuple():
            return [canonical(v) for v in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def class_source(node: dict[str, Any], plugins: list[Path]) -> ClassSource | None:
    """Source facts of the class that a node names; None for classes of other packages."""
    target = str(node.get("_target_"))
    module, _, name = target.rpartition(".")
    for plugin in plugins:
        if module == plugin.stem:
            return read_class_in(plugin, name)
    return read_class(target) if module.partition(".")[0] in OWN_PACKAGES else None
