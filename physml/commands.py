"""What the commands of the command line do: plan, run, render. No torch until something is trained."""

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml import launch, record
from physml.compose import Composed, compose
from physml.composed_cache import steady
from physml.errors import ConfigError, DataError, PhysmlError, near
from physml.identity import identity
from physml.lock import is_held
from physml.paths import results_root, shown, work_root
from physml.record import Place
from physml.runspec import RunSpec, folder_of, spec_of

if TYPE_CHECKING:
    from physml.data.store import Verify
    from physml.table import Table
    from physml.tablespec import TableSpec

Run = tuple[str, int, int]  # experiment, split, seed
SMOKE = "smoke run: tiny sizes, made-up data, no results"


# ---------------------------------------------------------------------------- runs


def checked_specs(composed: Sequence[Composed], *, adhoc: bool = False) -> list[RunSpec]:
    """Specs of configs whose keys have been checked, before anything is started."""
    from physml.schema import checked

    return [spec_of(dataclasses.replace(one, config=checked(one.config)), adhoc=adhoc) for one in composed]


def describe(made: dict[str, Any]) -> str:
    """A run's end for a person: what came out, and where the files are."""
    path = Path(made["path"])
    lines = [f"{made['status']}{' already' if made.get('skipped') else ''}: {shown(path)}"]
    if made["reason"]:
        lines.append(f"  reason: {made['reason']}")
    best = (made["metrics"] or {}).get("best")
    if best:
        numbers = "  ".join(f"{k} {v:.4g}" for k, v in best["test"].items() if v is not None)
        lines.append(f"  test, {made['selected']['rule']} (epoch {made['selected']['epoch']}): {numbers}")
    if made.get("skipped"):
        lines.append("  --force trains it again")
    return "\n".join(lines)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned plain text, nothing cut off, for people and for pipes."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def show_plan(planned: Sequence[launch.Planned]) -> None:
    rows = []
    for one in planned:
        ms = "" if one.ms_per_step is None else f"{one.ms_per_step:.1f}"
        hours = "" if one.hours is None else f"{one.hours:.3f}"
        rows.append((one.spec.label, ms, hours, one.said))
    print(columns(("run", "ms per step", "hours", "state"), rows))
    todo = [p for p in planned if p.todo]
    known = [p.hours for p in todo if p.hours is not None]
    unknown = f", {len(todo) - len(known)} of unknown time" if len(known) < len(todo) else ""
    print(f"{len(planned)} runs, {len(todo)} to do: {sum(known):.2f} hours one after another{unknown}")


def show_outcomes(planned: Sequence[launch.Planned], outcome: launch.Outcome) -> None:
    words = {0: "finished", 75: "stopped, start again to go on"}
    for one in planned:
        label = one.spec.label
        if label in outcome.codes:
            print(f"{label}: {words.get(outcome.codes[label], f'exit {outcome.codes[label]}')}")
        else:
            running = "running" if label in outcome.elsewhere else one.said
            print(f"{label}: {'not started' if label in outcome.left else running}")


@contextlib.contextmanager
def smoke_roots(smoke: bool) -> Iterator[None]:
    """Under --smoke, results go to a temporary folder unless the user named one."""
    if not smoke or os.environ.get("PHYSML_RESULTS"):
        yield
        return
    folder = launch.temporary_results()
    os.environ["PHYSML_RESULTS"] = str(folder)
    try:
        yield
        print(f"smoke results: {folder}", file=sys.stderr)
    finally:
        del os.environ["PHYSML_RESULTS"]


# ---------------------------------------------------------------------------- what tables and figures share


class Wanted:
    """The runs that a table or figure wants, under the flags of the command line.

    only: the experiments that may be trained; None: all. `broken` says of an experiment why it cannot be
    right, `blocked` why it cannot be run here, for want of data.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        options: argparse.Namespace,
        ident: str,
        only: Collection[str] | None = None,
    ) -> None:
        self.runs, self.options, self.id, self.only = runs, options, ident, only
        self.extra = [f"profile={'smoke' if options.smoke else 'full'}"]
        if options.device:
            self.extra.append(f"runtime.device={options.device}")
        if options.verify:
            self.extra.append(f"data.verify={options.verify}")
        self.identities: dict[str, str | None] = {}
        self.broken: dict[str, str] = {}
        self.blocked: dict[str, str] = {}
        with steady():
            for experiment in dict.fromkeys(e for e, _, _ in runs):
                self._compose_one(experiment)

    def _compose_one(self, experiment: str) -> None:
        self.identities[experiment] = None
        with self._telling(experiment):
            composed = self._composed(experiment, 0, 0)
            self.identities[experiment] = identity(composed.config)
            if reason := launch.blocked_by(composed.config, composed.datasets):
                self.blocked[experiment] = reason

    @contextlib.contextmanager
    def _telling(self, experiment: str) -> Iterator[None]:
        """What is wrong with one row is told in that row; the others go on."""
        try:
            yield
        except PhysmlError as error:
            self.broken.setdefault(experiment, str(error))

    def _composed(self, experiment: str, split: int, seed: int) -> Composed:
        return compose([f"experiment={experiment}", f"seed={seed}", f"split={split}", *self.extra])

    def plan(self, *, probe: bool = False) -> dict[Run, launch.Planned]:
        """Every run that can be made, with its state. Keys are checked here, before hours of training."""
        planned: dict[Run, launch.Planned] = {}
        with steady():
            for experiment in self.identities:
                if experiment in self.broken or (self.only is not None and experiment not in self.only):
                    continue
                runs = [run for run in self.runs if run[0] == experiment]
                with self._telling(experiment):
                    specs = self._specs(experiment, [(split, seed) for _, split, seed in runs])
                    made = launch.plan(specs, force=self.options.force, probe=probe)
                    planned |= zip(runs, made, strict=True)
        return planned

    def _specs(self, experiment: str, wanted: Sequence[tuple[int, int]]) -> list[RunSpec]:
        """Composed and checked once, where split and seed are all that the runs differ in."""
        first, other = self._composed(experiment, 0, 0), self._composed(experiment, 1, 1)
        if other.config | {"split": 0, "seed": 0} != first.config:  # an interpolation, say
            return checked_specs([self._composed(experiment, *run) for run in wanted])
        (spec,) = checked_specs([first])
        return [
            dataclasses.replace(
                spec,
                config=spec.config | {"split": split, "seed": seed},
                place=dataclasses.replace(spec.place, split=split, seed=seed),
            )
            for split, seed in wanted
        ]

    @property
    def untrainable(self) -> dict[str, str]:
        """Experiment -> why there can be no new run of it."""
        return {**self.blocked, **self.broken}

    def make(self) -> int:
        """Trains what is missing; returns the exit code. What is blocked is no failure: the table says it."""
        planned = self.plan()
        bad_config = 2 if self.broken else 0
        outcome = launch.carry_out(
            list(planned.values()),
            jobs=self.options.jobs,
            force=self.options.force,
            max_hours=self.options.max_hours,
            tables=[self.id],
        )
        for run, one in planned.items():
            if outcome.codes.get(one.spec.label) == 2:
                self.broken.setdefault(run[0], last_words(one.spec))
        return max(outcome.exit_code, bad_config)

    def records(self) -> list[dict[str, Any]]:
        """All records of the experiments in this profile: a smoke run is no stale full one."""
        found: list[dict[str, Any]] = []
        profile = "smoke" if self.options.smoke else "full"
        for experiment in self.identities:
            with self._telling(experiment):
                of_profile = [
                    r for r in record.records(folder_of(experiment)) if r["config"]["profile"] == profile
                ]
                found += [{**r, "experiment": experiment} for r in of_profile]
        return found

    def running(self) -> set[Run]:
        """Runs that a process works on now, told by their locks."""
        busy = set()
        for experiment, split, seed in self.runs:
            key = self.identities[experiment]
            place = Place(folder_of(experiment), key or "", split, seed)
            if key and is_held(work_root() / place.folder / place.stem):
                busy.add((experiment, split, seed))
        return busy


def last_words(spec: RunSpec) -> str:
    """The error that a run's process ended with."""
    file = spec.work_folder / "output.txt"
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines() if file.exists() else []
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return told[-1] if told else f"see {shown(file)}"


# ---------------------------------------------------------------------------- tables


def table(name: str, options: argparse.Namespace) -> int:
    from physml import tablespec as tables

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

    from physml.render import render_console, write_table

    Console().print(render_console(made))
    if _own_lines(options):
        return code
    for file in write_table(made, _folder("tables", options)):
        print(f"written: {shown(file)}")
    return code


def _settings_table(path: Path, options: argparse.Namespace) -> int:
    from physml.settings import collect_settings, load_settings

    spec = load_settings(path)
    if options.seeds or options.row or options.yours:
        raise ConfigError(f"{spec.id} is a table of settings: it has no runs for --seeds, --row or --yours.")
    if options.plan:
        print(f"no runs: {spec.id} is a table of settings, read from conf/")
        return 0
    from rich.console import Console

    from physml.render_settings import render_settings, write_settings

    made = collect_settings(spec)
    Console().print(render_settings(made))
    for file in write_settings(made, _folder("tables", options)):
        print(f"written: {shown(file)}")
    return 0


def _show_wanted(wanted: Wanted) -> int:
    show_plan(list(wanted.plan(probe=True).values()))
    for experiment, reason in wanted.broken.items():
        print(f"{experiment}: cannot be run: {reason}")
    return 2 if wanted.broken else 0


def _folder(kind: str, options: argparse.Namespace) -> Path:
    """Where tables and figures are written; those of smoke runs must not take the place of true ones."""
    return results_root() / "smoke" / kind if options.smoke else results_root() / kind


def _own_lines(options: argparse.Namespace) -> bool:
    """Rows and runs of the reader's own are shown, and written only where PHYSML_RESULTS says."""
    return bool(options.yours or options.row or options.seeds) and not os.environ.get("PHYSML_RESULTS")


def _with_options(spec: "TableSpec", options: argparse.Namespace) -> "TableSpec":
    from physml.tablespec import parse_row, parse_seeds, with_rows

    if options.seeds:
        spec = dataclasses.replace(spec, seeds=parse_seeds(options.seeds))
    if options.smoke:
        spec = dataclasses.replace(spec, title=f"{spec.title} ({SMOKE})")
    rows = [parse_row(text) for text in getattr(options, "row", [])]
    return with_rows(spec, rows) if rows else spec


def _collected(spec: "TableSpec", wanted: Wanted, options: argparse.Namespace) -> "Table":
    from physml.table import collect

    yours = [record.read(Path(p)) for p in getattr(options, "yours", [])]
    records = wanted.records()
    return collect(
        spec, wanted.identities, records, wanted.running(), yours=yours, blocked=wanted.untrainable
    )


def tables_with_state(paper: str) -> int:
    from physml import listing

    with steady():
        rows = _states(paper)
    whole = columns(("table", "title", "state"), rows)
    if max(map(len, whole.splitlines())) > shutil.get_terminal_size((200, 24)).columns:
        whole = listing.text([listing.Entry(ident, title, below=(state,)) for ident, title, state in rows])
    print(whole)
    return 0


def _states(paper: str) -> list[tuple[str, str, str]]:
    """Id, title and state of every table."""
    from physml import tablespec as tables
    from physml.settings import collect_settings, load_settings
    from physml.table import table_state

    options = argparse.Namespace(smoke=False, device=None, force=False, seeds=None, verify=None)
    rows = []
    for ident in tables.table_ids():
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
    from physml import figure as figures
    from physml.figurespec import find_figure, load_figure
    from physml.picture import write_figure
    from physml.tablespec import parse_seeds

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
    print(f"written: {shown(write_figure(made, _folder('figures', options)))}")
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
    from physml import listing, measure

    if kind != "tasks":
        raise ConfigError(f"--measure is for tasks, not for {kind}.")
    known = [entry.name for entry in listing.tasks() if entry.target]
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no task {name}. {near(name, known)}")
    code = 0
    for name in names or known:
        try:
            measure.measure(name, how)
        except DataError as error:
            print(f"{name}: not measured: {error}", file=sys.stderr)
            code = 2 if names else code
    print(listing.text([entry for entry in listing.tasks() if entry.name in (names or known)]))
    return code


def diff(first: str, second: str) -> int:
    """Prints the leaves in which two records differ; exit code 0 either way."""
    found = record.differences(record.read(Path(first)), record.read(Path(second)))
    for key, a, b in found:
        print(f"{key}: {a!r} | {b!r}")
    if not found:
        print("no difference")
    return 0
