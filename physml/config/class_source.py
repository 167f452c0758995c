"""Facts of a class from its source: version, arguments, files. Read without importing it.

Tables need the versions of models and tasks, and must not import torch.
"""

import ast
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from physml.base.errors import ConfigError, DataError, suggest
from physml.base.files import cached_by_file
from physml.base.paths import PACKAGE, TASKS, expanded

OWN_PACKAGES = ("physml", "tasks")

# A class that has moved to another module keeps, in identities, the name it had when they were first made.
# The first entry that fits counts.
FIRST_NAMES = {
    "physml.training.selection.": "physml.selection.",
    "physml.training.averaging.": "physml.average.",
    "physml.training.schedules.": "physml.schedules.",
    "physml.models.graph.diffusion.Diffusion": "physml.models.gnn.Diffusion",
    "physml.models.graph.gcnii.GCNII": "physml.models.gnn.GCNII",
    "physml.models.graph.graph_net.GraphModel": "physml.models.gnn.GraphModel",
    "physml.models.graph.graph_net.GraphNet": "physml.models.gnn.GraphNet",
    "physml.models.sequence.": "physml.models.",
    "physml.models.graph.": "physml.models.",
    "physml.lab.measures.": "physml.analysis.measures.",
}


def _moved() -> dict[str, str]:
    """The present place of a class, by the name that it had in an earlier release and that users may hold."""
    kinds = ("sequence", "graph")
    modules = {f"physml.models.{kind}.": PACKAGE / "models" / kind for kind in kinds}
    return {
        **{first: now for now, first in FIRST_NAMES.items() if now not in modules},
        "physml.arrays.": "physml.training.collectors.",
        "physml.simulate.": "physml.lab.simulate.",
        **{
            f"physml.models.{file.stem}.": f"{package}{file.stem}."
            for package, folder in modules.items()
            for file in sorted(folder.glob("[a-z]*.py"))
        },
    }


MOVED = _moved()


def renamed(target: str, names: Mapping[str, str]) -> str:
    """The name of a class or a package, its beginning replaced as `names` says."""
    for begin, other in names.items():
        if target.startswith(begin):
            return other + target.removeprefix(begin)
    return target


@dataclass(frozen=True)
class ClassSource:
    """Facts of a class, as its source says, or else that of a base in the same file."""

    file: Path
    version: int  # 1 where nothing is said
    doc: str
    defaults: dict[str, str]  # arguments with a default other than None, as source text
    files: tuple[str, ...] | None = None  # names of its own data files; None where nothing is said


def module_file(module: str) -> Path:
    """The file of one of our own modules; ConfigError with near names if there is none."""
    if not all(part.isidentifier() for part in module.split(".")):  # `tasks./tmp/x` would leave the folder
        raise ConfigError(f"{module!r} is not a module name.")
    package, *parts = module.split(".")
    path = (TASKS if package == "tasks" else PACKAGE.with_name(package)).joinpath(*parts)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    parent = module.rpartition(".")[0]
    near = {f"{parent}.{p.stem}": p.relative_to(path.parent) for p in path.parent.rglob("[a-z]*.py")}
    hint = suggest(module, near)
    for flat, place in near.items():  # such as physml.models.lem, which is in physml/models/sequence
        hint = re.sub(rf"{re.escape(flat)}\b", ".".join([parent, *place.with_suffix("").parts]), hint)
    raise ConfigError(f"there is no module {module}. {hint}")


def read_class(target: str) -> ClassSource:
    """Source facts of one of our own classes, by its dotted name, now or in an earlier release."""
    module, _, name = renamed(target, MOVED).rpartition(".")
    return read_class_in(module_file(module), name)


@cached_by_file
def _classes(file: Path) -> tuple[dict[str, ast.ClassDef], dict[str, ClassSource]]:
    """The classes of a file, and the facts of those that were read, which are added."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}, {}


def read_class_in(file: Path, name: str) -> ClassSource:
    try:
        classes, known = _classes(file)
    except SyntaxError as error:
        raise ConfigError(f"{file}: line {error.lineno}: {error.msg}.") from error
    except (OSError, ValueError) as error:  # gone, not UTF-8, or with zero bytes
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    if name not in classes:
        raise ConfigError(f"{file} has no class {name}. {suggest(name, classes)}")
    if name not in known:
        node = classes[name]
        version = getattr(_assigned("version", node, classes), "value", None)
        version = version if isinstance(version, int) else 1
        facts = ast.get_docstring(node) or "", _defaults(node, classes), _files(file, node, classes)
        known[name] = ClassSource(file, version, *facts)
    return known[name]


def _bases(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """The bases of a class that stand in the same file."""
    return [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]


def _assigned(name: str, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> ast.expr | None:
    """The value that the class body gives to a name, else that of its first base in the same file."""
    for statement in node.body:
        match statement:
            case (
                ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id=target)], value=ast.expr() as value)
            ) if target == name:
                return value
    bases = _bases(node, classes)
    return _assigned(name, bases[0], classes) if bases else None


def _files(file: Path, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> tuple[str, ...] | None:
    """The literal `files = ("a.csv", "b.csv")` of the class body, else of a base in the same file."""
    value = _assigned("files", node, classes)
    if value is None:
        return None
    try:
        return file_names(ast.literal_eval(value))
    except (ValueError, ConfigError) as error:
        raise ConfigError(
            f"{file}, line {value.lineno}: `files` must name the files of {node.name} "
            f'literally, as ("waves.csv",); got {ast.unparse(value)[:80]}.'
        ) from error


def file_names(value: object) -> tuple[str, ...]:
    """Names of files, once they are a list or tuple of text. Errors: ConfigError."""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(f'files must be a list of names, as ("waves.csv",); got {value!r}.')
    return tuple(value)


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
    for base in _bases(node, classes):
        inherited |= _defaults(base, classes)
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as default):
                inherited[name] = ast.unparse(default)
    return {name: default for name, default in inherited.items() if default != "None"}


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def own_file(source: Path, name: str) -> Path:
    """A data file of a class: an absolute path, or one relative to the folder of its source.

    Errors: DataError where there is no such file.
    """
    path = source.parent / expanded(name)
    if not path.is_file():
        raise DataError(
            f"{source.name} names the file {name}, but {path} is "
            f"{'no file' if path.exists() else 'missing'}. Put it there, or correct `files`."
        )
    return path


@cached_by_file
def data_sha256(path: Path) -> str:
    """The sha256 of a data file, hashed once for each state of the file."""
    return file_sha256(path)
