"""`physml compare`: two rows of a table, or two experiments, by their runs of equal split and seed.

`physml diff`: what two runs differ in.
"""

import argparse
from typing import TYPE_CHECKING, Any

from physml.base import files
from physml.base.errors import ConfigError
from physml.base.paths import display_path
from physml.cli.console import print_document
from physml.cli.options import PAPER, add_options, out_file

if TYPE_CHECKING:
    from physml.report.compare.text import Rows


def add(commands: Any) -> None:
    compare = commands.add_parser(
        "compare", help="two rows of a table, or two experiments, by their finished runs; trains nothing"
    )
    compare.add_argument("first", metavar="A", help="the label of a row; or an experiment, or a record")
    compare.add_argument("second", metavar="B", help="the other one")
    compare.add_argument("--table", metavar="ID", help="the table whose rows A and B are: lem-4")
    add_options(compare, PAPER)
    compare.add_argument("--column", metavar="KEY", help="one column of the table; default: all")
    compare.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="label=L,experiment=FILE",
        help="a row of your own, A or B: also label=L,COLUMN=FILE,...; with its own seeds=0-4",
    )
    compare.add_argument(
        "--metric", metavar="test/NAME", help="of two experiments; default: each that both have on test data"
    )
    compare.add_argument(
        "--better", choices=("lower", "higher"), help="the direction of a metric that physml does not know"
    )
    compare.add_argument("--long", action="store_true", help="the runs, pair by pair")
    compare.add_argument("--rules", action="store_true", help="how they are compared")
    compare.add_argument("--out", metavar="FILE", help="write it too: .md or .csv")
    compare.set_defaults(command=_compare)
    diff = commands.add_parser("diff", help="what two runs differ in")
    diff.add_argument(
        "records", nargs=2, metavar="RECORD", help="a record, its place below results/runs, or an experiment"
    )
    diff.set_defaults(command=_diff)


def _compare(options: argparse.Namespace) -> int:
    from physml.report.compare.text import document
    from physml.report.text.document import FORMS

    out = out_file(options.out, FORMS) if options.out else None
    comparison = document(_of_table(options) if options.table else _of_experiments(options))
    print_document(comparison, long=options.long, rules=options.rules)
    if out:
        files.write_text(out, FORMS[out.suffix.removeprefix(".")](comparison))
        print(f"written: {display_path(out)}")
    return 0


# --- two rows of a table


def _of_table(options: argparse.Namespace) -> "Rows":
    from physml.listing.rows import rows_of_table
    from physml.report.table.spec import find_table, load_table
    from physml.report.table.typed import parse_row, with_rows

    if options.metric or options.better:
        raise ConfigError("--metric and --better are for two experiments: a table's columns say both.")
    spec = load_table(find_table(options.table, options.paper))
    spec = with_rows(spec, map(parse_row, options.row)) if options.row else spec
    hint = f"Train what is missing with physml table {options.table}, or choose other rows."
    return rows_of_table(spec, (options.first, options.second), options.column, hint)


# --- two experiments


def _of_experiments(options: argparse.Namespace) -> "Rows":
    from physml.listing.rows import rows_of_experiments

    for name in ("column", "row"):
        if getattr(options, name):
            raise ConfigError(f"--{name} is for rows of a table: give --table too.")
    return rows_of_experiments(options.first, options.second, options.metric, options.better)


# --- two runs


def _diff(options: argparse.Namespace) -> int:
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
