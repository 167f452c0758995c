"""`physml status`, `logs`, `failed` and `retry`: what runs, what went wrong, and a new start."""

import argparse
import functools
import os
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base import opened
from physml.base.errors import ConfigError, PhysmlError
from physml.base.paths import display_path, work_root
from physml.cli.console import Line, aligned, terminal_width
from physml.cli.options import add_options, count, seconds, smoke_roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from physml.queue.planning import Planned
    from physml.queue.status import Seen

NONE = "no run was started here. Of a table, a figure or an experiment: physml status lem-4"
SHOWN = ("running", "failed", "given up", "stopped")  # each on a line; --all shows the others too
COMMON = ("--paper", "--seeds", "--smoke", "--device", "--verify")
NAMES = {
    "nargs": "*",
    "metavar": "ID",
    "help": "tables, figures or experiments, such as lem-4 or ./mine.yaml; none: all that was started here",
}


def add(commands: Any) -> None:
    status = commands.add_parser("status", help="how far the runs of tables, figures or experiments are")
    status.add_argument("ids", **NAMES)
    status.add_argument("--watch", action="store_true", help="look again every few seconds until all is done")
    status.add_argument("--every", type=seconds, default=10.0, metavar="S", help="seconds between two looks")
    status.add_argument("--all", action="store_true", help="every run on a line, done and missing ones too")
    logs = commands.add_parser("logs", help="the last lines that runs have printed")
    logs.add_argument("ids", **NAMES)
    logs.add_argument("--lines", type=count, default=20, metavar="N", help="of each run")
    failed = commands.add_parser("failed", help="runs that have failed, with the reason")
    failed.add_argument("ids", **NAMES)
    retry = commands.add_parser("retry", help="let pilots start runs again that were given up")
    retry.add_argument("ids", **NAMES)
    for command, act in ((status, _status), (logs, _logs), (failed, _failed), (retry, _retry)):
        add_options(command, COMMON)
        command.set_defaults(command=functools.partial(_in_roots, act), broken=False)


def _in_roots(act: "Callable[[argparse.Namespace], int]", options: argparse.Namespace) -> int:
    if options.smoke and not os.environ.get("PHYSML_RESULTS"):
        raise ConfigError("--smoke needs PHYSML_RESULTS: the folder that the smoke run has named at its end.")
    with smoke_roots(options.smoke):
        return act(options)


def _each(options: argparse.Namespace) -> "Iterator[tuple[str, list[Planned]]]":
    """The runs that each name means, with their states; without names, all with a work folder."""
    for name in options.ids:
        yield name, _planned(name, options)
    if not options.ids:
        yield display_path(work_root()), _started()


def _started() -> "list[Planned]":
    """Runs whose work folder is there."""
    from physml.queue import planning
    from physml.run.spec import RunSpec

    def left_out(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # nothing was started yet, or its folder has just gone
            print(f"{display_path(Path(error.filename))} cannot be read ({error.strerror}), and is left out")

    planned = []
    folders = sorted(
        Path(name) for name, _, inside in os.walk(work_root(), onerror=left_out) if "spec.json" in inside
    )
    for path in (folder / "spec.json" for folder in folders):
        try:
            spec = RunSpec.from_json(opened.read_json(path)["spec"])
            if spec.file == path:  # else a smoke run, or a folder that was moved
                planned += planning.plan([spec])
        except PhysmlError as error:  # such as a damaged record
            print(f"{display_path(path.parent)} is left out: {error}")
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            print(f"{display_path(path)} cannot be read, and is left out")
    return planned


def _planned(name: str, options: argparse.Namespace) -> "list[Planned]":
    from physml.config import studies
    from physml.config.conf_files import absolute, kind_at
    from physml.queue.requested import RequestedRuns, RunOptions
    from physml.report.figure import spec as figure_spec
    from physml.report.table import spec as table_spec
    from physml.report.table.typed import parse_seeds
    from physml.search.spec import final_runs

    seeds = parse_seeds(options.seeds) if options.seeds else None
    if studies.is_name(name):
        places = sorted(final_runs(name) or {(0, 0)})
        if seeds:
            places = list(product(sorted({split for split, _ in places}), seeds))
        runs = [(name, split, seed) for split, seed in places]
    elif name in figure_spec.figure_ids() or kind_at(Path(absolute(name))) == "figure":
        figure = figure_spec.load_figure(figure_spec.find_figure(name, options.paper))
        runs = (figure.with_seeds(seeds) if seeds else figure).runs
    else:
        path = table_spec.find_table(name, options.paper)
        if table_spec.kind_of(path) == "settings":
            raise ConfigError(f"{name} is a table of settings: it has no runs.")
        table = table_spec.load_table(path)
        runs = (table.with_seeds(seeds) if seeds else table).runs
    how = RunOptions(smoke=options.smoke, device=options.device, verify=options.verify)
    requested = RequestedRuns(runs, how, name)
    planned = list(requested.plan().values())
    options.broken |= bool(requested.tell_broken())
    return planned


def _status(options: argparse.Namespace) -> int:
    from physml.queue.status import seen, summary

    while True:
        going = False
        for name, planned in _each(options):
            runs = [seen(run) for run in planned]
            shown = runs if options.all else [run for run in runs if run.state in SHOWN]
            print(summary(name, runs, planned) if runs else f"{name}: {NONE}")
            _print(shown)
            going |= any(run.state not in ("done", "diverged", "blocked", "given up") for run in runs)
        if not (options.watch and going):
            return 2 if options.broken else 0
        print(flush=True)
        time.sleep(options.every)


def _print(runs: "list[Seen]") -> None:
    if runs:
        lines = [Line((f"  {run.state}", run.spec.label), (run.text,) if run.text else ()) for run in runs]
        print(aligned(lines, terminal_width(110)))


def _logs(options: argparse.Namespace) -> int:
    from physml.queue.processes import output_lines

    any_output = False
    for _, planned in _each(options):
        for run in planned:
            if lines := output_lines(run.spec):
                any_output = True
                print(f"{run.spec.label}: {run.said}: {display_path(run.spec.log_file)}")
                print("\n".join(f"  {line}" for line in lines[-options.lines :]))
    if not any_output:
        print("No output is kept: nothing was started, or it ran in the foreground without a warning.")
    return 2 if options.broken else 0


def _failed(options: argparse.Namespace) -> int:
    from physml.queue.status import seen

    runs = [seen(run) for _, planned in _each(options) for run in planned]
    lacking = [run for run in runs if run.state in ("failed", "given up")]
    _print(lacking)
    for run in lacking:
        print(f"{run.spec.label}: output in {display_path(run.spec.log_file)}")
    if not lacking:
        print("No run has failed.")
    return 2 if options.broken else 1 if lacking else 0


def _retry(options: argparse.Namespace) -> int:
    from physml.run import history

    runs = [run for _, planned in _each(options) for run in planned if run.todo]
    again = [run for run in runs if history.forget(run.spec.work_folder)]
    for run in again:
        print(f"{run.spec.label}: the next pilot starts it")
    if not again:
        print("Nothing was given up or failed in vain.")
    return 2 if options.broken else 0
