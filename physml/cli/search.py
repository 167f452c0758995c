"""`physml search`: random search on validation data."""

import argparse
from typing import Any

from physml.cli.options import JOBS, VERIFY, add_options, each


def add(commands: Any) -> None:
    search = commands.add_parser("search", help="random search on validation data for a row of a study")
    search.add_argument(
        "ids", nargs="+", metavar="ID", help="experiments that name a search, e.g. lem/fitzhugh_nagumo-cornn"
    )
    add_options(search, JOBS, VERIFY)
    search.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.execution.search import search

    verify = options.verify or "bytes"
    return each(
        options.ids, lambda name: search(name, jobs=options.jobs, max_hours=options.max_hours, verify=verify)
    )
