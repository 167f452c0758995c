"""The site for programs: JSON, CSV, the index of the search, llms.txt, the sitemap."""

import json
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Any

from physml.base.paths import results_roots
from physml.records import export
from physml.records.schema import Record
from physml.report.outcome import outcome_of
from physml.report.references import bibtex, cited, of_physml
from physml.report.table.collect import table_state
from physml.report.table.numbers import decimals, mean_text, published_text
from physml.report.table.spec import experiments_of
from physml.report.text.document import FORMS, Document, csv_text, grouped, md
from physml.report.view.finding import finding_text
from physml.report.view.text import claim_lines
from physml.site import prose
from physml.site.content import DOCS, Content, docs_page, paper_of, paper_title
from physml.site.table_pages import cell_page, table_page


def files_of(content: Content) -> Iterator[tuple[str, str]]:
    """Every file that is no page."""
    for ident, results in content.tables.items():
        yield from _forms(ident, results.document)
        table = {
            "id": ident,
            "title": results.spec.title,
            "source": results.spec.source,
            "state": table_state(results.table),
            "finding": finding_text(results.table),
            "claim": claim_lines(results.table),
            "cells": lines(results.document),
        }
        yield f"table/{ident}/{ident}.json", _json(table)
        yield f"table/{ident}/{ident}.bib", _bibliography(content, ident)
    for ident, document in content.settings.items():
        yield from _forms(ident, document)
    yield "api/v1/index.json", _json(_index(content))
    values = [results.document.values for results in content.tables.values()]  # with the same heads
    yield "api/v1/cells.csv", csv_text([*values[0][:1], *(line for lines in values for line in lines[1:])])
    yield "api/v1/runs.csv", export.runs_csv(*results_roots())
    yield "assets/cells.js", _search_index(content)
    yield "llms.txt", _plain(content)


def _forms(ident: str, document: Document) -> Iterator[tuple[str, str]]:
    for suffix, form in FORMS.items():
        yield f"table/{ident}/{ident}.{suffix}", form(document)


def _bibliography(content: Content, ident: str) -> str:
    """Bibliography of a table."""
    chosen = [content.choices[e] for e in experiments_of(content.tables[ident].spec)]
    models = [choices["model"] for choices in chosen if "model" in choices]
    tasks = dict.fromkeys(choices["task"] for choices in chosen if "task" in choices)
    datasets = [name for task in tasks for name in content.datasets.get(task, ())]
    works = cited([paper_of(ident)], models, datasets).items()
    return "\n\n".join([of_physml(), *(bibtex(key, work) for key, work in works)]) + "\n"


def lines(document: Document) -> list[dict[str, Any]]:
    """The lines of its CSV, by their heads. Numbers stay numbers."""
    heads, *values = document.values
    plain = ([v if v is None or isinstance(v, int | float) else str(v) for v in line] for line in values)
    return [dict(zip(map(str, heads), line, strict=True)) for line in plain]


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _index(content: Content) -> dict[str, Any]:
    return {
        "tables": [
            {
                "id": ident,
                "title": results.spec.title,
                "paper": paper_of(ident),
                "state": table_state(results.table),
                "claim": results.table.claim_verdict,
                "page": table_page(ident),
                "json": f"table/{ident}/{ident}.json",
                "csv": f"table/{ident}/{ident}.csv",
            }
            for ident, results in content.tables.items()
        ],
        "settings": [
            {"id": ident, "title": document.title, "page": table_page(ident)}
            for ident, document in content.settings.items()
        ],
        "figures": [
            {"id": ident, "title": spec.title, "page": f"figure/{ident}/index.html"}
            for ident, spec in content.figures.items()
        ],
    }


def _search_index(content: Content) -> str:
    """Cells, those with runs first, with the words that they are found by; and all other pages."""
    entries = []
    for results, placed in sorted(content.cells(), key=lambda pair: pair[1].result.summary is None):
        experiment = placed.cell.experiment or ""
        choices = content.choices.get(experiment, {})
        state, places = placed.result.state, decimals(results.table, placed.column)
        entries.append(
            [
                cell_page(results, placed),
                results.spec.id,
                placed.row.label,
                placed.column.title,
                published_text(placed.result.published),
                mean_text(placed.result.summary, places),
                f"{outcome_of(state).sign} {state}",
                outcome_of(state).kind,
                paper_of(results.spec.id),
                " ".join([experiment, choices.get("model", ""), choices.get("task", "")]).strip(),
            ]
        )
    return f"{_rows('CELLS', entries)}{_rows('PAGES', list(_found_pages(content)))}"


def _rows(name: str, entries: list[Any]) -> str:
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in entries)
    return f"window.{name} = [\n{rows}\n];\n"


def _found_pages(content: Content) -> Iterator[tuple[str, str, str, str]]:
    """Page, title, kind and further words of all that is no cell."""
    for key in content.papers:
        titles = (reference.title for reference in cited([key]).values())
        yield f"paper/{key}/index.html", paper_title(key), "paper", " ".join(titles)
    for ident, results in content.tables.items():
        words = f"{results.spec.source} {paper_title(paper_of(ident))}"
        yield table_page(ident), f"{ident}: {results.spec.title}", "table", words
    for ident, document in content.settings.items():
        yield table_page(ident), f"{ident}: {document.title}", "settings", paper_title(paper_of(ident))
    for ident, figure in content.figures.items():
        yield f"figure/{ident}/index.html", f"{ident}: {figure.title}", "figure", figure.source
    for kind, entries in (("model", content.models), ("task", content.tasks)):
        yield from ((f"{kind}/{entry.name}/index.html", entry.name, kind, entry.about) for entry in entries)
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        heads = " ".join(line.strip("# ") for line in text.splitlines() if line.startswith("##"))
        yield docs_page(path), prose.title_of(text) or path.stem, "docs", heads


def settings_of(content: Content) -> dict[str, list[Record]]:
    """Identity -> its records in all tables, each run once, by split and seed."""
    every = (chain.from_iterable(results.records.values()) for results in content.tables.values())
    runs: dict[tuple[str, int, int], Record] = {}
    for record in chain.from_iterable(every):
        runs.setdefault((record["identity"], record["split"], record["seed"]), record)
    return grouped((identity, record) for (identity, *_), record in sorted(runs.items(), key=itemgetter(0)))


def _plain(content: Content) -> str:
    out = [
        "# physml: published numbers of physics-inspired ML, trained again",
        "",
        "> Each table of the papers on coRNN, UnICORNN, LEM, GraphCON and G2 beside our runs, with verdicts.",
        "",
        "- [All cells as CSV](api/v1/cells.csv)",
        "- [All runs as CSV](api/v1/runs.csv)",
        "- [Index of tables as JSON](api/v1/index.json)",
        "- [What a verdict means](docs/verdicts/index.html)",
        "",
        "## Tables",
        "",
    ]
    out += [
        f"- [{ident}](table/{ident}/{ident}.md): {md(results.spec.title)} ({table_state(results.table)})"
        for ident, results in content.tables.items()
    ]
    return "\n".join(out) + "\n"


def sitemap(names: list[str], base: str) -> str:
    from xml.sax.saxutils import escape

    urls = "".join(
        f"<url><loc>{escape(base.rstrip('/') + '/' + name)}</loc></url>\n" for name in sorted(names)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'
    )
