"""Errors for a person: what was wanted, what came, where, what to do next."""

import importlib
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, requires
from types import ModuleType


class PhysmlError(Exception):
    """Any error that is shown as one line, without a traceback."""

    exit_code = 2


class InputError(PhysmlError, ValueError):
    """A value, a shape or an argument that can't be right."""


class ConfigError(InputError):
    """A config key or name that does not exist, or a value of the wrong kind."""


class DataError(PhysmlError):
    """A data file that is missing, damaged or foreign. A word of it that is quoted may be long: it is cut."""

    def __init__(self, text: str) -> None:
        super().__init__(re.sub(r"(\S{200})\S{1000,}", r"\1...", text))


class RecordError(PhysmlError):
    """A record or checkpoint that is truncated or foreign."""


class MissingExtra(PhysmlError):
    """An optional package that is not installed."""


class Busy(PhysmlError):
    """Another process works on the same run."""


class RunFailed(PhysmlError):
    """A run ended without a result."""

    exit_code = 1


class Preempted(PhysmlError):
    """A run was interrupted and left a checkpoint."""

    exit_code = 75


# Optional module -> the extra of pyproject.toml that installs it.
EXTRAS = {
    "datasets": "text",
    "torchaudio": "audio",
    "soundfile": "audio",
    "torchvision": "vision",
    "sktime": "series",
    "torch_geometric": "graph",
    "networkx": "graph",
    "pandas": "pandas",
    "optuna": "search",
    "psycopg": "postgresql",
    "wandb": "track",
    "mlflow": "mlflow",
    "ray": "ray",
    "jinja2": "site",
    "markdown_it": "site",
    "latex2mathml": "site",
    "pdoc": "site",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "huggingface_hub": "text",
    "sklearn": "estimators",
    "shtab": "completion",
    "torchdiffeq": "ode",
    "jax": "bench",
}


@contextmanager
def needed_by(purpose: str) -> Iterator[None]:
    """Around imports of optional packages: MissingExtra, with the command that installs what is missing.

    Example:
        >>> with needed_by("a search"):
        ...     import optuna
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = str(error.name).partition(".")[0]
        if module not in EXTRAS:
            raise
        raise MissingExtra(
            f"{purpose} needs {module}. Install it with: {to_install(EXTRAS[module])}"
        ) from error


def to_install(extra: str) -> str:
    """The command that installs an extra, by the names of its packages: physml may be on no index."""
    pattern = rf"extra == ['\"]{extra}['\"]"
    try:
        known = requires("physml") or []
    except PackageNotFoundError:  # a checkout that is not installed
        return f"make setup, or pip install '.[{extra}]' in the checkout"
    requirements = [text.partition(";")[0].strip() for text in known if re.search(pattern, text)]
    return f"pip install {' '.join(shlex.quote(text) for text in requirements)}"


def working(name: str) -> ModuleType | None:
    """An optional module; None where it is not installed, or does not work, such as beside another torch."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError):
        return None


MANY = 100  # names that a message can hold


def suggest(name: object, known: Iterable[str]) -> str:
    """A hint: the known names close to `name`, else all of them, or the first of very many.

    Example:
        >>> suggest("lme", ["lem", "lstm"]), suggest("LEM", ["lem", "lstm"])
        ('Did you mean lem or lstm?', 'Did you mean lem?')
    """
    name, known = str(name), sorted(map(str, known))  # YAML has keys that are numbers, or null
    close = [other for other in known if other.casefold() == name.casefold()]
    close = close or get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    known = [f"'{other}'" if "," in other else other for other in known]  # labels of rows
    if len(known) > MANY:
        return f"Known: {', '.join(known[:10])} and {len(known) - 10} more."
    return f"Known: {', '.join(known)}." if known else "None is known."
