"""The only place where config becomes objects. Nothing outside the allow-list is ever imported."""

import importlib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from physml.errors import ConfigError, near
from physml.paths import TASKS
from physml.source import module_file

ALLOWED = ("physml", "tasks", "torch.nn", "torch.optim", "torch_geometric.nn")
OWN = ("physml", "tasks")


# ---------------------------------------------------------------------------- names to classes


def resolve(target: str, plugins: Sequence[str] = ()) -> type:
    """The class a `_target_` names.

    Its module must lie in the allow-list, before and after import, so that `physml.launch.subprocess.Popen`
    is refused as well as `os.system`.
    """
    module_name, _, name = str(target).rpartition(".")
    own_files = {Path(p).stem: Path(p) for p in plugins}
    if module_name in own_files:
        module = _load_plugin(own_files[module_name])
    else:
        if not _allowed(module_name):
            raise ConfigError(
                f"_target_={target} is not allowed. Allowed are {', '.join(ALLOWED)} and the files in plugins=."
            )
        module = _import(module_name)
    found = getattr(module, name, None)
    if found is None:
        classes = [n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module.__name__]
        raise ConfigError(f"{module_name} has no class {name}. {near(name, classes)}")
    if not inspect.isclass(found):
        raise ConfigError(f"_target_={target} must be a class; it is a {type(found).__name__}.")
    if found.__module__ not in own_files and not _allowed(found.__module__):
        raise ConfigError(f"_target_={target} is not allowed: it comes from {found.__module__}.")
    return found


def _allowed(module: str) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in ALLOWED)


def _import(name: str) -> types.ModuleType:
    if name.partition(".")[0] in OWN:
        module_file(name)  # says near names if there is no such file
    if name.partition(".")[0] == "tasks":
        _own_tasks()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import {name}: {error}.") from error


def _own_tasks() -> None:
    """`tasks` is the folder of our checkout, whatever `tasks/` the working folder has."""
    loaded = sys.modules.get("tasks")
    if loaded is not None and list(getattr(loaded, "__path__", [])) == [str(TASKS)]:
        return
    spec = importlib.util.spec_from_file_location("tasks", TASKS / "__init__.py", submodule_search_locations=[str(TASKS)])
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["tasks"] = module
    spec.loader.exec_module(module)


def _load_plugin(path: Path) -> types.ModuleType:
    loaded = sys.modules.get(path.stem)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(path):
            return loaded
        raise ConfigError(f"the plugin {path.name} has the name of another module. Rename the file.")
    if importlib.util.find_spec(path.stem) is not None and not _is_local(path):
        raise ConfigError(f"the plugin {path.name} has the name of an installed package. Rename the file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise ConfigError(f"the plugin {path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _is_local(path: Path) -> bool:
    """The name is importable only because the plugin itself lies on the import path."""
    spec = importlib.util.find_spec(path.stem)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path.resolve()


# ---------------------------------------------------------------------------- nodes to objects


def arguments(cls: type) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(cls).parameters)
    return {n: p for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def check(
    node: dict[str, Any], where: str, plugins: Sequence[str] = (), given: Sequence[str] = ()
) -> tuple[type, dict[str, Any]]:
    """The class of a node and its arguments, coerced; ConfigError for a key or a value that cannot be right.

    given: arguments that come from elsewhere (`d_in` from the task), which a config must not set.
    """
    if "_target_" not in node:
        raise ConfigError(f"{where} needs a _target_, the class to build; got keys {', '.join(node) or 'none'}.")
    cls = resolve(node["_target_"], plugins)
    known = arguments(cls)
    settable = [n for n in known if n not in given]
    values = {}
    hints = _hints(cls)
    for key, value in node.items():
        if key == "_target_":
            continue
        if key not in settable:
            raise ConfigError(f"{where}.{key}: {cls.__name__} has no such argument. {near(key, settable)}")
        values[key] = _value(value, hints.get(key, Any), f"{where}.{key}", plugins)
    missing = [n for n in settable if n not in values and known[n].default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(f"{where}: {cls.__name__} needs {', '.join(missing)}. Add +{where}.{missing[0]}=VALUE.")
    return cls, values


def construct(node: dict[str, Any], where: str, plugins: Sequence[str] = (), **given: Any) -> Any:
    """Build what a node describes. `given` arguments are passed if the class takes them."""
    cls, values = check(node, where, plugins, tuple(given))
    takes = arguments(cls)
    return cls(**{n: v for n, v in given.items() if n in takes}, **values)


def _hints(cls: type) -> dict[str, Any]:
    try:
        return {**typing.get_type_hints(cls), **typing.get_type_hints(cls.__init__)}  # type: ignore[misc]
    except (NameError, TypeError):
        return {}


def _value(value: Any, hint: Any, where: str, plugins: Sequence[str]) -> Any:
    if isinstance(value, dict) and "_target_" in value:
        return construct(value, where, plugins)
    return coerce(value, hint, where)


def coerce(value: Any, hint: Any, where: str) -> Any:
    """The value as its annotation wants it: 1 becomes 1.0 for a float; a string for a number is refused."""
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, str | typing.TypeVar):
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(value, get_args(hint), where)
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(f"{where} must be one of {', '.join(map(repr, get_args(hint)))}; got {value!r}.")
        return value
    if hint is None or hint is type(None):
        if value is not None:
            raise ConfigError(f"{where} must be null; got {value!r}.")
        return None
    simple = {float: _float, int: _int, bool: _bool, str: _str}
    if hint in simple:
        return simple[hint](value, where)
    if origin in (list, tuple, Sequence) and isinstance(value, list | tuple):
        return _coerce_sequence(value, origin, get_args(hint), where)
    return value


def _coerce_union(value: Any, options: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(o for o in options if o is not type(None))
    exact = [o for o in options if inspect.isclass(o) and type(value) is o]
    for option in (*exact, *options):
        try:
            return coerce(value, option, where)
        except ConfigError:
            continue
    wanted = " or ".join(getattr(o, "__name__", str(o)) for o in options)
    raise ConfigError(f"{where} must be {wanted}; got {value!r}.")


def _coerce_sequence(value: Sequence[Any], origin: Any, args: tuple[Any, ...], where: str) -> Any:
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(args) != len(value):
            raise ConfigError(f"{where} must have {len(args)} entries; got {list(value)}.")
        return tuple(coerce(v, a, where) for v, a in zip(value, args, strict=True))
    inner = args[0] if args else Any
    items = [coerce(v, inner, where) for v in value]
    return tuple(items) if origin is tuple else items


def _float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} must be a number; got {value!r}.")
    return float(value)


def _int(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ConfigError(f"{where} must be a whole number; got {value!r}.")
    return int(value)


def _bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false; got {value!r}.")
    return value


def _str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be text; got {value!r}.")
    return value


# ---------------------------------------------------------------------------- the parts of a run

NET_GIVEN = ("layer", "d_in", "d_out", "readout", "tokens")
Factory = Callable[[int], Any]


def build_task(config: dict[str, Any]) -> Any:
    return construct(config["task"], "task", config["plugins"])


def build_net(config: dict[str, Any], task: Any) -> Any:
    """The whole network for a task: layers made by a factory, wrapped by the `net` node."""
    plugins = config["plugins"]

    def layer(d_in: int) -> Any:
        return construct(config["model"], "model", plugins, d_in=d_in)

    given = {"layer": layer, "d_in": task.d_in, "d_out": task.d_out, "readout": task.readout, "tokens": task.tokens}
    return construct(config["net"], "net", plugins, **given)


def build_optimizer(config: dict[str, Any], net: Any) -> Any:
    """An optimizer over all trainable parameters, in groups where `lr_factors` says so."""
    node = dict(config["optim"])
    factors: dict[str, float] = node.pop("lr_factors", None) or {}
    cls, values = check(node, "optim", given=("params",))
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    groups: dict[float, list[Any]] = {1.0: []}
    unused = dict(factors)
    for name, parameter in named:
        pattern = next((p for p in factors if fnmatchcase(name, p)), None)
        unused.pop(pattern or "", None)
        groups.setdefault(factors[pattern] if pattern else 1.0, []).append(parameter)
    if unused:
        raise ConfigError(
            f"optim.lr_factors: no parameter is named {', '.join(unused)}. "
            f"{near(next(iter(unused)), [n for n, _ in named])}"
        )
    lr = values.get("lr")
    params = [{"params": p, "lr": lr * factor} for factor, p in groups.items() if p]
    return cls(params, **values)


def build_schedule(config: dict[str, Any], optimizer: Any) -> Any | None:
    node = config["trainer"]["schedule"]
    return construct(node, "trainer.schedule", optimizer=optimizer) if node else None
