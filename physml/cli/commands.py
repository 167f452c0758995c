"""What the commands table, figure, data, list and diff do. No torch until something is trained."""

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from physml.cli.console import columns, show_plan
from physml.config.compose_cache import steady
from physml.errors import ConfigError, DataError, suggest
from physml.execution import scheduler
from physml.execution.requested_runs import Wanted
from physml.paths import display_path, results_root
from physml.records import record

if TYPE_CHECKING:
    from physml.data.store import Verify
    from physml.reporting.table import Table
    from physml.reporting.table_spec import TableSpec

SMOKE = "smoke run: tiny sizes, made-up data, no results"


@contextlib.contextmanager
def smoke_roots(smoke: bool) -> Iterator[None]:
    """Under --smoke, results go to a temporary folder unless the user named one."""
    if not smoke or os.environ.get("PHYSML_RESULTS"):
        yield
        return
    folder = scheduler.temporary_results()
    os.environ["PHYSML_RESULTS"] = str(folder)
    try:
        yield
        print(f"smoke results: {folder}", file=sys.stderr)
    finally:
        del os.environ["PHYSML_RESULTS"]


# ---------------------------------------------------------------------------- tables


def table(name: str, options: argparse.Namespace) -> int:
    from physml.reporting import table_spec as tables

    path = tables.find_table(name, options.paper)
    if tables.kind_of(path) == "settings":
        return _settings_table(path, options)
    spec = _with_options(tables.load_table(path), options)
    extra = [(row, spec.cell(row, column)) for row in spec.rows if row.extra for column in spec.columns]
    own = {cell.experiment: row.label for row, cell in extra if cell.experiment}
    wanted = Wanted(spec.runs, options, spec.id, only=own or None)
    if options.plan:
        return _show_wanted(wanted)
    code = 0 if options.no_run else wanted.make()
    for experiment, label in own.items():
        if experiment in wanted.broken:
            raise ConfigError(f"row {label}: {wanted.broken[experiment]}")
    made = _collected(spec, wanted, options)
    from rich.console import Console

    from physml.reporting.table_formats import render_console, write_table

    Console().print(render_console(made))
    if _own_lines(options):
        return code
    with _writing(_folder("tables", options)) as folder:
        files = write_table(made, folder)
    for file in files:
        print(f"written: {display_path(file)}")
    return code


def _settings_table(path: Path, options: argparse.Namespace) -> int:
    from physml.reporting.settings_table import collect_settings, load_settings

    spec = load_settings(path)
    if options.seeds or options.row or options.yours:
        raise ConfigError(f"{spec.id} is a table of settings: it has no runs for --seeds, --row or --yours.")
    if options.plan:
        print(f"no runs: {spec.id} is a table of settings, read from conf/")
        return 0
    from rich.console import Console

    from physml.reporting.settings_formats import render_settings, write_settings

    made = collect_settings(spec)
    Console().print(render_settings(made))
    with _writing(_folder("tables", options)) as folder:
        files = write_settings(made, folder)
    for file in files:
        print(f"written: {display_path(file)}")
    return 0


def _show_wanted(wanted: Wanted) -> int:
    show_plan(list(wanted.plan(probe=True).values()))
    for experiment, reason in wanted.broken.items():
        print(f"{experiment}: cannot be run: {reason}")
    return 2 if wanted.broken else 0


def _folder(kind: str, options: argparse.Namespace) -> Path:
    """Where tables and figures are written; those of smoke runs must not take the place of true ones."""
    return results_root() / "smoke" / kind if options.smoke else results_root() / kind


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[Path]:
    try:
        yield folder
    except OSError as error:
        raise DataError(
            f"{display_path(folder)} cannot be written: {error.strerror or error}. "
            "Free space, or set PHYSML_RESULTS to another folder."
        ) from error


def _own_lines(options: argparse.Namespace) -> bool:
    """Rows and runs of the reader's own are shown, and written only where PHYSML_RESULTS says."""
    return bool(options.yours or options.row or options.seeds) and not os.environ.get("PHYSML_RESULTS")


def _with_options(spec: "TableSpec", options: argparse.Namespace) -> "TableSpec":
    from physml.reporting.table_spec import parse_row, parse_seeds, with_rows

    if options.seeds:
        spec = dataclasses.replace(spec, seeds=parse_seeds(options.seeds))
    if options.smoke:
        spec = dataclasses.replace(spec, title=f"{spec.title} ({SMOKE})")
    rows = [parse_row(text) for text in getattr(options, "row", [])]
    return with_rows(spec, rows) if rows else spec


def _collected(spec: "TableSpec", wanted: Wanted, options: argparse.Namespace) -> "Table":
    from physml.reporting.table import collect

    yours = [record.read(Path(p)) for p in getattr(options, "yours", [])]
    records = wanted.records()
    return collect(
        spec, wanted.identities, records, wanted.running(), yours=yours, blocked=wanted.untrainable
    )


def tables_with_state(paper: str) -> int:
    from physml.cli import inventory

    with steady():
        rows = _states(paper)
    whole = columns(("table", "title", "state"), rows)
    if max(map(len, whole.splitlines())) > shutil.get_terminal_size((200, 24)).columns:
        whole = inventory.text(
            [inventory.Entry(ident, title, below=(state,)) for ident, title, state in rows]
        )
    print(whole)
    return 0


def _states(paper: str) -> list[tuple[str, str, str]]:
    """Id, title and state of every table."""
    from rich.console import Console
    from rich.progress import track

    from physml.reporting import table_spec as tables
    from physml.reporting.settings_table import collect_settings, load_settings
    from physml.reporting.table import table_state

    options = argparse.Namespace(smoke=False, device=None, force=False, seeds=None, verify=None)
    rows = []
    # A minute where nothing is cached yet.
    seen, here = Console(stderr=True), sys.stderr.isatty()
    for ident in track(tables.table_ids(), "reading tables", console=seen, transient=True, disable=not here):
        path = tables.find_table(ident, paper)
        if tables.kind_of(path) == "settings":
            settings = load_settings(path)
            rows.append((ident, settings.title, collect_settings(settings).state))
            continue
        spec = tables.load_table(path)
        wanted = Wanted(spec.runs, options, spec.id)
        rows.append((ident, spec.title, table_state(_collected(spec, wanted, options))))
    return rows


# ---------------------------------------------------------------------------- figures


def figure(name: str, options: argparse.Namespace) -> int:
    from physml.reporting import figure as figures
    from physml.reporting.figure_spec import find_figure, load_figure
    from physml.reporting.plot import write_figure
    from physml.reporting.table_spec import parse_seeds

    spec = load_figure(find_figure(name, options.paper))
    if options.seeds:
        spec = spec.with_seeds(parse_seeds(options.seeds))
    if options.smoke:
        spec = dataclasses.replace(spec.shrunk(), title=f"{spec.title} ({SMOKE})")
    wanted = Wanted(spec.runs, options, spec.id)
    if options.plan:
        return _show_wanted(wanted)
    code = 0 if options.no_run else wanted.make()
    records = wanted.records()
    made = figures.collect(spec, wanted.identities, records, wanted.running(), blocked=wanted.untrainable)
    print("\n".join(figures.state_lines(made)))
    with _writing(_folder("figures", options)) as folder:
        file = write_figure(made, folder)
    print(f"written: {display_path(file)}")
    return code


# ---------------------------------------------------------------------------- data, diff


def data(action: str, names: Sequence[str], how: "Verify" = "bytes") -> int:
    """Exit code 2 where something is damaged."""
    from physml.data import catalogue
    from physml.data.store import Store

    store = Store.from_env(how)
    chosen = catalogue.choose(names)
    work = {"list": catalogue.list_data, "get": catalogue.get_data, "check": catalogue.check_data}
    rows = work[action](chosen, store)
    print(catalogue.text(rows))
    for line in catalogue.summary(chosen, store):
        print(line)
    return 2 if any(row.state == "damaged" for row in rows) else 0


def measured(kind: str, names: Sequence[str], how: "Verify") -> int:
    """Measures the tasks; exit code 2 where one that was named cannot be."""
    from physml.cli import inventory, task_facts

    if kind != "tasks":
        raise ConfigError(f"--measure is for tasks, not for {kind}.")
    known = [entry.name for entry in inventory.tasks() if entry.target]
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no task {name}. {suggest(name, known)}")
    code = 0
    for name in names or known:
        try:
            task_facts.measure(name, how)
        except DataError as error:
            print(f"{name}: not measured: {error}", file=sys.stderr)
            code = 2 if names else code
    print(inventory.text([entry for entry in inventory.tasks() if entry.name in (names or known)]))
    return code


def diff(first: str, second: str) -> int:
    """Prints the leaves in which two records differ; exit code 0 either way."""
    found = record.differences(record.read(Path(first)), record.read(Path(second)))
    for key, a, b in found:
        print(f"{key}: {a!r} | {b!r}")
    if not found:
        print("no difference")
    return 0
