"""From names to classes. Nothing but the packages made for configs is ever imported."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
import types
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from physml.base import opened
from physml.base.errors import ConfigError, needed_by, suggest
from physml.base.paths import TASKS, display_path
from physml.config.class_source import MOVED, OWN_PACKAGES, file_sha256, module_file, read_class_in, renamed
from physml.config.load import Unread, walk

MODULE = "torch.nn.modules.module.Module"
SCHEDULER = "torch.optim.lr_scheduler.LRScheduler"
# The packages whose classes a config may name, and the bases of which a class must have one; (): any class.
# A class belongs to the module that defines it, whatever other module imports it.
FOR_CONFIGS: dict[str, tuple[str, ...]] = {
    "physml.models": (MODULE,),
    "physml.training.selection": (),
    "physml.training.averaging": (),
    "physml.training.sampling": (),
    "physml.training.schedules": (SCHEDULER,),
    "physml.training.collectors": (),
    "physml.lab.measures": (),
    "tasks": ("physml.task.base.Task",),
    "torch.nn.modules": (MODULE,),  # not torch.nn.parallel, which starts processes
    "torch.optim": ("torch.optim.optimizer.Optimizer", SCHEDULER),
    # Not all of torch_geometric.nn: its Sequential executes text, its language models are downloads.
    "torch_geometric.nn.conv": (MODULE,),
    "torch_geometric.nn.aggr": (MODULE,),
    "torch_geometric.nn.norm": (MODULE,),
    "torch_geometric.nn.dense": (MODULE,),
    "torch_geometric.nn.models.basic_gnn": (MODULE,),
    "torch_geometric.nn.models.mlp": (MODULE,),
}
SHORT = ("torch.nn", "torch_geometric.nn")  # packages that collect the names of those below them


_looking: ContextVar[bool] = ContextVar("looking", default=False)


@contextmanager
def looking() -> Iterator[None]:
    """Inside, no plugin is run: of its classes no more is known than that the file has them."""
    token = _looking.set(True)
    try:
        yield
    finally:
        _looking.reset(token)


def refuse_foreign(tree: Any, plugins: Sequence[str] = ()) -> None:
    """ConfigError if any `_target_` in the tree is not in a package for configs. Nothing is imported."""
    for where, node in walk(tree):
        if isinstance(node, dict) and "_target_" in node:
            _allowed_by_name(node["_target_"], plugins, where)


def resolve(target: str, plugins: Sequence[str] = (), where: str = "") -> type:
    """The class a `_target_` names.

    The module that is named and the one that defines the class must both be made for configs, and the class
    must have one of the bases wanted there: `physml.models.lem.Tensor` is refused as well as `os.system`.
    """
    _allowed_by_name(target, plugins, where)
    module_name, _, name = renamed(target, MOVED).rpartition(".")
    if _looking.get() and module_name in (sources := {Path(p).stem: Path(p) for p in plugins}):
        read_class_in(sources[module_name], name)
        return type(name, (Unread,), {"__module__": module_name})
    own_files = {} if _looking.get() else load_plugins(plugins)
    module = own_files.get(module_name) or _import(module_name)
    cls = getattr(module, name, None)
    if cls is None:
        held = {n: v for n, v in vars(module).items() if inspect.isclass(v) and not n.startswith("_")}
        classes = [n for n, v in held.items() if _bases(v.__module__, own_files) is not None]
        raise ConfigError(f"{module_name} has no class {name}. {suggest(name, classes)}")
    if not inspect.isclass(cls):
        raise ConfigError(f"_target_={target} must be a class; it is a {type(cls).__name__}.")
    bases = _bases(cls.__module__, own_files)
    if bases is None:
        raise ConfigError(f"_target_={target} is not allowed: it comes from {cls.__module__}.")
    if bases and not any(f"{c.__module__}.{c.__qualname__}" in bases for c in cls.__mro__):
        names = " or ".join(base.rpartition(".")[2] for base in bases)
        raise ConfigError(f"_target_={target} is not allowed: it is no {names}.")
    return cls


def is_module(cls: type) -> bool:
    """True if a class is an nn.Module; torch is not imported for this."""
    return any(f"{c.__module__}.{c.__qualname__}" == MODULE for c in cls.__mro__)


def _allowed_by_name(target: Any, plugins: Sequence[str], where: str) -> None:
    at = f"{where}._target_" if where else "_target_"
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"{at} must name a class as module.Class; got {target!r}.")
    module = renamed(target, MOVED).rpartition(".")[0]
    if module not in SHORT and _bases(module, [Path(p).stem for p in plugins]) is None:
        known = dict.fromkeys(next((s for s in SHORT if m.startswith(s)), m) for m in FOR_CONFIGS)
        allowed = ", ".join(known)
        raise ConfigError(
            f"{at}={target} is not allowed. Allowed are {allowed} and the files in plugins= (or "
            "--plugin of physml export, once for each)."
        )


def _bases(module: str, plugins: Collection[str]) -> tuple[str, ...] | None:
    """The bases that a class of a module must have one of; None where the module is not for configs."""
    if module in plugins:
        return ()
    return next((b for m, b in FOR_CONFIGS.items() if module == m or module.startswith(f"{m}.")), None)


def _import(name: str) -> types.ModuleType:
    package = name.partition(".")[0]
    if package in OWN_PACKAGES:
        module_file(name)  # says near names if there is no such file
    if package == "tasks":
        _own_tasks()
    try:
        with _no_word_of_scripting(), needed_by(f"_target_={name}"):
            return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"cannot import {name}: {error}.") from error


@contextmanager
def _no_word_of_scripting() -> Iterator[None]:
    """torch_geometric, as it is imported, calls a function that torch has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)
        yield


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


_named: set[str] = set()


def name_plugins(configs: Iterable[dict[str, Any]]) -> None:
    """Say whose code is about to run, before it does."""
    named = {path: None for config in configs for path in config.get("plugins") or () if path not in _named}
    _named.update(named)
    for path in named:
        why = opened.of_others(Path(path))
        print(f"runs code of {display_path(Path(path))}{f' ({why})' if why else ''}", file=sys.stderr)


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
        with _no_word_of_scripting():
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
