"""Content of the site: every table with its cells and records, and the configs behind them. No torch."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from physml.base.errors import PhysmlError
from physml.base.paths import ROOT
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
from physml.report.table.runs import Runs
from physml.report.table.settings import collect_settings, load_settings
from physml.report.table.spec import TableSpec, experiments_of, find_table, load_table, table_ids
from physml.report.text.document import Document, grouped
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
        if (experiment := placed.cell.experiment) is None:
            return []
        records, places = self.records.get(experiment, ()), self.spec.places_of(experiment)
        return [*Runs.find(experiment, self.identities[experiment], records, places).finished.values()]

    def earlier(self, experiment: str) -> dict[str, list[Record]]:
        """Records of the experiment under other identities: settings or code that it had before."""
        records = grouped((record["identity"], record) for record in self.records.get(experiment, ()))
        return {key: runs for key, runs in records.items() if key != self.identities[experiment]}


@dataclass(frozen=True)
class Content:
    tables: dict[str, Results]
    settings: dict[str, Document]
    figures: dict[str, FigureSpec]
    models: list[Entry]
    tasks: list[Entry]
    searches: dict[str, str]  # id of the results -> experiment
    choices: dict[str, dict[str, str]]  # experiment -> config files by group
    datasets: dict[str, tuple[str, ...]]  # task -> files of conf/dataset

    @property
    def papers(self) -> list[str]:
        """The keys of papers, those with a page in docs first."""
        keys = dict.fromkeys(paper_of(ident) for ident in [*self.tables, *self.settings, *self.figures])
        return sorted(keys, key=lambda key: (not paper_page(key).exists(), key))

    def cells(self) -> Iterator[tuple[Results, Placed]]:
        return ((results, placed) for results in self.tables.values() for placed in results.cells)


def paper_of(ident: str) -> str:
    return ident.partition("-")[0]


def slug(text: str) -> str:
    """A name for a page, of a label: letters, digits and hyphens. Labels that lose something else than
    spaces or case get a few digits of their hash, so no two labels share a page.

    Example:
        >>> slug("LSTM, rate of LEM"), slug("official"), slug("G²-GCN")
        ('lstm-rate-of-lem-7196', 'official', 'g2-gcn-5d25')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "x"
    if re.fullmatch(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*", text):
        return name
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"


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
    idents = tracked(table_ids("runs"), "reading tables")
    results = {ident: results_of(load_table(find_table(ident))) for ident in idents}
    settings = {ident: collect_settings(load_settings(find_table(ident))) for ident in table_ids("settings")}
    experiments = {e for table_results in results.values() for e in experiments_of(table_results.spec)}
    tasks = inventory.tasks()
    return Content(
        tables=results,
        settings={ident: settings_text.document(table) for ident, table in settings.items()},
        figures={entry.name: load_figure(find_figure(entry.name)) for entry in inventory.figures()},
        models=inventory.models(),
        tasks=tasks,
        searches=studies.searches(),
        choices={name: studies.experiment(name).choices for name in sorted(experiments)},
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
    of = grouped((record["experiment"], record) for record in records)
    return Results(table, table_text.document(table), requested.identities, of)
