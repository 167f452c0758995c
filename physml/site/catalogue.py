"""The pages around the tables: home, papers, models, tasks, figures, searches, docs."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Any

from markupsafe import Markup

from physml.base.paths import ROOT, in_results, results_roots
from physml.config import conf_files
from physml.config.identity import class_source
from physml.data.datasets import Upstream, upstream
from physml.listing import inventory
from physml.listing.inventory import Entry
from physml.records.searches import recorded, state_text
from physml.report.table.collect import Placed, table_state
from physml.report.table.spec import Claim
from physml.report.text.document import NONE, grouped
from physml.report.view.finding import NOTHING, finding_text
from physml.site import prose
from physml.site.content import DOCS, Content, docs_page, paper_of, paper_page, paper_title
from physml.site.home import bars, home_context
from physml.site.render import Page, Renderer
from physml.site.search_page import search_context
from physml.site.table_pages import ColumnView, table_page

NUMBER = r"\(?\d+(?:\.\d+)*\)?"
EQUATION = re.compile(rf"\b[Ee]quations? {NUMBER}(?:(?:, | and | to ){NUMBER})*")


def pages(content: Content, render: Renderer) -> Iterator[Page]:
    papers = [_paper(content, key) for key in content.papers]
    home = home_context(content, papers)
    yield render.page("home.html.j2", "index.html", claims=_claims(content), **home)
    yield render.page("cells.html.j2", "cells/index.html", papers=content.papers)
    yield render.page("data.html.j2", "data/index.html")
    yield render.page("all.html.j2", "all/index.html", papers=papers)
    for paper in papers:
        yield render.page("paper.html.j2", f"paper/{paper['key']}/index.html", **paper)
    for ident, document in content.settings.items():
        yield render.page("settings.html.j2", table_page(ident), document=document, paper=paper_of(ident))
    yield from _figures(content, render)
    yield from _parts("model", content.models, content, render)
    yield from _parts("task", content.tasks, content, render)
    yield from _searches(content, render)
    yield from _docs(content, render)


# ---------------------------------------------------------------------------- papers


def _claims(content: Content) -> dict[str, list[tuple[str, ...]]]:
    """Claims of tables: those that have a verdict with it, and the others."""
    claims: dict[str, list[tuple[str, ...]]] = {"tested": [], "open": []}
    for ident, results in content.tables.items():
        if isinstance(claim := results.spec.claim, Claim) and results.table.claim:
            verdict = results.table.claim_verdict
            link = Markup(f'<a href="{table_page(ident)}">{ident}</a>')
            claims["tested" if verdict else "open"].append((link, claim.text, *filter(None, [verdict])))
    return claims


def _paper(content: Content, key: str) -> dict[str, Any]:
    tables = {ident: results for ident, results in content.tables.items() if paper_of(ident) == key}
    settings = {ident: d for ident, d in content.settings.items() if paper_of(ident) == key}
    figures = {ident: spec for ident, spec in content.figures.items() if paper_of(ident) == key}
    printed = [p for results in tables.values() for p in results.cells if p.result.published is not None]
    entries = [(i, of.spec.title, table_page(i), table_state(of.table)) for i, of in tables.items()]
    entries += [(i, document.title, table_page(i), "settings") for i, document in settings.items()]
    entries += [(i, spec.title, f"figure/{i}/index.html", "") for i, spec in figures.items()]
    findings = [(i, table_page(i), finding_text(results.table)) for i, results in tables.items()]
    run = [placed for placed in printed if placed.result.summary is not None]
    text = paper_page(key).read_text(encoding="utf-8") if paper_page(key).exists() else ""
    links = _Links(content, f"paper/{key}/index.html", paper_page(key))
    return {
        "key": key,
        "title": paper_title(key),
        "findings": [finding for finding in findings if not finding[2].startswith(tuple(NOTHING.values()))],
        "dots": [kind for kind, _, n in bars(run) for _ in range(n)],
        "text": prose.markdown(re.sub(r"\A# .*\n", "", text), links),
        "tables": len(tables) + len(settings),
        "figures": len(figures),
        "total": len(printed),
        "ran": len(run),
        "bars": bars(printed),
        "entries": entries,
    }


# ---------------------------------------------------------------------------- figures


def _figures(content: Content, render: Renderer) -> Iterator[Page]:
    drawn, missing = [], []
    for ident, spec in content.figures.items():
        paths = _files_of_figure(ident)
        yield from ((f"figure/{ident}/{path.name}", path) for path in paths.values())
        names = {form: path.name for form, path in paths.items()}
        if picture := names.get("png"):
            drawn.append((spec, picture))
        else:
            missing.append(spec)
        context = {"picture": names.get("svg", picture), "data": names.get("csv"), "paper": paper_of(ident)}
        yield render.page("figure.html.j2", f"figure/{ident}/index.html", spec=spec, **context)
    yield render.page("gallery.html.j2", "figure/index.html", drawn=drawn, missing=missing)


def _files_of_figure(ident: str) -> dict[str, Path]:
    """By form, as far as they have been drawn: those of new results before those of the checkout."""
    for root in results_roots():
        paths = {form: root / "figures" / f"{ident}.{form}" for form in ("svg", "png", "csv")}
        if drawn := {form: path for form, path in paths.items() if path.exists()}:
            return drawn
    return {}


# ---------------------------------------------------------------------------- models and tasks


def _parts(kind: str, entries: list[Entry], content: Content, render: Renderer) -> Iterator[Page]:
    listed = [(entry.name, f"{kind}/{entry.name}/index.html", entry.about) for entry in entries]
    title = f"{kind.capitalize()}s"
    yield render.page("list.html.j2", f"{kind}/index.html", title=title, about="", entries=listed)
    cells = _cells_by(kind, content)
    users = Counter(entry.target for entry in entries)
    for entry in entries:
        path = conf_files.find(kind, entry.name)
        config = path.read_text(encoding="utf-8") if path else ""
        sets = [upstream(name) for name in content.datasets.get(entry.name, ())] if kind == "task" else []
        of_entry = cells.get(entry.name, [])
        facts = _facts(entry, of_entry, users[entry.target] > 1) if kind == "model" else []
        yield render.page(
            "part.html.j2",
            f"{kind}/{entry.name}/index.html",
            kind=kind,
            entry=entry,
            text=prose.docstring(_docstring(entry)),
            facts=facts,
            config=config,
            cells=of_entry,
            datasets=[(dataset, _files(dataset)) for dataset in sets],
        )
        for dataset in sets:
            yield f"task/{entry.name}/{dataset.name}.croissant.json", _croissant(dataset)


def _facts(entry: Entry, cells: list[dict[str, Any]], shared: bool) -> list[tuple[str, str]]:
    """Paper, equation, code and parameters of a model, as far as they are known.

    shared: its class serves other configs too, so that its paper may be that of another model.
    """
    if entry.target is None:
        return []
    doc = _docstring(entry)
    module, _, name = entry.target.rpartition(".")
    paper = re.search(r"https?://(?:doi\.org|arxiv\.org)/\S*[\w/]", doc)
    equation = EQUATION.search(" ".join(doc.split()))
    sizes = sorted({cell["parameters"] for cell in cells if cell["parameters"]})
    span = f"{sizes[0]:,}" + (f" to {sizes[-1]:,}, by task" if len(sizes) > 1 else "") if sizes else ""
    ours = module.startswith("physml.")
    facts = {
        "paper": paper[0] if paper and not shared else "",
        "equation": equation[0] if equation and not shared else "",
        "code": f"{module.replace('.', '/')}.py, class {name}" if ours else entry.target,
        "parameters in tables": span,
    }
    return [(key, value) for key, value in facts.items() if value]


def _docstring(entry: Entry) -> str:
    """Docstring of its class, read without an import: equation, source, arguments."""
    source = class_source({"_target_": entry.target}, []) if entry.target else None
    return source.doc or "" if source else ""


def _cells_by(kind: str, content: Content) -> dict[str, list[dict[str, Any]]]:
    columns = [(results, c) for results in content.tables.values() for c in results.spec.columns]
    views = [(view, placed) for view in starmap(ColumnView, columns) for placed in view.placed]
    cells: list[tuple[str, dict[str, Any]]] = []
    for view, placed in views:
        name = content.choices.get(placed.cell.experiment or "", {}).get(kind)
        if name and (placed.result.summary or placed.result.published):
            title = f"{view.results.spec.id}: {placed.row.label}, {view.column.title}"
            cells.append((name, view.row(placed) | {"name": title, "parameters": placed.result.params_ours}))
    return grouped(cells)


def _files(dataset: Upstream) -> list[tuple[str, str, str]]:
    """Name, size and checksum of the files of a data set."""
    known = ((f.name, f.size, f.sha256 or f.md5 or "pinned when first seen") for f in dataset.files)
    return [(name, NONE if size is None else f"{size:,}", checksum) for name, size, checksum in known]


def _croissant(dataset: Upstream) -> str:
    """Source, licence and checksums in the vocabulary of Croissant 1.0."""
    context = {
        "@vocab": "https://schema.org/", "cr": "http://mlcommons.org/croissant/",
        "sc": "https://schema.org/", "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo",
        "md5": "cr:md5",
    }  # fmt: skip
    files = [
        {
            "@type": "cr:FileObject", "@id": file.name, "name": Path(file.name).name,
            "description": file.purpose, "contentUrl": file.urls[0] if file.urls else dataset.source,
            "contentSize": None if file.size is None else f"{file.size} B", "sha256": file.sha256,
            "md5": file.md5,
        }
        for file in dataset.files
    ]  # fmt: skip
    description = {
        "@context": context, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": dataset.title, "description": dataset.title, "url": dataset.source,
        "license": dataset.licence,
        "distribution": [{key: v for key, v in file.items() if v is not None} for file in files],
    }  # fmt: skip
    return json.dumps(description, indent=1, ensure_ascii=False) + "\n"


def about_experiment(content: Content, placed: Placed) -> dict[str, Any]:
    """Model, task, settings and search of a cell's experiment."""
    name = placed.cell.experiment
    searches = (i for i, of in content.searches.items() if of == name and _file_of_search(i))
    return {
        "choices": content.choices.get(name or "", {}),
        "settings": inventory.settings_lines(name) if name else (),
        "search": next(searches, None),
    }


# ---------------------------------------------------------------------------- searches


def _searches(content: Content, render: Renderer) -> Iterator[Page]:
    listed = []
    for ident, experiment in sorted(content.searches.items()):
        search, path, page = recorded(ident), _file_of_search(ident), f"search/{ident}/index.html"
        if search and path:
            listed.append((ident, page, state_text(ident)))
            yield render.page("search.html.j2", page, **search_context(ident, experiment, search))
            yield f"search/{ident}/{ident}.json", path
    about = "Settings that were searched here, on validation data. Each search keeps all of its trials."
    yield render.page("list.html.j2", "search/index.html", title="Searches", about=about, entries=listed)


def _file_of_search(ident: str) -> Path | None:
    return in_results("search", f"{ident}.json")


# ---------------------------------------------------------------------------- docs


def _docs(content: Content, render: Renderer) -> Iterator[Page]:
    for path in sorted(DOCS.glob("*.md")):
        text, page = path.read_text(encoding="utf-8"), docs_page(path)
        html = prose.markdown(text, _Links(content, page, path))
        yield render.page("page.html.j2", page, title=prose.title_of(text) or path.stem, text=html)


class _Links:
    """Page of the site that a link of a Markdown file leads to; None if the site does not have the file."""

    def __init__(self, content: Content, page: str, source: Path) -> None:
        self.root = "../" * page.count("/")
        self.source = source
        self.tables = {*content.tables, *content.settings}
        self.figures = set(content.figures)
        self.papers = set(content.papers)

    def __call__(self, target: str) -> str | None:
        if target.startswith(("https://", "http://", "mailto:", "#")):
            return target
        place, hash, anchor = target.partition("#")
        path = (self.source.parent / place).resolve()
        page = self._page(path) if path.is_relative_to(ROOT) else None
        return None if page is None else f"{self.root}{page}{hash}{anchor}"

    def _page(self, path: Path) -> str | None:
        inside = path.relative_to(ROOT)
        name = path.stem
        if inside.parts[:2] == ("docs", "papers"):
            return f"paper/{name}/index.html" if name in self.papers else None
        if inside.parts[0] == "docs" and path.suffix == ".md":
            return docs_page(path)
        if name in self.tables and inside.parts[0] in ("results", "conf"):
            return table_page(name)
        return f"figure/{name}/index.html" if name in self.figures else None
