"""`physml table`: what is missing is trained; the table stands beside the paper's numbers."""

import argparse
import dataclasses
import gc
import os
import textwrap
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base import files
from physml.base.errors import ConfigError
from physml.base.paths import display_path
from physml.cli.console import Line, aligned, print_document, show_requested, terminal_width
from physml.cli.options import (
    PUBLISHED,
    SMOKE,
    VIEW,
    add_options,
    each,
    out_file,
    results_folder,
    run_options,
    smoke_roots,
)

if TYPE_CHECKING:
    from physml.queue.requested import RequestedRuns
    from physml.report.table.collect import Table
    from physml.report.table.spec import TableSpec
    from physml.report.text.document import Document


def add(commands: Any) -> None:
    table = commands.add_parser(
        "table", help="train what is missing and print a table beside the paper's numbers"
    )
    table.add_argument(
        "ids", nargs="*", metavar="ID", help="lem-4, 4 (with --paper), thesis-5.4, ./mine.yaml"
    )
    table.add_argument("--all", action="store_true", help="every table with its state, nothing is trained")
    add_options(table, ("--row",))
    table.add_argument(
        "--yours", action="append", default=[], metavar="RECORD", help="a record on its own line"
    )
    table.add_argument(
        "--html",
        nargs="?",
        const="",
        metavar="FILE",
        help="also write one self-contained page (ID.html in the working folder)",
    )
    add_options(table, VIEW)
    table.add_argument(
        "--write",
        action="store_true",
        help="write the table to results/tables, as after training; with --all results/README.md",
    )
    latex = table.add_argument_group("LaTeX", "a table for a paper (booktabs), of what these options choose")
    latex.add_argument("--latex", metavar="FILE", help="write it; -: print it, and nothing else")
    latex.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ROW",
        help="a row's label or 'G2-*'; again for more rows",
    )
    latex.add_argument("--columns", metavar="KEYS", help="columns by their keys: texas,film; default: all")
    latex.add_argument(
        "--show", metavar="LIST", help="of published, ours, interval, best, runs, difference, outcome"
    )
    latex.add_argument("--bold-best", action="store_true", help="the best number of each column in bold")
    add_options(table, PUBLISHED)
    table.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.report.table import spec as tables

    if not options.latex and (options.only or options.columns or options.show or options.bold_best):
        raise ConfigError(
            "--only, --columns, --show and --bold-best need --latex FILE, or --latex - to print."
        )
    if options.all:
        if options.ids or options.latex or options.html is not None:
            raise ConfigError("--all lists every table: it takes no ID, --latex or --html.")
        return _write_overview() if options.write else _all_with_state()
    if not options.ids:
        raise ConfigError("name a table, e.g. physml table lem-4, or use --all. All: physml list tables")

    if len(options.ids) > 1 and (options.html or options.latex not in (None, "-")):
        raise ConfigError("one FILE holds one table: name a single ID, or --html without FILE, or --latex -.")

    # What cannot be is refused now, not after hours.
    paths = [tables.find_table(name, options.paper) for name in options.ids]
    for file in filter(None, (options.html, options.latex)):
        out_file(file)

    options.no_run |= options.rules  # to read them trains nothing

    def show(path: Path) -> int:
        return (_settings if tables.kind_of(path) == "settings" else _results)(path, options)

    with smoke_roots(options.smoke):
        return each(paths, show)


def _results(path: Path, options: argparse.Namespace) -> int:
    """A table of results; returns the exit code."""
    from physml.queue.requested import RequestedRuns
    from physml.records import costs
    from physml.report.table.collect import collect, recorded
    from physml.report.table.spec import load_table
    from physml.report.view.text import document
    from physml.run.named import run_of

    spec = _with_options(load_table(path), options)
    own: dict[str, str] = {}
    metrics: dict[str, dict[str, str]] = {}
    for row, column in product(spec.rows, spec.columns):
        if experiment := spec.cell(row, column).experiment:
            metrics.setdefault(experiment, {})[column.metric] = column.better
            own |= {experiment: row.label} if row.extra else {}
    requested = RequestedRuns(spec.runs, run_options(options), spec.id, own or None, metrics)
    requested.refuse_broken_rows()
    _refuse_other_tasks(spec, requested.tasks)
    if options.plan:
        return show_requested(requested, probe=options.probe)
    if not options.no_run:
        _refuse_seeds_of_searches(spec, requested)
    code = 0 if options.no_run else requested.make()
    if options.on == "pilot":
        return code
    records = requested.wanted_records()
    code = max(code, requested.tell_broken())
    yours = [run_of(name, split=0, seed=0) for name in options.yours]
    running, blocked = requested.running(), requested.untrainable
    hours = costs.hours_of_settings()
    table = collect(spec, requested.identities, records, running, yours=yours, blocked=blocked, hours=hours)
    if options.latex:
        _latex(table, options)
        return code
    print_document(document(table), long=options.long, rules=options.rules)
    # The reader's own rows and runs are written only where PHYSML_RESULTS says.
    own_lines = options.yours or options.row or options.seeds
    if options.write or not (options.no_run or (own_lines and not os.environ.get("PHYSML_RESULTS"))):
        _write(document(recorded(spec, requested.identities, records, hours=hours)), options)
    if options.html is not None:
        _write_page(spec, requested, options)
    if options.smoke:
        print(_smoke_end(spec, {r["experiment"] for r in records if r["status"] == "finished"}))
    return code


def _refuse_other_tasks(spec: "TableSpec", tasks: dict[str, str]) -> None:
    """ConfigError for a row of the reader's own whose task is none of those in its column."""
    for column in spec.columns:
        cells = [(row, spec.cell(row, column).experiment or "") for row in spec.rows]
        known = {tasks[name] for row, name in cells if name in tasks and not row.extra}
        for row, name in cells:
            if row.extra and known and tasks.get(name, "") not in {"", *known}:
                raise ConfigError(
                    f"row {row.label}, column {column.title}: {name} has the task {tasks[name]}; that of "
                    f"{spec.id} is {' or '.join(sorted(known))}. Name a row with this task."
                )


def _refuse_seeds_of_searches(spec: "TableSpec", requested: "RequestedRuns") -> None:
    """ConfigError where a seed of the table has chosen the settings of a row too."""
    from physml.records.searches import content_of_file

    for experiment, about in requested.provenance.items():
        content = content_of_file(Path(about["search"]).stem) if about.get("search") else None
        if content:
            search = content["search"]
            used = {seed for stage in search["stages"] for seed in stage["seeds"] or [search["seed"]]}
            if shared := sorted(used & set(spec.seeds_of(experiment))):
                raise ConfigError(
                    f"{experiment}: seed {shared[0]} is one of those that its search judged by, so its score "
                    f"would be too good. Choose others than {', '.join(map(str, sorted(used)))}."
                )


def _smoke_end(spec: "TableSpec", finished: set[str]) -> str:
    """The rows that have runs, and those of which one is without a finished one."""
    cells = {row.label: [spec.cell(row, column).experiment for column in spec.columns] for row in spec.rows}
    trained = {label: set(filter(None, names)) for label, names in cells.items() if any(names)}
    failed = [label for label, names in trained.items() if not names <= finished]
    if failed:
        return f"{len(trained)} rows, {len(failed)} without a finished run: {', '.join(failed)}"
    return f"ok: {len(trained)} rows, 0 failed"


def _write_page(spec: "TableSpec", requested: "RequestedRuns", options: argparse.Namespace) -> None:
    """The table as a page to send."""
    from physml.site.build import one_table
    from physml.site.content import results_of

    out = out_file(options.html or f"{spec.id}.html")
    files.write_text(out, one_table(results_of(spec, requested)))
    print(f"written: {display_path(out)}")


def _latex(table: "Table", options: argparse.Namespace) -> None:
    """Writes or prints the table for a paper."""
    from physml.report.table.latex import USUAL, latex_table

    columns, show = (text.split(",") if text else [] for text in (options.columns, options.show))
    text = latex_table(table, options.only, columns, show or USUAL, bold_best=options.bold_best)
    if options.latex == "-":
        print(text, end="")
    else:
        out = out_file(options.latex)
        files.write_text(out, text)
        print(f"written: {display_path(out)}")


def _with_options(spec: "TableSpec", options: argparse.Namespace) -> "TableSpec":
    from physml.report.table.typed import parse_row, parse_seeds, with_rows

    if options.seeds:
        spec = dataclasses.replace(spec.with_seeds(parse_seeds(options.seeds)), finding=None)
    if options.smoke:
        spec = dataclasses.replace(spec, title=f"{spec.title} ({SMOKE})", finding=None)
    return with_rows(spec, map(parse_row, options.row)) if options.row else spec


def _settings(path: Path, options: argparse.Namespace) -> int:
    """A table of settings; returns the exit code."""
    from physml.report.table.settings import collect_settings, load_settings
    from physml.report.table.settings_text import document

    spec = load_settings(path)
    if options.latex:
        raise ConfigError(f"--latex is for tables of results; {spec.id} is a table of settings.")
    if options.seeds or options.row or options.yours:
        raise ConfigError(f"{spec.id} is a table of settings: it has no runs for --seeds, --row or --yours.")
    if options.html is not None:
        raise ConfigError(f"{spec.id} is a table of settings: its page is part of physml site.")
    if options.plan:
        print(f"no runs: {spec.id} is a table of settings, read from conf/")
    else:
        settings = document(collect_settings(spec))
        print_document(settings, long=options.long, rules=options.rules)
        if options.write or not options.no_run:
            _write(settings, options)
    return 0


def _write(document: "Document", options: argparse.Namespace) -> None:
    from physml.report.text.document import write

    with results_folder("tables") as folder:
        written = write(document, folder)
    for file in written:
        print(f"written: {display_path(file)}")


def _write_overview() -> int:
    """results/README.md: every table in a line."""
    from physml.base.paths import results_root
    from physml.listing.overview import overview

    path = results_root() / "README.md"
    files.write_text(path, overview())
    print(f"written: {display_path(path)}")
    return 0


def _all_with_state() -> int:
    from physml.listing import tables as table_index
    from physml.report.table.spec import table_ids
    from physml.run.progress import tracked

    index = table_index.TableIndex()
    gc.disable()  # what is read stays: a tenth of the time would go into looking for garbage
    tables = [table_index.read(ident, index) for ident in tracked(table_ids(), "reading tables", every_s=1.0)]
    gc.enable()
    index.save()
    rows = [(listed.ident, listed.title, listed.state) for listed in tables]
    whole = aligned([Line(row) for row in (("table", "title", "state"), *rows)])
    if max(map(len, whole.splitlines())) > terminal_width(200):
        whole = aligned([Line((ident, title), (state,)) for ident, title, state in rows], terminal_width(110))
    print(whole)
    cells = sum((Counter(listed.outcomes) for listed in tables), Counter[str]())
    claims = sum((Counter(listed.claims) for listed in tables), Counter[str]())
    for name, counts in (("cells", cells), ("claims", claims)):
        words = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        total = f"All {name}: {words or 'none'}"
        print(textwrap.fill(total, terminal_width(110), subsequent_indent=" " * 4))
    return 0
