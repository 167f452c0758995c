"""`physml diff`: what two runs differ in."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    diff = commands.add_parser("diff", help="what two runs differ in")
    diff.add_argument("records", nargs=2, metavar="RECORD")
    diff.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    """Prints the leaves in which two records differ; exit code 0 either way."""
    from physml.records import record

    first, second = (record.read(Path(path)) for path in options.records)
    differences = record.differences(first, second)
    for key, a, b in differences:
        print(f"{key}: {a!r} | {b!r}")
    if not differences:
        print("no difference")
    return 0
