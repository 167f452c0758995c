"""What a class says of itself in its source: version, arguments. Read without importing it.

Tables need the versions of models and tasks, and must not import torch.
"""

import ast
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from physml.errors import ConfigError, suggest
from physml.paths import ROOT

OWN_PACKAGES = ("physml", "tasks")


@dataclass(frozen=True)
class ClassSource:
    """version: as the class or a base in the same file says, else 1. defaults: arguments whose default is
    something else than None, as source text."""

    file: Path
    version: int
    doc: str
    defaults: dict[str, str]


def module_file(module: str) -> Path:
    """The file of one of our own modules; ConfigError with near names if there is none."""
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    siblings = [f"{module.rpartition('.')[0]}.{p.stem}" for p in path.parent.glob("[a-z]*.py")]
    raise ConfigError(f"there is no module {module}. {suggest(module, siblings)}")


def read_class(target: str) -> ClassSource:
    """Source facts of one of our own classes, by its dotted name."""
    module, _, name = target.rpartition(".")
    return read_class_in(module_file(module), name)


@lru_cache(maxsize=512)
def _classes(file: Path, _stamp: int) -> dict[str, ast.ClassDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def read_class_in(file: Path, name: str) -> ClassSource:
    try:
        classes = _classes(file, file.stat().st_mtime_ns)
    except SyntaxError as error:
        raise ConfigError(f"{file}: line {error.lineno}: {error.msg}.") from error
    except (OSError, ValueError) as error:  # gone, not UTF-8, or with zero bytes
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    if name not in classes:
        raise ConfigError(f"{file} has no class {name}. {suggest(name, classes)}")
    node = classes[name]
    return ClassSource(file, _version(node, classes), ast.get_docstring(node) or "", _defaults(node, classes))


def _version(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> int:
    """`version` of the class body, else of a base in the same file, else 1."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id="version"), value=ast.Constant(value=int(number))):
                return number
            case ast.Assign(targets=[ast.Name(id="version")], value=ast.Constant(value=int(number))):
                return number
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            return _version(classes[base.id], classes)
    return 1


def _defaults(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, str]:
    """From `__init__` of the class or a dataclass's fields, else of a base in the same file, else none."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            call = statement.args
            plain = [*call.posonlyargs, *call.args]
            pairs: list[tuple[ast.arg, ast.expr | None]] = [
                *zip(plain[len(plain) - len(call.defaults) :], call.defaults, strict=True),
                *zip(call.kwonlyargs, call.kw_defaults, strict=True),
            ]
            return {a.arg: ast.unparse(d) for a, d in pairs if d is not None and ast.unparse(d) != "None"}
    inherited: dict[str, str] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            inherited |= _defaults(classes[base.id], classes)
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as default):
                inherited[name] = ast.unparse(default)
    return {name: default for name, default in inherited.items() if default != "None"}


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
