"""`physml cite`: what to cite for a table, as BibTeX."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    cite = commands.add_parser("cite", help="print what to cite for tables, as BibTeX")
    cite.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="lem-4, ./mine.yaml; none: physml and the papers whose tables it has",
    )
    cite.add_argument("--paper", default="lem", help="the paper that a bare number belongs to (lem)")
    cite.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.report.references import bibtex, cited, of_physml, references

    papers: dict[str, None] = {}
    models: dict[str, None] = {}
    datasets: dict[str, None] = {}
    for ident in options.ids:
        _add(ident, options.paper, papers, models, datasets)
    if not options.ids:
        papers = dict.fromkeys(key for reference in references().values() for key in reference.papers)
    entries = [bibtex(key, reference) for key, reference in cited(papers, models, datasets).items()]
    print("\n\n".join([of_physml(), *entries]))
    return 0


def _add(
    ident: str, paper: str, papers: dict[str, None], models: dict[str, None], datasets: dict[str, None]
) -> None:
    """The paper, the models and the data sets of a table."""
    from physml.config.compose import compose
    from physml.report.table.spec import experiments_of, find_table, kind_of, load_table

    path = find_table(ident, paper)
    papers[path.stem.partition("-")[0]] = None
    if kind_of(path) == "settings":
        return
    for experiment in experiments_of(load_table(path)):
        composed = compose([f"experiment={experiment}"])
        if model := composed.choices.get("model"):
            models[model] = None
        datasets |= dict.fromkeys(composed.datasets)
