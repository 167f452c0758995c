"""`physml diff`: what two runs differ in."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    diff = commands.add_parser("diff", help="what two runs differ in")
    diff.add_argument(
        "records", nargs=2, metavar="RECORD", help="a record, its place below results/runs, or an experiment"
    )
    diff.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    """Prints the leaves in which two records differ; exit code 0 either way."""
    from physml.records import record
    from physml.run.named import run_of

    first, second = (run_of(name, split=0, seed=0) for name in options.records)
    for run in (first, second):
        run.pop("path", None)
    differences = record.differences(first, second)
    for key, a, b in differences:
        print(f"{key}: {a!r} | {b!r}")
    if not differences:
        print("no difference")
    return 0
