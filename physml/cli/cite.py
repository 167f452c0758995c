"""`physml cite`: what to cite for a table, as BibTeX."""

import argparse
from typing import Any

from physml.cli.options import PAPER, add_options


def add(commands: Any) -> None:
    cite = commands.add_parser("cite", help="print what to cite for tables, as BibTeX")
    cite.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="lem-4, ./mine.yaml; none: physml and the papers whose tables it has",
    )
    add_options(cite, PAPER)
    cite.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.config.compose import compose
    from physml.report.references import bibtex, cited, of_physml, references
    from physml.report.table.spec import experiments_of, find_table, kind_of, load_table

    papers: list[str] = []
    models: list[str] = []
    datasets: list[str] = []
    for ident in options.ids:
        path = find_table(ident, options.paper)
        papers.append(path.stem.partition("-")[0])
        for experiment in [] if kind_of(path) == "settings" else experiments_of(load_table(path)):
            composed = compose([f"experiment={experiment}"])
            models += filter(None, [composed.choices.get("model")])
            datasets += composed.datasets
    if not options.ids:
        papers = [key for reference in references().values() for key in reference.papers]
    entries = [bibtex(key, reference) for key, reference in cited(papers, models, datasets).items()]
    print("\n\n".join([of_physml(), *entries]))
    return 0
