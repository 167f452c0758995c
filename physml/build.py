"""The only place where config becomes objects. Nothing outside the allow-list is ever imported."""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
import traceback
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from physml.errors import ConfigError, near
from physml.paths import TASKS
from physml.source import file_sha256, module_file

ALLOWED = ("physml", "tasks", "torch.nn", "torch.optim", "torch_geometric.nn")
OWN = ("physml", "tasks")


# ---------------------------------------------------------------------------- names to classes


def refuse_foreign(tree: Any, plugins: Sequence[str] = (), where: str = "") -> None:
    """ConfigError if any `_target_` in the tree lies outside the allow-list. Nothing is imported for this."""
    if isinstance(tree, dict):
        if "_target_" in tree:
            _allowed_by_name(tree["_target_"], plugins, where)
        for key, value in tree.items():
            refuse_foreign(value, plugins, f"{where}.{key}" if where else str(key))
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            refuse_foreign(value, plugins, f"{where}[{i}]")


def resolve(target: str, plugins: Sequence[str] = (), where: str = "") -> type:
    """The class a `_target_` names.

    Its module must lie in the allow-list, before and after import, so that `physml.launch.subprocess.Popen`
    is refused as well as `os.system`.
    """
    _allowed_by_name(target, plugins, where)
    module_name, _, name = target.rpartition(".")
    own_files = load_plugins(plugins)
    module = own_files.get(module_name) or _import(module_name)
    found = getattr(module, name, None)
    if found is None:
        classes = [
            n for n, v in vars(module).items() if inspect.isclass(v) and _allowed(v.__module__, own_files)
        ]
        raise ConfigError(f"{module_name} has no class {name}. {near(name, classes)}")
    if not inspect.isclass(found):
        raise ConfigError(f"_target_={target} must be a class; it is a {type(found).__name__}.")
    if not _allowed(found.__module__, own_files):
        raise ConfigError(f"_target_={target} is not allowed: it comes from {found.__module__}.")
    return found


def _allowed_by_name(target: Any, plugins: Sequence[str], where: str) -> None:
    at = f"{where}._target_" if where else "_target_"
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"{at} must name a class as module.Class; got {target!r}.")
    if not _allowed(target.rpartition(".")[0], [Path(p).stem for p in plugins]):
        raise ConfigError(
            f"{at}={target} is not allowed. Allowed are {', '.join(ALLOWED)} and the files in plugins=."
        )


def _allowed(module: str, plugins: Collection[str]) -> bool:
    return module in plugins or any(module == root or module.startswith(f"{root}.") for root in ALLOWED)


def _import(name: str) -> types.ModuleType:
    package = name.partition(".")[0]
    if package in OWN:
        module_file(name)  # says near names if there is no such file
    if package == "tasks":
        _own_tasks()
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f" Install it: pip install {package}" if error.name == package else ""
        raise ConfigError(f"cannot import {name}: {error}.{hint}") from error


def _own_tasks() -> None:
    """`tasks` is the folder of our checkout, whatever `tasks/` the working folder has."""
    loaded = sys.modules.get("tasks")
    if loaded is not None and list(getattr(loaded, "__path__", [])) == [str(TASKS)]:
        return
    for name in [n for n in sys.modules if n == "tasks" or n.startswith("tasks.")]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        "tasks", TASKS / "__init__.py", submodule_search_locations=[str(TASKS)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["tasks"] = module
    spec.loader.exec_module(module)


_loaded_sha256: dict[Path, str] = {}  # an identity is of the file, so what runs must be the file


def load_plugins(plugins: Sequence[str]) -> dict[str, types.ModuleType]:
    """The modules of all plugins, in the given order, so that a later one can import an earlier one."""
    return {Path(p).stem: _load_plugin(Path(p)) for p in plugins}


def _load_plugin(path: Path) -> types.ModuleType:
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            if _loaded_sha256.get(path) != file_sha256(path):
                raise ConfigError(f"the plugin {path} has changed since it was imported. Start Python again.")
            return loaded
        raise ConfigError(f"the plugin {path.name} has the name of another module. Rename the file.")
    if not _is_free(path):
        raise ConfigError(f"the plugin {path.name} has the name of an installed package. Rename the file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    text = path.read_bytes()  # not from a cached .pyc, which an edit within the same second would not replace
    _loaded_sha256[path] = hashlib.sha256(text).hexdigest()
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        raise ConfigError(f"{_line_in(path, error)}: {type(error).__name__}: {error}") from error
    return module


def _is_free(path: Path) -> bool:
    """No installed module has the plugin's name; the plugin itself may lie on the import path."""
    spec = importlib.util.find_spec(path.stem)
    return spec is None or (spec.origin is not None and Path(spec.origin).resolve() == path.resolve())


def _line_in(path: Path, error: BaseException) -> str:
    """`the plugin my_rnn.py cannot be imported, line 3`, as far as the line is known."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename) == path:
            line = frame.lineno
    return f"the plugin {path} cannot be imported{f', line {line}' if line else ''}"


# ---------------------------------------------------------------------------- nodes to objects


@dataclass(frozen=True)
class Node:
    """A class and its arguments, coerced and checked; nothing is built yet. Arguments may be nodes."""

    cls: type
    values: dict[str, Any]
    where: str

    def make(self, **given: Any) -> Any:
        """Build it, and the nodes inside it. `given` arguments are passed if the class takes them."""
        takes = arguments(self.cls)
        values = {n: v for n, v in given.items() if n in takes} | {
            n: _made(v) for n, v in self.values.items()
        }
        try:
            return self.cls(**values)
        except ValueError as error:
            if self.cls.__module__.startswith("torch."):  # what torch says of a bad value, such as lr=-1
                raise ConfigError(f"{self.where}: {self.cls.__name__}: {error}.") from error
            raise


def _made(value: Any) -> Any:
    if isinstance(value, Node):
        return value.make()
    if isinstance(value, list | tuple):
        return type(value)(map(_made, value))
    return {k: _made(v) for k, v in value.items()} if isinstance(value, dict) else value


def arguments(cls: type) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(cls).parameters)
    return {n: p for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def check(
    node: Any,
    where: str,
    plugins: Sequence[str] = (),
    given: Collection[str] = (),
    needs: Collection[str] = (),
    beside: Collection[str] = (),
) -> Node:
    """The class of a node and its arguments, coerced; ConfigError for a key or a value that cannot be right.

    given: arguments that come from elsewhere (`d_in` from the task), which a config must not set.
    needs: methods without which an object has no place here. beside: keys of the section that are ours.
    """
    if not isinstance(node, dict) or "_target_" not in node:
        got = f"keys {', '.join(map(str, node)) or 'none'}" if isinstance(node, dict) else repr(node)
        raise ConfigError(f"{where} needs a _target_, the class to build; got {got}.")
    refuse_foreign(node, plugins, where)
    cls = resolve(node["_target_"], plugins, where)
    if lacking := [name for name in needs if not hasattr(cls, name)]:
        raise ConfigError(f"{where}: {cls.__name__} does not belong here: it has no {lacking[0]}().")
    if inspect.isabstract(cls):
        raise ConfigError(
            f"{where}: {cls.__name__} is a base class, which cannot be built. Name a class made from it."
        )
    known = arguments(cls)
    settable = [n for n in known if n not in given]
    values = {}
    hints = _hints(cls)
    for key, value in node.items():
        if key == "_target_":
            continue
        if key not in settable:
            hint = near(str(key), [*settable, *beside])
            raise ConfigError(f"{where}.{key}: {cls.__name__} has no such argument. {hint}")
        values[key] = _value(value, hints.get(key, Any), f"{where}.{key}", plugins)
    missing = [n for n in settable if n not in values and known[n].default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(
            f"{where}: {cls.__name__} needs {', '.join(missing)}. Add +{where}.{missing[0]}=VALUE."
        )
    return Node(cls, values, where)


def construct(node: dict[str, Any], where: str, plugins: Sequence[str] = (), **given: Any) -> Any:
    """Build what a node describes. `given` arguments are passed if the class takes them."""
    return check(node, where, plugins, tuple(given)).make(**given)


def _hints(cls: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for holder in (cls, cls.__init__):  # type: ignore[misc]
        with contextlib.suppress(NameError, TypeError):  # an annotation that cannot be read is none
            hints |= typing.get_type_hints(holder)
    return hints


def _value(value: Any, hint: Any, where: str, plugins: Sequence[str]) -> Any:
    """The value coerced; nodes inside it checked."""
    if isinstance(value, dict) and "_target_" in value:
        return check(value, where, plugins)
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return [_value(v, Any, f"{where}[{i}]", plugins) for i, v in enumerate(value)]
    return coerce(value, hint, where)


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


def _may_be(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be asked
        return True


def _near_text(value: Any, options: Collection[Any]) -> str:
    hint = near(str(value), map(str, options))
    return hint if hint.startswith("Did you mean") else ""


def _coerce_union(value: Any, options: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(o for o in options if o is not type(None))
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
        return tuple(coerce(v, a, where) for v, a in zip(value, args, strict=True))
    inner = args[0] if args else Any
    items = [coerce(v, inner, where) for v in value]
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


# ---------------------------------------------------------------------------- the parts of a run

NET_GIVEN = ("layer", "d_in", "d_out", "readout", "tokens")
LAYER = ("forward", "parameters")
TASK = ("load", "batches", "loss", "score")
OPTIMIZER = ("step", "zero_grad")
SCHEDULE = ("step", "get_last_lr")


def build_task(config: dict[str, Any]) -> Any:
    return check(config["task"], "task", config["plugins"], needs=TASK).make()


def build_net(config: dict[str, Any], task: Any) -> Any:
    """The whole network for a task: layers made by a factory, wrapped by the `net` node."""
    plugins = config["plugins"]
    one = check(config["model"], "model", plugins, ("d_in",), LAYER)
    given = {"d_in": task.d_in, "d_out": task.d_out, "readout": task.readout, "tokens": task.tokens}

    def layer(d_in: int) -> Any:
        return one.make(d_in=d_in)

    return check(config["net"], "net", plugins, NET_GIVEN, LAYER).make(layer=layer, **given)


def check_optimizer(config: dict[str, Any]) -> tuple[Node, dict[str, float]]:
    """The optimizer's node and its `lr_factors`, which are ours."""
    node = dict(config["optim"])
    factors = coerce(node.pop("lr_factors", None), dict[str, float] | None, "optim.lr_factors") or {}
    for pattern, factor in factors.items():
        if factor < 0:
            raise ConfigError(f"optim.lr_factors.{pattern} must not be negative; got {factor}.")
    return check(node, "optim", config["plugins"], ("params",), OPTIMIZER, beside=("lr_factors",)), factors


def build_optimizer(config: dict[str, Any], net: Any) -> Any:
    """An optimizer over all trainable parameters, in groups where `lr_factors` says so.

    The first pattern that a parameter's name matches counts. ConfigError if a pattern matches none.
    """
    node, factors = check_optimizer(config)
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    groups: dict[float, list[Any]] = {1.0: []}
    unused = dict(factors)
    for name, parameter in named:
        pattern = next((p for p in factors if fnmatchcase(name, p)), None)
        unused.pop(pattern or "", None)
        groups.setdefault(factors[pattern] if pattern else 1.0, []).append(parameter)
    if unused:
        raise ConfigError(
            f"optim.lr_factors: no parameter is left for {', '.join(unused)}. "
            f"{near(next(iter(unused)), [n for n, _ in named])}"
        )
    if len(groups) > 1 and "lr" not in node.values:
        raise ConfigError("optim.lr_factors multiply optim.lr, which is not set. Add optim.lr=VALUE.")
    params = [
        {"params": p, **({"lr": node.values["lr"] * f} if f != 1.0 else {})} for f, p in groups.items() if p
    ]
    return node.make(params=params)


def build_schedule(config: dict[str, Any], optimizer: Any) -> Any | None:
    node = config["trainer"]["schedule"]
    if not node:
        return None
    return check(node, "trainer.schedule", config["plugins"], ("optimizer",), SCHEDULE).make(
        optimizer=optimizer
    )
