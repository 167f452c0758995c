"""YAML files to dataclasses: each value converted to its annotation, each wrong key refused by its name."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import yaml

from physml.base import opened
from physml.base.check import is_number
from physml.base.errors import ConfigError, InputError, suggest
from physml.base.files import cached_by_file

T = TypeVar("T")
MOST_VALUES, DEEPEST = 1_000_000, 100  # of a file, aliases counted as often as they stand there


def load(cls: type[T], path: Path, *, ignore: Collection[str] = (), **fixed: Any) -> T:
    """An instance of a dataclass from a YAML file. ConfigError names the file and the key that is wrong.

    ignore: keys of the file that are not for the dataclass. fixed: fields that do not come from the file,
    such as an id that is the file's name; as keys of the file they are refused.
    """
    content = content_of(path)
    for key, value in fixed.items():
        if key in content:
            raise ConfigError(
                f"{path.name}: {key} must not be a key: it is {value}, from the file's name. Remove it."
            )
    kept = {key: value for key, value in content.items() if key not in ignore}
    try:
        return structure(cls, kept | fixed, path.name)
    except ConfigError as error:
        raise error if path.name in str(error) else ConfigError(f"{path.name}: {error}") from error


@cached_by_file
def content_of(path: Path) -> dict[str, Any]:
    """`read_yaml`, once for each state of the file. Shared: not to be altered."""
    return read_yaml(path)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. ConfigError if there is none, with the line where parsing failed."""
    try:
        text = opened.read_bytes(path, links=True).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error
    try:
        _refuse_deep(text)
        data = yaml.load(text, _Loader)
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply, or holds too many values.") from error
    # PyYAML's constructors raise the others for dates such as 2001-99-99, `!!int x` and the like.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        message = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")
        raise ConfigError(f"{path} is not valid YAML: {message}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values; got {type(data).__name__}.")
    _refuse_endless(data, path)
    return data


def _refuse_deep(text: str) -> None:
    """RecursionError for nesting that would crash the parser in C; a short look at any usual file."""
    if text.count("[") + text.count("{") <= DEEPEST and max(map(len, text.splitlines()), default=0) <= 1000:
        return
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError


def _refuse_endless(data: Any, path: Path) -> None:
    """ConfigError for what is nested too deeply, as an alias inside itself is, or holds too much."""
    level, depth, count = [data], 0, 0
    while level:
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        count, depth = count + len(level), depth + 1
        if depth > DEEPEST or count + sum(map(len, inner)) > MOST_VALUES:
            raise ConfigError(f"{path} is nested too deeply, or holds too many values, aliases counted.")
        level = [value for values in inner for value in values]


# The parser in C reads a long table ten times as fast; PyYAML may have been built without it.
_Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):  # type: ignore[misc, valid-type]
    """YAML 1.1 reads 1e-2 as text, and silently keeps the last of two equal keys; here neither happens."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | None):
                problem = f"a key must be text; got {type(key).__name__}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key} appears twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """YAML 1.1 counts 010 in eights and 1:30 in sixties, silently."""
    text = str(node.value).lstrip("+-").replace("_", "")
    if re.fullmatch(r"0\d+|[\d:]*:[\d:]*", text):
        how = "octal" if text[0] == "0" and ":" not in text else "in base 60"
        value = loader.construct_yaml_int(node)
        plain = text.lstrip("0") or "0"
        problem = f"{node.value} would be {value}, {how}; write {plain} or '{node.value}'"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return int(loader.construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


LARGEST = {float: 1e308, int: 2.0**64}
WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}


class Unread:
    """Stands for a class of a plugin, as long as configs are only looked at: its file is not run."""


class Unbuilt:
    """An object that a config describes: for an annotation it counts as an instance of `cls`."""

    cls: type
    anywhere: bool  # whether it may stand for an argument whose annotation names no class


def coerce(value: Any, hint: Any, where: str) -> Any:
    """The value converted to its annotation: 1 becomes 1.0 for a float; a string for a number is refused.

    An object that is not built yet fits only where its class does, or where nothing is annotated and it may
    stand anywhere.

    Example:
        >>> coerce(1, float, "dt"), coerce([1, 2], tuple[float, ...], "dt"), coerce(None, int | None, "n")
        (1.0, (1.0, 2.0), None)
    """
    origin = get_origin(hint)
    if hint in (Any, object) or origin is Callable or isinstance(hint, str | typing.TypeVar):
        _refuse_misplaced(value, where)
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(value, get_args(hint), where)
    if origin is Literal:
        for option in get_args(hint):
            if value == option and isinstance(value, bool) == isinstance(option, bool):
                return option
        options = ", ".join(map(repr, get_args(hint)))
        near = suggest(str(value), map(str, get_args(hint)))
        near = f" {near}" if near.startswith("Did you mean") else ""
        raise ConfigError(f"{where} must be one of {options}; got {value!r}.{near}")
    if hint is None or hint is type(None):
        if value is not None:
            raise ConfigError(f"{where} must be null; got {value!r}.")
        return None
    if hint in WORDS:
        return _coerce_simple(value, hint, where)
    if dataclasses.is_dataclass(hint):
        return structure(hint, value, where)  # type: ignore[arg-type]
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
    if not inspect.isclass(kind):
        _refuse_misplaced(value, where)
    elif not _may_be(value, kind):
        raise ConfigError(f"{where} must be {kind.__name__}; got {value!r}.")
    return value


def structure(cls: type[T], data: Any, where: str) -> T:
    """An instance of a dataclass from the mapping `data`, and of those inside it.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Point:
        ...     x: float
        ...     y: float = 0.0
        >>> structure(Point, {"x": 1}, "point")
        Point(x=1.0, y=0.0)
        >>> structure(Point, {"z": 1}, "point")
        Traceback (most recent call last):
        ...
        physml.base.errors.ConfigError: point: there is no key z. Known: x, y.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be a mapping; got {data!r}.")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    refuse_unknown(data, fields, f"{where}: there is no key ")
    for name, field in fields.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in data:
            raise ConfigError(f"{where}: the key {name} is missing.")
    hints = _hints(cast(Hashable, cls))
    values = {key: coerce(value, hints[key], f"{where}.{key}") for key, value in data.items()}
    try:
        return cls(**values)
    except ConfigError:
        raise
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from error


def refuse_unknown(keys: Iterable[Any], known: Collection[str], says: str) -> None:
    """ConfigError for a key that is not among the known ones, with near names behind what it says."""
    for key in keys:
        if key not in known:
            raise ConfigError(f"{says}{key}. {suggest(str(key), known)}")


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _refuse_misplaced(value: Any, where: str) -> None:
    """ConfigError if an object that may not stand anywhere is in a value whose annotation names no class."""
    for at, part in walk(value, where):
        if isinstance(part, Unbuilt) and not part.anywhere:
            raise ConfigError(
                f"{at}: {part.cls.__name__} does not belong here: where no class is annotated, a _target_ "
                "must name an nn.Module, or a class of a plugin."
            )


def walk(tree: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested mappings and lists, the outer before the inner, with its place: a.b[0]."""
    yield where, tree
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from walk(value, f"{where}.{key}" if where else str(key))
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from walk(value, f"{where}[{i}]")


def _may_be(value: Any, kind: type) -> bool:
    cls = value.cls if isinstance(value, Unbuilt) else type(value)
    if issubclass(cls, Unread):
        return True
    if getattr(kind, "_is_protocol", False):
        methods = [n for base in kind.__mro__ if getattr(base, "_is_protocol", False) for n in vars(base)]
        return all(hasattr(cls, name) for name in methods if not name.startswith("_"))
    return issubclass(cls, kind)


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
    if exact or len(options) == 1:
        raise errors[0]
    kinds = " or ".join(_called(o) for o in options)
    raise ConfigError(f"{where} must be {kinds}; got {value!r}.")


def _called(hint: Any) -> str:
    if (get_origin(hint) or hint) in (list, tuple, Sequence):
        return "a list"
    return WORDS.get(hint) or str(getattr(hint, "__name__", hint))


def _coerce_sequence(value: Sequence[Any], kind: Any, args: tuple[Any, ...], where: str) -> Any:
    if kind is tuple and args and args[-1] is not Ellipsis:
        if len(args) != len(value):
            raise ConfigError(f"{where} must have {len(args)} entries; got {list(value)}.")
        return tuple(coerce(v, a, f"{where}[{i}]") for i, (v, a) in enumerate(zip(value, args, strict=True)))
    inner = args[0] if args else Any
    items = [coerce(v, inner, f"{where}[{i}]") for i, v in enumerate(value)]
    return tuple(items) if kind is tuple else items


def _coerce_simple(value: Any, kind: type, where: str) -> Any:
    """A number, true, false or text. A whole float is a whole number too; true is no number."""
    message = f"{where} must be {WORDS[kind]}; got {value!r}."
    if kind is float or kind is int:
        if not is_number(value):
            raise ConfigError(message + _hint(value))
        if not abs(value) < LARGEST[kind]:
            raise ConfigError(f"{where} must be finite and below {LARGEST[kind]:g}; got {str(value)[:40]}.")
        if kind is int and not float(value).is_integer():
            raise ConfigError(message)
    elif not isinstance(value, kind):
        in_quotes = kind is str and isinstance(value, int | float)
        raise ConfigError(message + (" Put it in quotes if it is meant." if in_quotes else ""))
    return kind(value)


def _hint(value: Any) -> str:
    if value is None:
        return " It must have a value."
    return " Write null for none." if str(value).lower() in ("none", "nil", "false") else ""
