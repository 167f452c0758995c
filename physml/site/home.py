"""The first page: what was checked, what came out, printed against ours, and where to go on."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from physml.report.outcome import ALL, NO_VERDICT, NOT_RUN, outcome_of, words_of
from physml.report.references import cited
from physml.report.table.collect import Placed
from physml.report.table.numbers import mean_text, printed_text
from physml.report.text.document import grouped
from physml.report.view.finding import NAMED, written
from physml.site import plots
from physml.site.content import Content, Results, paper_of
from physml.site.data import settings_of
from physml.site.table_pages import ColumnView, cell_page

FINDINGS = 3
LOW, HIGH = -50.0, 150.0  # of the scatter; what lies outside is at its edge


def home_context(content: Content, papers: list[dict[str, Any]]) -> dict[str, Any]:
    """Context of the first page. papers: contexts of their pages."""
    printed = [placed for _, placed in content.cells() if placed.result.published is not None]
    run = [placed for placed in printed if placed.result.summary is not None]
    waiting = [placed for placed in printed if outcome_of(placed.result.state) is NOT_RUN]
    points = [point for results in content.tables.values() for point in _points(results)]
    ran = (placed.cell.experiment for _, placed in content.cells() if placed.result.summary)
    models = {model for name in ran if (model := content.choices.get(name or "", {}).get("model"))}
    most = max((paper["ran"] for paper in papers), default=0)
    return {
        "models": len(models),
        "runs": sum(r["status"] == "finished" for of in settings_of(content).values() for r in of),
        "checked": len(run),
        "total": len(printed),
        "papers": len(cited([paper["key"] for paper in papers if paper["ran"]])),
        "findings": [
            (results, written(results.table), plots.strip(list(_points(results)), results.spec.id))
            for results in headlines(content)
        ],
        "scatter": plots.scatter(
            plots.Axis(-8.0, 108.0, False),
            plots.Axis(LOW, HIGH, False),
            points,
            ("printed: 0 is the worst number of a column, 100 the best", "ours, on the same scale"),
            "Printed numbers against ours",
        ),
        "drawn": len(points),
        "holds": [
            (paper, plots.outcome_dots(paper["dots"], most, f"{paper['ran']} cells with runs, by outcome"))
            for paper in papers
            if paper["total"]
        ],
        "choose": [(results.spec, ranks) for results, ranks in _best(content)],
        "bars": bars(printed),
        "open": len(waiting),
        "ready": sum(placed.cell.experiment is not None for placed in waiting),
    }


def bars(cells: list[Placed]) -> list[tuple[str, str, int]]:
    """Kind, name and number of cells of every outcome."""
    counts = Counter(outcome_of(placed.result.state) for placed in cells)
    return [(outcome.kind, outcome.name, counts[outcome]) for outcome in ALL]


def headlines(content: Content) -> list[Results]:
    """Tables of papers with a written finding that holds, of different papers as far as there are, those with
    most verdicts first.
    """
    candidates = [
        results for results in content.tables.values() if not results.table.own and written(results.table)
    ]

    def verdicts(results: Results) -> int:
        return sum(outcome_of(cell.state) not in (NOT_RUN, NO_VERDICT) for cell in results.table.printed)

    candidates.sort(key=verdicts, reverse=True)
    by_paper = grouped((paper_of(results.spec.id), results) for results in candidates).values()
    ranked = [pair for of_paper in by_paper for pair in enumerate(of_paper)]
    ranked.sort(key=lambda pair: (pair[0], -verdicts(pair[1])))
    return [results for _, results in ranked[:FINDINGS]]


def _points(results: Results) -> Iterator[plots.Point]:
    """Cells with a printed number and ours, on the scale of their column: 0 is the worst printed number, 100
    the best. A column that prints one number has no such scale.
    """
    for column in results.spec.columns:
        view = ColumnView(results, column)
        values = [placed.result.published.value for placed in view.placed if placed.result.published]
        if len(set(values)) < 2:
            continue
        worst, best = min(values), max(values)
        if column.better == "lower":
            worst, best = best, worst
        for placed in view.placed:
            published, summary = placed.result.published, placed.result.summary
            if published and summary:
                x, y = (100 * (v - worst) / (best - worst) for v in (published.value, summary.mean))
                page, kind = cell_page(results, placed), outcome_of(placed.result.state).kind
                yield plots.Point(x, y, kind, page, _label(view, placed))


def _label(view: ColumnView, placed: Placed) -> str:
    ours, printed = mean_text(placed.result.summary, view.places), printed_text(placed.result.published)
    place = f"{view.results.spec.id}, {placed.row.label}, {view.column.heading}"
    return f"{place}: printed {printed}, ours {ours}; {words_of(placed.result.state)}"


def _best(content: Content) -> Iterator[tuple[Results, list[tuple[str, str]]]]:
    """Comparisons of models at an equal budget, with the first rows by mean rank."""
    for results in content.tables.values():
        ranks = list(results.table.mean_ranks.items())
        if results.table.own and results.spec.claim is None and ranks:
            yield results, [(row, f"{rank:.1f}") for row, rank in ranks[:NAMED]]
