"""`physml list`: models, tasks, tables, figures, experiments or searches."""

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from physml.base.errors import ConfigError, DataError, suggest
from physml.cli.console import Line, aligned, one_line, terminal_width
from physml.cli.options import VERIFY, add_options

if TYPE_CHECKING:
    from physml.listing.inventory import Entry


WRAP: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "  ", "break_on_hyphens": False}


def add(commands: Any) -> None:
    listing = commands.add_parser("list", help="models, tasks, tables, figures, experiments or searches")
    listing.add_argument(
        "kind",
        nargs="?",
        choices=("models", "tasks", "tables", "figures", "experiments", "searches"),
        help="none: the names of all",
    )
    listing.add_argument(
        "named", nargs="?", metavar="PART", help="only those with this in their name: g2/texas, 'lem/*-short'"
    )
    listing.add_argument("--long", action="store_true", help="whole descriptions, and all that is known")
    listing.add_argument("--settings", action="store_true", help="what each experiment sets, below its name")
    listing.add_argument(
        "--measure",
        nargs="*",
        metavar="TASK",
        default=None,
        help="load the data of tasks, and keep sizes and trivial references; default: all that are here",
    )
    add_options(listing, VERIFY)
    listing.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.listing import inventory

    if options.measure is not None:
        return _measure(options.kind, options.measure, options.verify or "bytes")
    if options.kind is None:
        print(names())
        return 0
    entries = inventory.entries(options.kind, options.named, settings=options.settings)
    print(text(entries) if options.long or options.settings or len(entries) == 1 else short(entries))
    return 0


def names() -> str:
    """The names of models, tasks, tables and figures, and how many experiments and searches there are."""
    from physml.listing import inventory

    by_kind = {kind: [entry.name for entry in inventory.entries(kind)] for kind in inventory.KINDS}
    lines = []
    for kind, known in by_kind.items():
        many = kind in ("experiments", "searches")
        lines.append(f"{len(known)} {kind}" + ("" if many else ":"))
        if not many:
            lines.append(textwrap.fill(", ".join(known), terminal_width(110), **WRAP))
    return "\n".join([*lines, "physml list KIND has a line for each, physml list KIND NAME all on one."])


def _measure(kind: str | None, names: list[str], verify: str) -> int:
    """Measures the tasks; exit code 2 where one that was named cannot be."""
    from physml.listing import inventory
    from physml.listing import tasks as task_facts

    if kind != "tasks":
        raise ConfigError("--measure is for tasks: physml list tasks --measure [TASK ...]")
    known = [entry.name for entry in inventory.tasks() if entry.target]
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no task {name}. {suggest(name, known)}")
    code = 0
    for name in names or known:
        try:
            task_facts.measure(name, verify)
        except DataError as error:
            print(f"{name}: not measured: {error}", file=sys.stderr)
            code = 2 if names else code
    print(text([entry for entry in inventory.tasks() if entry.name in (names or known)]))
    return code


def short(entries: list["Entry"]) -> str:
    """One line for each entry, cut to the terminal's width; whole in a pipe."""
    return one_line([(entry.name, entry.about) for entry in entries]) or "none yet"


def text(entries: list["Entry"]) -> str:
    """One entry a line, long descriptions continued below."""
    about = [f"{entry.about} [{entry.facts}]" if entry.facts else entry.about for entry in entries]
    lines = [Line((entry.name, words), entry.below) for entry, words in zip(entries, about, strict=True)]
    return aligned(lines, terminal_width(110)) or "none yet"
