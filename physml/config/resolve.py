"""From names to classes. Nothing outside the allow-list is ever imported."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
import types
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from physml.config.class_source import file_sha256, module_file
from physml.config.identity import FIRST_NAMES
from physml.errors import ConfigError, suggest
from physml.paths import TASKS

ALLOWED = ("physml", "tasks", "torch.nn", "torch.optim", "torch_geometric.nn")
OWN = ("physml", "tasks")
MOVED = {
    **{first: now for now, first in FIRST_NAMES.items()},
    "physml.arrays.": "physml.training.collectors.",
}


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

    Its module must lie in the allow-list, before and after import, so that `physml.execution.planning.subprocess.Popen`
    is refused as well as `os.system`.
    """
    _allowed_by_name(target, plugins, where)
    module_name, _, name = current_name(target).rpartition(".")
    own_files = load_plugins(plugins)
    module = own_files.get(module_name) or _import(module_name)
    found = getattr(module, name, None)
    if found is None:
        classes = [
            n for n, v in vars(module).items() if inspect.isclass(v) and _allowed(v.__module__, own_files)
        ]
        raise ConfigError(f"{module_name} has no class {name}. {suggest(name, classes)}")
    if not inspect.isclass(found):
        raise ConfigError(f"_target_={target} must be a class; it is a {type(found).__name__}.")
    if not _allowed(found.__module__, own_files):
        raise ConfigError(f"_target_={target} is not allowed: it comes from {found.__module__}.")
    return found


def current_name(target: str) -> str:
    """Where a class is now: files of users may name the place it had in an earlier release."""
    for first, now in MOVED.items():
        if target.startswith(first):
            return now + target.removeprefix(first)
    return target


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
        with _no_word_of_scripting():
            return importlib.import_module(name)
    except ImportError as error:
        hint = f" Install it: pip install {package}" if error.name == package else ""
        raise ConfigError(f"cannot import {name}: {error}.{hint}") from error


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
