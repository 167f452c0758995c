"""Values of YAML as annotations want them; a misspelt, missing or ill-typed key is refused by its name."""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from physml.errors import ConfigError, InputError, suggest

T = TypeVar("T")


def coerce(value: Any, hint: Any, where: str) -> Any:
    """The value as its annotation wants it: 1 becomes 1.0 for a float; a string for a number is refused.

    Example:
        >>> coerce(1, float, "dt"), coerce([1, 2], tuple[float, ...], "dt"), coerce(None, int | None, "n")
        (1.0, (1.0, 2.0), None)
    """
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, str | typing.TypeVar):
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(value, get_args(hint), where)
    if origin is Literal:
        for option in get_args(hint):
            if value == option and isinstance(value, bool) == isinstance(option, bool):
                return option
        wanted = ", ".join(map(repr, get_args(hint)))
        raise ConfigError(
            f"{where} must be one of {wanted}; got {value!r}. {_near_text(value, get_args(hint))}".rstrip()
        )
    if hint is None or hint is type(None):
        if value is not None:
            raise ConfigError(f"{where} must be null; got {value!r}.")
        return None
    simple = {float: _float, int: _int, bool: _bool, str: _str}
    if hint in simple:
        return simple[hint](value, where)
    if dataclasses.is_dataclass(hint):
        return build(hint, value, where)  # type: ignore[arg-type]
    kind = origin or hint
    if kind in (list, tuple, Sequence, Iterable, Collection):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list; got {value!r}.")
        return _coerce_sequence(value, kind, get_args(hint), where)
    if kind in (dict, Mapping):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must hold keys and values; got {value!r}.")
        keys, values = get_args(hint) or (Any, Any)
        return {coerce(k, keys, where): coerce(v, values, f"{where}.{k}") for k, v in value.items()}
    if inspect.isclass(kind) and not _may_be(value, kind):
        raise ConfigError(f"{where} must be {kind.__name__}; got {value!r}.")
    return value


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
            raise ConfigError(f"{where}: there is no key {key}. {suggest(str(key), fields)}")
    for name, field in fields.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in data:
            raise ConfigError(f"{where}: the key {name} is missing.")
    hints = typing.get_type_hints(cls)
    values = {key: coerce(value, hints[key], f"{where}.{key}") for key, value in data.items()}
    try:
        return cls(**values)
    except ConfigError:
        raise
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from error


def _may_be(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be asked
        return True


def _near_text(value: Any, options: Collection[Any]) -> str:
    hint = suggest(str(value), map(str, options))
    return hint if hint.startswith("Did you mean") else ""


def _coerce_union(value: Any, options: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(o for o in options if o is not type(None))
    if isinstance(value, dict):  # so that the complaint is about the keys of the mapping
        options = tuple(o for o in options if dataclasses.is_dataclass(o) or get_origin(o) is dict) or options
    exact = [o for o in options if inspect.isclass(o) and type(value) is o]
    errors = []
    for option in (*exact, *options):
        try:
            return coerce(value, option, where)
        except ConfigError as error:
            errors.append(error)
    if len(options) == 1:
        raise errors[0]
    wanted = " or ".join(_called(o) for o in options)
    raise ConfigError(f"{where} must be {wanted}; got {value!r}.")


def _called(hint: Any) -> str:
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    if (get_origin(hint) or hint) in (list, tuple, Sequence):
        return "a list"
    return words.get(hint) or str(getattr(hint, "__name__", hint))


def _coerce_sequence(value: Sequence[Any], kind: Any, args: tuple[Any, ...], where: str) -> Any:
    if kind is tuple and args and args[-1] is not Ellipsis:
        if len(args) != len(value):
            raise ConfigError(f"{where} must have {len(args)} entries; got {list(value)}.")
        return tuple(coerce(v, a, f"{where}[{i}]") for i, (v, a) in enumerate(zip(value, args, strict=True)))
    inner = args[0] if args else Any
    items = [coerce(v, inner, f"{where}[{i}]") for i, v in enumerate(value)]
    return tuple(items) if kind is tuple else items


def _float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} must be a number; got {value!r}.{_said_otherwise(value)}")
    if not math.isfinite(value):
        raise ConfigError(f"{where} must be finite; got {value!r}.")
    return float(value)


def _int(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} must be a whole number; got {value!r}.{_said_otherwise(value)}")
    if not math.isfinite(value) or value != int(value):
        raise ConfigError(f"{where} must be a whole number; got {value!r}.")
    return int(value)


def _said_otherwise(value: Any) -> str:
    if value is None:
        return " It must have a value."
    return " Write null for none." if str(value).lower() in ("none", "nil", "false") else ""


def _bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false; got {value!r}.")
    return value


def _str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        hint = " Put it in quotes if it is meant." if isinstance(value, int | float) else ""
        raise ConfigError(f"{where} must be text; got {value!r}.{hint}")
    return value
