"""Options that choose where the runs of a command are made: --on local, pilot, slurm, slurm/SITE or ray."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from physml.base.errors import ConfigError

WITH_VALUE = ("--on", "--workers", "--engine")  # options that a pilot does not get
MAKERS = ("table", "figure", "search", "run")  # commands that make runs
ALONE = ("--detach", "--plan")


def add(commands: Any) -> None:
    """Its arguments are a whole command, which `main` has with `--on pilot` before they are parsed."""
    pilot = commands.add_parser(
        "pilot",
        help="make the runs of a command beside other pilots, on any machine that shares the results folder",
        epilog="Example: physml pilot table lem-1 --seeds n5",
    )
    pilot.add_argument("pilot", nargs="+", metavar="COMMAND", help=f"{' or '.join(MAKERS)}, as usual")
    pilot.set_defaults(command=_without_command)


def of_pilot(command: Sequence[str]) -> list[str]:
    """The command whose runs a pilot makes. ConfigError for one that makes none."""
    if command[0] not in MAKERS:
        raise ConfigError(f"physml pilot stands before {', '.join(MAKERS)}; got {command[0]}.")
    return [*command, "--on", "pilot"]


def _without_command(_: argparse.Namespace) -> int:
    raise ConfigError("physml pilot stands before a whole command, such as physml pilot table lem-1.")


@contextlib.contextmanager
def distributed(options: argparse.Namespace, arguments: Sequence[str]) -> Iterator[None]:
    """The command inside makes its runs where --on says."""
    on = getattr(options, "on", "local")
    changes = list(getattr(options, "engine", None) or [])
    if workers := getattr(options, "workers", None):
        changes.append(f"workers={workers}")
    if on != "local" and getattr(options, "force", False):
        raise ConfigError(
            f"--force is for one process, --on local; got --on {on}. Pilots cannot tell a record that "
            "another has just made from an old one: delete the records that are to be made anew."
        )
    if on in ("local", "pilot"):
        if changes or getattr(options, "detach", False):
            raise ConfigError(f"--workers, --engine and --detach are for --on slurm or ray; got --on {on}.")
        if on == "local":
            yield
            return
        from physml.queue.pilot import sharing

        with sharing(wait=not options.no_wait):
            yield
        return
    if options.max_hours:
        raise ConfigError("--max-hours is for this machine; --engine hours=N is the limit of a pilot's job.")
    if options.jobs:
        raise ConfigError("--jobs is for this machine; use --workers and --engine cpus=N for pilots.")
    from physml.queue.engines.session import Session, engine_of

    with Session(engine_of(on, changes), pilot_command(arguments), options.detach).active():
        yield


def pilot_command(arguments: Sequence[str]) -> list[str]:
    """The same command for a pilot.

    Example:
        >>> pilot_command(["table", "lem-1", "--on", "slurm", "--workers=8", "--seeds", "n5"])
        ['table', 'lem-1', '--seeds', 'n5', '--on', 'pilot']
    """
    command, skip = [], False
    for word in arguments:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name in WITH_VALUE:
            skip = not equals
        elif word not in ALONE:
            command.append(word)
    return [*command, "--on", "pilot"]
