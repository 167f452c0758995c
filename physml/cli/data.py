"""`physml data`: the data sets, their files, and whether they are sound."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from physml.base.errors import ConfigError
from physml.base.paths import display_path
from physml.cli.console import Line, aligned, terminal_width
from physml.cli.options import VERIFY, add_options

if TYPE_CHECKING:
    from physml.data.catalogue import DataRow


def add(commands: Any) -> None:
    data = commands.add_parser("data", help="list, get or check data sets")
    data.add_argument("action", choices=("list", "get", "check"), metavar="{list,get,check}")
    data.add_argument(
        "names",
        nargs="*",
        default=[],
        metavar="NAME",
        help="data sets, or tasks that read them; default: all (of get: the word all)",
    )
    data.add_argument("--long", action="store_true", help="every file, where it is and what for")
    add_options(data, VERIFY)
    data.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    """Exit code 2 where something is damaged."""
    from physml.data import catalogue
    from physml.data.store import Store

    store = Store.from_env(options.verify or "bytes")
    if options.action == "get" and options.names == ["all"]:
        options.names = []
    elif options.action == "get" and not options.names:
        raise ConfigError("name what to download, such as physml data get mnist, or all: physml data get all")
    chosen = catalogue.choose(options.names)
    work = {"list": catalogue.list_data, "get": catalogue.get_data, "check": catalogue.check_data}
    rows = work[options.action](chosen, store)
    print(short(rows) if options.action == "list" and not (options.names or options.long) else text(rows))
    for line in catalogue.summary(chosen, store):
        print(line)
    unchecked = options.action == "check" and catalogue.incomplete(options.names, chosen, store)
    return 2 if unchecked or any(row.state == "damaged" for row in rows) else 0


def short(rows: "Sequence[DataRow]") -> str:
    """For each data set the state of its files, their size and the licence; in a pipe one line each."""
    from physml.data.catalogue import size_text

    of: dict[str, list[DataRow]] = {}
    for row in rows:
        of.setdefault(row.dataset, []).append(row)
    lines = []
    for name, files in of.items():
        counts = Counter(row.state for row in files)
        state = ", ".join(f"{n} {state}" if len(counts) > 1 else state for state, n in counts.items())
        sizes = [row.size for row in files]
        size = size_text(None if None in sizes else sum(filter(None, sizes)))
        facts = ", ".join(filter(None, (state, size)))
        lines.append(Line((name, f"{facts}; licence: {files[0].licence}" if files[0].licence else facts)))
    return aligned(lines, terminal_width(80) if sys.stdout.isatty() else None)


def text(rows: "Sequence[DataRow]") -> str:
    """Data sets with their files below, wrapped at the width of the terminal; no path is cut."""
    return aligned(list(_lines(rows)), max(terminal_width(110), 60))


def _lines(rows: "Sequence[DataRow]") -> Iterator[Line | str]:
    from physml.data.catalogue import size_text

    widest = max((len(size_text(row.size)) for row in rows), default=0)
    dataset = None
    for row in rows:
        if row.dataset != dataset:
            dataset = row.dataset
            yield f"{dataset}, licence: {row.licence}" if row.licence else dataset
        about = ": ".join(filter(None, (row.file, row.note)))
        yield Line((f"  {row.state}", size_text(row.size).rjust(widest), about))
        if row.path is not None and str(row.path) not in row.note:
            yield Line(("", "", f"at {display_path(row.path)}"), whole=True)
