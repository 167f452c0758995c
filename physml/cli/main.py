"""The command line. Nothing slow is imported here; each command imports what it needs."""

import argparse
import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from physml import __version__
from physml.cli import records
from physml.errors import ConfigError, PhysmlError, near
from physml.execution import run_state, scheduler

EPILOG = """exit codes: 0 ok, 1 a run failed, 2 bad config or input, 75 stopped (the same command goes on)
environment: PHYSML_RESULTS (records, tables), PHYSML_DATA, PHYSML_CACHE, PHYSML_RUNS (work folders)"""


JOBS = "runs side by side: a number, or auto (default), as many as cores, memory and GPUs have room for"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors meant for a person become one line and an exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        try:
            options = parsed(arguments)
            command: Callable[[argparse.Namespace], int] = options.command
            with _stops_like_ctrl_c():
                return command(options)
        finally:
            sys.stdout.flush()  # here, where a closed pipe is no error
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; start the same command again to go on.", file=sys.stderr)
        return 75
    except BrokenPipeError:  # the reader, say `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that may not be written
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror or error}.", file=sys.stderr)
        return 2


@contextlib.contextmanager
def _stops_like_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGUSR1 end a command as Ctrl-C does, until a run takes them over to leave a checkpoint."""
    before = {}
    with contextlib.suppress(ValueError):  # not the main thread: signals stay as they are
        for number in (signal.SIGTERM, signal.SIGUSR1):
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Overrides and ids may also stand after and between options, which argparse alone refuses."""
    top = parser()
    options, rest = top.parse_known_args(arguments)
    name = next((name for name in ("overrides", "ids", "names") if hasattr(options, name)), None)
    if strange := [word for word in rest if word.startswith("-") or name is None]:
        top.error(f"unrecognized arguments: {' '.join(strange)}. See physml COMMAND --help")
    if name and rest:
        setattr(options, name, [*getattr(options, name), *rest])
    return options


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="physml", description="Check, compare and extend physics-inspired ML.", epilog=EPILOG)
    top.formatter_class = argparse.RawDescriptionHelpFormatter
    top.add_argument("--version", action="version", version=f"physml {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run(commands)
    _add_table(commands)
    _add_figure(commands)
    _add_search(commands)
    listing = commands.add_parser("list", help="models, tasks, tables, figures or experiments")
    listing.add_argument("kind", choices=("models", "tasks", "tables", "figures", "experiments"))
    listing.add_argument(
        "named", nargs="?", metavar="PART", help="only those with this in their name: g2/texas, 'lem/*-short'"
    )
    listing.add_argument(
        "--measure",
        nargs="*",
        metavar="TASK",
        default=None,
        help="load the data of tasks, and keep sizes and trivial references; default: all that are here",
    )
    _add_verify(listing)
    listing.set_defaults(command=_list)
    data = commands.add_parser("data", help="list, get or check data sets")
    data.add_argument("action", choices=("list", "get", "check"), metavar="{list,get,check}")
    data.add_argument(
        "names",
        nargs="*",
        default=[],
        metavar="NAME",
        help="data sets, or tasks that read them; default: all",
    )
    _add_verify(data)
    data.set_defaults(command=_data)
    doctor = commands.add_parser("doctor", help="what is installed, what is missing, how to get it")
    doctor.set_defaults(command=_doctor)
    records.add_parser(commands)
    diff = commands.add_parser("diff", help="what two runs differ in")
    diff.add_argument("records", nargs=2, metavar="RECORD")
    diff.set_defaults(command=_diff)
    return top


class _Parser(argparse.ArgumentParser):
    """Near names for mistyped commands and choices."""

    def error(self, message: str) -> NoReturn:
        if match := re.search(r"invalid choice: '(.+?)' \(choose from (.+)\)", message):
            typed, known = match.group(1), re.findall(r"[\w-]+", match.group(2))
            message = f"{message[: match.start()]}there is no {typed}. {near(typed, known)}"
        super().error(message)


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="train one model on one task, or many with -m",
        epilog="Example: physml run model=lem task=fitzhugh_nagumo seed=1",
    )
    run.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides: model=lem trainer.epochs=3"
    )
    run.add_argument("-m", "--multirun", action="store_true", help="all combinations of lists: seed=0,1")
    run.add_argument("--cfg", action="store_true", help="show the composed config and stop")
    run.add_argument("--adhoc", action="store_true", help="keep the record out of the tables")
    run.add_argument("--plan", action="store_true", help="show the runs with ms per step and hours, and stop")
    run.add_argument("--force", action="store_true", help="train again what is done")
    run.add_argument("--jobs", type=_jobs, default=None, help=JOBS)
    run.add_argument(
        "--max-hours", type=_hours, default=None, help="stop, with checkpoints, after so many hours"
    )
    _add_verify(run)
    run.set_defaults(command=_run)


def _add_table(commands: Any) -> None:
    table = commands.add_parser(
        "table", help="train what is missing and print a table beside the paper's numbers"
    )
    table.add_argument("ids", nargs="*", metavar="ID", help="lem-4, 4 (with --paper), thesis-5.4")
    table.add_argument("--all", action="store_true", help="every table with its state, nothing is trained")
    table.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="label=L,experiment=FILE",
        help="an extra row, or label=L,COLUMN=FILE,...; only such rows are trained",
    )
    table.add_argument(
        "--yours", action="append", default=[], metavar="RECORD", help="a record on its own line"
    )
    _add_common(table)
    table.set_defaults(command=_table)


def _add_figure(commands: Any) -> None:
    figure = commands.add_parser("figure", help="train what is missing and draw a figure of a paper")
    figure.add_argument("ids", nargs="+", metavar="ID", help="lem-fig-4")
    _add_common(figure)
    figure.set_defaults(command=_figure)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--paper", default="lem", help="the paper that a bare number belongs to")
    command.add_argument("--seeds", default=None, help="0,1,2 or n5; default: those of the config")
    command.add_argument("--no-run", action="store_true", help="render what is there")
    command.add_argument("--force", action="store_true", help="train again what is done")
    command.add_argument("--smoke", action="store_true", help="tiny sizes, records in a temporary folder")
    command.add_argument("--plan", action="store_true", help="show runs, ms per step and hours, and stop")
    command.add_argument("--jobs", type=_jobs, default=None, help=JOBS)
    command.add_argument(
        "--max-hours", type=_hours, default=None, help="stop, with checkpoints, after so many hours"
    )
    command.add_argument("--device", default=None, help="auto, cpu, cuda")
    _add_verify(command)


def _add_verify(command: Any) -> None:
    command.add_argument(
        "--verify",
        choices=("bytes", "content", "off"),
        default=None,
        help="how files of data sets are compared with the published ones; default: by their bytes",
    )


def _add_search(commands: Any) -> None:
    search = commands.add_parser("search", help="random search on validation data; writes an experiment file")
    search.add_argument(
        "ids", nargs="+", metavar="ID", help="names of conf/search, e.g. fitzhugh_nagumo-cornn"
    )
    search.add_argument("--jobs", type=_jobs, default=None, help=JOBS)
    search.add_argument("--max-hours", type=_hours, default=None, help="stop after so many hours")
    _add_verify(search)
    search.set_defaults(command=_search)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on; got {text!r}")
    return int(text)


def _jobs(text: str) -> int | None:
    return None if text == "auto" else _count(text)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number of hours; got {text!r}")
    return hours


# ---------------------------------------------------------------------------- commands


def _run(options: argparse.Namespace) -> int:
    from physml.config.compose import compose, expand

    combinations = expand(options.overrides) if options.multirun else [options.overrides]
    verify = [f"data.verify={options.verify}"] if options.verify else []
    composed = [compose([*c, *verify]) for c in combinations]
    if options.cfg:
        import yaml

        from physml.config.identity import identity

        for one in composed:
            print(f"# identity {identity(one.config)}")
            print(yaml.safe_dump(one.config, sort_keys=False, allow_unicode=True), end="")
    from physml.cli.console import show_plan
    from physml.execution import planning
    from physml.execution.run_spec import checked_specs

    specs = checked_specs(composed, adhoc=options.adhoc)
    if options.cfg:
        return 0
    if options.plan:
        show_plan(planning.plan(specs, force=options.force, probe=True))
        return 0
    if len(specs) == 1 and options.max_hours is None:
        return _run_one(specs[0], options.force)
    planned = planning.plan(specs, force=options.force)
    outcome = scheduler.carry_out(
        planned, jobs=options.jobs, force=options.force, max_hours=options.max_hours
    )
    from physml.cli.console import show_outcomes

    show_outcomes(planned, outcome)
    return max(outcome.exit_code, 2 if any(one.state == "blocked" for one in planned) else 0)


def _run_one(spec: Any, force: bool) -> int:
    from physml.cli.console import describe
    from physml.execution import planning
    from physml.execution.progress import reporter
    from physml.execution.run import perform

    if planning.plan([spec], force=force)[0].state == "blocked":
        run_state.refuse_blocked(spec)

    made = perform(spec, reporter(), force=force)
    print(describe(made))
    return 0 if made["status"] == "finished" else 1


def _table(options: argparse.Namespace) -> int:
    from physml.cli import commands

    if options.all:
        return commands.tables_with_state(options.paper)
    if not options.ids:
        raise ConfigError("name a table, e.g. physml table lem-4, or use --all. All: physml list tables")
    with commands.smoke_roots(options.smoke):
        return _each(options.ids, lambda name: commands.table(name, options))


def _figure(options: argparse.Namespace) -> int:
    from physml.cli import commands

    with commands.smoke_roots(options.smoke):
        return _each(options.ids, lambda name: commands.figure(name, options))


def _search(options: argparse.Namespace) -> int:
    from physml.execution import search

    keys = {"jobs": options.jobs, "max_hours": options.max_hours, "verify": options.verify or "bytes"}
    return _each(options.ids, lambda name: search.search(name, **keys))


def _each(ids: list[str], command: Callable[[str], int]) -> int:
    """One after another; a stop (75) ends them all, a failure only its own. The worst code counts."""
    codes = []
    for name in ids:
        codes.append(command(name))
        if codes[-1] == 75:
            break
    return max(codes)


def _list(options: argparse.Namespace) -> int:
    from physml.cli import inventory

    if options.measure is not None:
        from physml.cli import commands

        return commands.measured(options.kind, options.measure, options.verify or "bytes")
    print(inventory.text(inventory.entries(options.kind, options.named)))
    return 0


def _data(options: argparse.Namespace) -> int:
    from physml.cli import commands

    return commands.data(options.action, options.names, options.verify or "bytes")


def _doctor(options: argparse.Namespace) -> int:
    from physml.cli import doctor

    return doctor.main()


def _diff(options: argparse.Namespace) -> int:
    from physml.cli import commands

    return commands.diff(*options.records)


if __name__ == "__main__":
    sys.exit(main())
