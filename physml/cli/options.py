"""Options that several commands share, and the types of their values."""

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from physml.base.errors import ConfigError, InputError
from physml.base.paths import expanded, results_root, unwritable, work_root, work_variable

if TYPE_CHECKING:
    from physml.queue.requested import RunOptions

T = TypeVar("T")
LONGEST = 1e9  # of hours or seconds; no clock counts more
SMOKE = "smoke run: tiny sizes, made-up data, no results"


def add_options(command: Any, *groups: tuple[str, ...]) -> None:
    for name in chain(*groups):
        command.add_argument(name, **OPTIONS[name])


def run_options(options: argparse.Namespace) -> "RunOptions":
    from physml.queue.requested import RunOptions

    if options.force and options.no_run:
        raise ConfigError("--force trains anew, and --no-run trains nothing: give one of them.")
    return RunOptions(
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(RunOptions)}
    )


def each(names: list[T], command: Callable[[T], int]) -> int:
    """One after another; a stop (75) ends them all, a failure only its own. The worst code counts."""
    codes = []
    for name in names:
        codes.append(command(name))
        if codes[-1] == 75:
            break
    return max(codes)


@contextlib.contextmanager
def smoke_roots(smoke: bool) -> Iterator[None]:
    """Under --smoke, records and work go to smoke/ in the folders that the user named; without, records go to
    a temporary folder. The pilots of a smoke run have such folders already.
    """
    if not smoke:
        yield
        return
    before = dict(os.environ)
    roots = {name: Path(before[name]) for name in ("PHYSML_RESULTS", "PHYSML_RUNS") if before.get(name)}
    apart = {name: root if root.name == "smoke" else root / "smoke" for name, root in roots.items()}
    results = apart.get("PHYSML_RESULTS") or Path(tempfile.mkdtemp(prefix="physml-"), "smoke")
    apart["PHYSML_RESULTS"] = results
    os.environ |= {name: str(root) for name, root in apart.items()}
    try:
        yield
        print(f"smoke results: {results}", file=sys.stderr)
    finally:
        for name in apart:
            del os.environ[name]
        os.environ |= {name: str(root) for name, root in roots.items()}


@contextlib.contextmanager
def own_configs(folder: Path | None) -> Iterator[None]:
    """With --config-dir, PHYSML_CONF is this folder for the command and its runs."""
    if folder is None:
        yield
        return
    if not folder.is_dir():
        raise ConfigError(f"--config-dir {folder}: there is no such folder.")
    before = os.environ.get("PHYSML_CONF")
    os.environ["PHYSML_CONF"] = str(folder.absolute())
    try:
        yield
    finally:
        os.environ.pop("PHYSML_CONF")
        if before is not None:
            os.environ["PHYSML_CONF"] = before


@contextlib.contextmanager
def results_folder(kind: str, own: bool = False) -> Iterator[Path]:
    """Folder for tables or figures. Those of seeds of one's own replace no real ones."""
    root, variable = (work_root(), work_variable()) if own else (results_root(), "PHYSML_RESULTS")
    try:
        yield root / kind
    except OSError as error:
        raise unwritable(root / kind, error, variable) from error


def out_file(text: str, forms: Collection[str] = ()) -> Path:
    """A file that a person named, to be written; with `forms` that of --out, whose ending says its form."""
    path = expanded(text)
    if forms and path.suffix.removeprefix(".") not in forms:
        raise InputError(f"--out must end in .{', .'.join(forms)}; got {text}.")
    if path.exists() and not (path.is_file() or path.is_dir()):  # of a folder the writer says so
        raise InputError(f"{text} is no file that can be written anew. Name another one.")
    return path


def _jobs(text: str) -> int | None:
    return None if text == "auto" else count(text)


def count(text: str, most: int | None = None) -> int:
    """A whole number from 1 on, as a type of argparse."""
    if not text.isdecimal() or int(text) < 1 or (most and int(text) > most):
        ends = f"from 1 to {most}" if most else "from 1 on"
        raise argparse.ArgumentTypeError(f"must be a whole number {ends}; got {text!r}")
    return int(text)


def _device(text: str) -> str:
    """A kind of device that torch may have here; a run says whether it has it."""
    from physml.config.schema import DEVICES

    if text.partition(":")[0] not in DEVICES:
        raise argparse.ArgumentTypeError(f"must be auto, cpu or cuda; got {text!r}")
    return text


def seconds(text: str) -> float:
    """A positive number of seconds, as a type of argparse."""
    return _positive(text, "seconds")


def _hours(text: str) -> float:
    return _positive(text, "hours")


def _positive(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < LONGEST:
        raise argparse.ArgumentTypeError(f"must be a positive number of {what}; got {text!r}")
    return number


_JOBS = "runs side by side: a number, or auto (default), as many as cores, memory and GPUs have room for"
_PLAN = "show the runs, with ms per step and core-hours where known, and stop"
_ON = "local (default), slurm, slurm/SITE, ray; pilot: share the runs with others in the same results folder"
_VERIFY = "how files of data sets are compared with the published ones; default: by their bytes"
OPTIONS: dict[str, dict[str, Any]] = {
    "--paper": {"default": "lem", "help": "the paper that a bare number belongs to"},
    "--seeds": {"help": "0,1,2, 0-4, or n5 for the first five; default: those of the config"},
    "--no-run": {"action": "store_true", "help": "print or draw existing records, train nothing"},
    "--smoke": {
        "action": "store_true",
        "help": "tiny sizes; records in $PHYSML_RESULTS/smoke, or a temporary folder",
    },
    "--device": {"type": _device, "help": "auto, cpu or cuda"},
    "--plan": {"action": "store_true", "help": _PLAN},
    "--probe": {
        "action": "store_true",
        "help": "with --plan: measure a few steps and evaluations of the others",
    },
    "--force": {"action": "store_true", "help": "train finished runs again"},
    "--jobs": {"type": _jobs, "help": _JOBS},
    "--yes": {"action": "store_true", "help": "start runs too that take more than 24 core-hours each"},
    "--max-hours": {"type": _hours, "help": "stop, with checkpoints, after so many hours"},
    "--on": {"default": "local", "metavar": "ENGINE", "help": _ON},
    "--workers": {"type": count, "metavar": "N", "help": "pilots of an engine; default: in conf/engine"},
    "--engine": {
        "action": "append",
        "metavar": "KEY=VALUE",
        "help": "a setting of it, partition=gpu",
    },
    "--detach": {"action": "store_true", "help": "submit to the engine, and do not wait"},
    "--no-wait": {"action": "store_true", "help": "of a pilot: end when others hold all runs that are left"},
    "--verify": {"choices": ("bytes", "content", "off"), "help": _VERIFY},
}
PAPER = ("--paper",)
VERIFY = ("--verify",)
JOBS = ("--jobs", "--max-hours", "--yes")
PLAN = ("--plan", "--probe", "--force")
ENGINE = ("--on", "--workers", "--engine", "--detach", "--no-wait")
PUBLISHED = tuple(OPTIONS)  # of tables and figures
VIEW = ("--long", "--rules")
CONFIGS = ("--config-dir",)
OPTIONS |= {
    "--row": {
        "action": "append",
        "default": [],
        "metavar": "label=L,experiment=FILE",
        "help": "an extra row, or label=L,COLUMN=FILE,...; with its own seeds=0-4; only such are trained",
    },
    "--plugin": {
        "action": "append",
        "default": [],
        "metavar": "FILE",
        "help": "a file of your own that the run used",
    },
    "--long": {"action": "store_true", "help": "all columns, comparisons, references, reasons and notes"},
    "--rules": {"action": "store_true", "help": "how the verdicts are made; trains nothing"},
    "--config-dir": {
        "type": Path,
        "metavar": "DIR",
        "help": "a folder of configs of your own, as PHYSML_CONF",
    },
}
