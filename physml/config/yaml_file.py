"""YAML files as mappings; `load.build` makes dataclasses of them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from physml.errors import ConfigError

T = TypeVar("T")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. ConfigError if there is none, with the line where parsing failed."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    try:
        data = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values; got {type(data).__name__}.")
    return data


_kept: dict[Path, tuple[tuple[int, ...], Any]] = {}


def kept_yaml(path: Path, make: Callable[[dict[str, Any], Path], T]) -> T:
    """`make` of the mapping in a YAML file, made again only once the file has changed. Not to be altered."""
    try:
        facts = path.stat()
    except OSError:
        return make(read_yaml(path), path)
    stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    if path not in _kept or _kept[path][0] != stamp:
        _kept[path] = stamp, make(read_yaml(path), path)
    made: T = _kept[path][1]
    return made


# The parser in C reads a long table ten times as fast; PyYAML may have been built without it.
_Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):  # type: ignore[misc, valid-type]
    """YAML 1.1 reads 1e-2 as text, and silently keeps the last of two equal keys; here neither happens."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key} stands there twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
