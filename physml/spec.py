"""YAML files into dataclasses. A misspelt, missing or ill-typed key is refused by its full name."""

import dataclasses
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from physml.errors import ConfigError, InputError, near

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


def build(cls: type[T], data: Any, where: str) -> T:
    """An instance of a dataclass from the mapping `data`, and of those inside it.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Point:
        ...     x: float
        ...     y: float = 0.0
        >>> build(Point, {"x": 1}, "point")
        Point(x=1.0, y=0.0)
        >>> build(Point, {"z": 1}, "point")
        Traceback (most recent call last):
        ...
        physml.errors.ConfigError: point: there is no key z. Known: x, y.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be a mapping; got {data!r}.")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise ConfigError(f"{where}: there is no key {key}. {near(str(key), fields)}")
    for name, field in fields.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in data:
            raise ConfigError(f"{where}: the key {name} is missing.")
    hints = get_type_hints(cls)
    values = {key: _value(hints[key], value, f"{where}.{key}") for key, value in data.items()}
    try:
        return cls(**values)
    except ConfigError:
        raise
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from error


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        kinds = [k for k in args if k is not type(None)]
        if isinstance(value, dict):  # so that the complaint is about the keys of the mapping
            kinds = [k for k in kinds if dataclasses.is_dataclass(k) or get_origin(k) is dict] or kinds
        for option in kinds[:-1]:
            try:
                return _value(option, value, where)
            except ConfigError:
                continue
        return _value(kinds[-1], value, where)
    if origin is Literal:
        if value not in args:
            wanted = ", ".join(map(str, args))
            raise ConfigError(f"{where} must be one of {wanted}; got {value!r}. {near(str(value), args)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list; got {value!r}.")
        return tuple(_value(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a mapping; got {value!r}.")
        return {str(key): _value(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return build(kind, value, where)  # type: ignore[arg-type]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where} must be {_name(kind)}; got {value!r}.")
    return value


def _name(kind: type) -> str:
    return {str: "text", int: "a whole number", float: "a number", bool: "true or false"}.get(
        kind, kind.__name__
    )


class _Loader(yaml.SafeLoader):
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
        return super().construct_mapping(node, deep)


def _float_resolver() -> None:
    import re

    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


_float_resolver()
