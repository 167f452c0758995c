"""Content of the site: every table with its cells and records, and the configs behind them. No torch."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from physml.base.errors import PhysmlError
from physml.base.paths import CONF, ROOT
from physml.config import conf_files, studies
from physml.config.compose import compose
from physml.listing import inventory
from physml.listing.inventory import Entry
from physml.queue.requested import RequestedRuns, RunOptions
from physml.records import costs
from physml.records.schema import Record
from physml.report.figure.spec import FigureSpec, find_figure, load_figure
from physml.report.table import settings_text
from physml.report.table.collect import Placed, Table, recorded
from physml.report.table.settings import SettingsSpec, collect_settings, load_settings
from physml.report.table.spec import (
    TableSpec,
    experiments_of,
    find_table,
    kind_of,
    load_table,
    natural,
    table_ids,
)
from physml.report.text.document import Document
from physml.report.view import text as table_text
from physml.run.progress import tracked
from physml.site import prose

DOCS = ROOT / "docs"
OWN = "own"  # tables and figures of this project, of no paper


@dataclass(frozen=True)
class Results:
    """A table of results, with the records of its experiments, those of other identities among them."""

    table: Table
    document: Document
    identities: dict[str, str | None]
    records: dict[str, list[Record]]

    @property
    def spec(self) -> TableSpec:
        return self.table.spec

    @property
    def cells(self) -> list[Placed]:
        return self.table.placed

    def counted(self, placed: Placed) -> list[Record]:
        """The finished runs behind a cell, by split and seed."""
        experiment = placed.cell.experiment
        if experiment is None:
            return []
        places = set(self.spec.places_of(experiment))
        finished = {
            (record["split"], record["seed"]): record
            for record in self.records.get(experiment, ())
            if record["identity"] == self.identities[experiment] and record["status"] == "finished"
        }
        return [finished[at] for at in sorted(places & finished.keys())]

    def earlier(self, experiment: str) -> dict[str, list[Record]]:
        """Records of the experiment under other identities: settings or code that it had before."""
        by_identity: dict[str, list[Record]] = {}
        for record in self.records.get(experiment, ()):
            if record["identity"] != self.identities[experiment]:
                by_identity.setdefault(record["identity"], []).append(record)
        return by_identity


@dataclass(frozen=True)
class Content:
    tables: dict[str, Results]
    settings: dict[str, tuple[SettingsSpec, Document]]
    figures: dict[str, FigureSpec]
    models: list[Entry]
    tasks: list[Entry]
    searches: dict[str, str]  # id of the results -> experiment
    choices: dict[str, dict[str, str]] = field(default_factory=dict)  # experiment -> config files by group
    datasets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # task -> files of conf/dataset

    @property
    def papers(self) -> list[str]:
        """The keys of papers, those with a page in docs first."""
        keys = dict.fromkeys(paper_of(ident) for ident in [*self.tables, *self.settings, *self.figures])
        return sorted(keys, key=lambda key: (not paper_page(key).exists(), key))

    def cells(self) -> Iterator[tuple[Results, Placed]]:
        for results in self.tables.values():
            for placed in results.cells:
                yield results, placed


def paper_of(ident: str) -> str:
    return ident.partition("-")[0]


def paper_page(key: str) -> Path:
    return DOCS / "papers" / f"{key}.md"


def docs_page(path: Path) -> str:
    """The page of a file of docs/; its README, which groups the others, is the first of them."""
    return "docs/index.html" if path.stem == "README" else f"docs/{path.stem}/index.html"


def paper_title(key: str) -> str:
    path = paper_page(key)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return prose.title_of(text) or ("Tables of our own" if key == OWN else key)


def gather() -> Content:
    """Everything, from conf/ and the records."""
    idents = table_ids()
    paths = {ident: find_table(ident) for ident in idents}
    results = {
        ident: results_of(load_table(path))
        for ident, path in tracked(list(paths.items()), "reading tables")
        if kind_of(path) == "runs"
    }
    settings = {
        ident: (spec := load_settings(path), settings_text.document(collect_settings(spec)))
        for ident, path in paths.items()
        if kind_of(path) == "settings"
    }
    figures = {entry.name: load_figure(find_figure(entry.name, "")) for entry in inventory.figures()}
    experiments = {e for table_results in results.values() for e in experiments_of(table_results.spec)}
    tasks = inventory.tasks()
    return Content(
        tables=results,
        settings=settings,
        figures=dict(sorted(figures.items(), key=lambda item: natural(item[0]))),
        models=inventory.models(),
        tasks=tasks,
        searches=studies.searches(CONF),
        choices={name: studies.experiment(name, CONF).choices for name in sorted(experiments)},
        datasets={entry.name: _datasets(entry.name) for entry in tasks if entry.target},
    )


def _datasets(task: str) -> tuple[str, ...]:
    """Data sets of conf/dataset that a task reads; none for a template, whose values the user must give."""
    try:
        composed = compose([f"task={task}", "+model._target_=none"])
    except PhysmlError:
        return ()
    return tuple(name for name in composed.datasets if conf_files.find("dataset", name))


def results_of(spec: TableSpec, requested: RequestedRuns | None = None) -> Results:
    """A table from its records. requested: its runs, where they are known already."""
    requested = requested or RequestedRuns(spec.runs, RunOptions(), spec.id)
    records = requested.records()
    table = recorded(spec, requested.identities, records, hours=costs.hours_of_settings())
    of: dict[str, list[Record]] = {}
    for record in records:
        of.setdefault(record["experiment"], []).append(record)
    return Results(table, table_text.document(table), requested.identities, of)
