"""Options that several commands share, and the types of their values."""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.errors import ConfigError, DataError
from physml.paths import display_path, results_root

if TYPE_CHECKING:
    from physml.execution.requested_runs import RunOptions

JOBS = "runs side by side: a number, or auto (default), as many as cores, memory and GPUs have room for"
SMOKE = "smoke run: tiny sizes, made-up data, no results"


def add_jobs(command: Any) -> None:
    command.add_argument("--jobs", type=_jobs, default=None, help=JOBS)
    command.add_argument(
        "--max-hours", type=_hours, default=None, help="stop, with checkpoints, after so many hours"
    )


def add_verify(command: Any) -> None:
    command.add_argument(
        "--verify",
        choices=("bytes", "content", "off"),
        default=None,
        help="how files of data sets are compared with the published ones; default: by their bytes",
    )


def add_plan(command: Any) -> None:
    command.add_argument(
        "--plan", action="store_true", help="show the runs, with ms per step and hours where known, and stop"
    )
    command.add_argument("--probe", action="store_true", help="with --plan: time a few steps of the others")
    command.add_argument("--force", action="store_true", help="train finished runs again")


def add_published(command: Any) -> None:
    """The options of tables and figures."""
    command.add_argument("--paper", default="lem", help="the paper that a bare number belongs to")
    command.add_argument(
        "--seeds", default=None, help="0,1,2, or n5 for the first five; default: those of the config"
    )
    command.add_argument(
        "--no-run", action="store_true", help="print or draw existing records, train nothing"
    )
    command.add_argument("--smoke", action="store_true", help="tiny sizes, records in a temporary folder")
    command.add_argument("--device", type=_device, default=None, help="auto, cpu or cuda")
    add_plan(command)
    add_jobs(command)
    add_verify(command)


def run_options(options: argparse.Namespace) -> "RunOptions":
    from physml.execution.requested_runs import RunOptions

    return RunOptions(
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(RunOptions)}
    )


def check_probe(options: argparse.Namespace) -> None:
    if options.probe and not options.plan:
        raise ConfigError("--probe measures what --plan shows: give both.")


def each(names: list[str], command: Callable[[str], int]) -> int:
    """One after another; a stop (75) ends them all, a failure only its own. The worst code counts."""
    codes = []
    for name in names:
        codes.append(command(name))
        if codes[-1] == 75:
            break
    return max(codes)


@contextlib.contextmanager
def smoke_roots(smoke: bool) -> Iterator[None]:
    """Under --smoke, results go to a temporary folder unless the user named one."""
    if not smoke or os.environ.get("PHYSML_RESULTS"):
        yield
        return
    from physml.execution import scheduler

    folder = scheduler.temporary_results()
    os.environ["PHYSML_RESULTS"] = str(folder)
    try:
        yield
        print(f"smoke results: {folder}", file=sys.stderr)
    finally:
        del os.environ["PHYSML_RESULTS"]


@contextlib.contextmanager
def results_folder(kind: str, smoke: bool) -> Iterator[Path]:
    """Where tables and figures are written; those of smoke runs must not take the place of true ones."""
    folder = results_root() / "smoke" / kind if smoke else results_root() / kind
    try:
        yield folder
    except OSError as error:
        raise DataError(
            f"{display_path(folder)} cannot be written: {error.strerror or error}. "
            "Free space, or set PHYSML_RESULTS to another folder."
        ) from error


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on; got {text!r}")
    return int(text)


def _jobs(text: str) -> int | None:
    return None if text == "auto" else _count(text)


def _device(text: str) -> str:
    """A kind of device that torch may have here; a run says whether it has it."""
    if text.partition(":")[0] not in ("auto", "cpu", "cuda", "mps", "xpu"):
        raise argparse.ArgumentTypeError(f"must be auto, cpu or cuda; got {text!r}")
    return text


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number of hours; got {text!r}")
    return hours
