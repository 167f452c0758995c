"""Quality against cost of the rows of a table of our own: which models give the most for their cost."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import truediv

from markupsafe import Markup

from physml.base.text import digits
from physml.report.table.collect import CellResult
from physml.report.text.document import NONE, Block, Cell, Grid
from physml.site import plots
from physml.site.content import Results, slug

COSTS: dict[str, Callable[[CellResult], float | None]] = {
    "time of a training": lambda cell: cell.train_s,
    "memory": lambda cell: cell.peak_memory_mib,
    "parameters": lambda cell: cell.params_ours,
}
FEWEST = 4  # rows that are worth a picture


@dataclass(frozen=True)
class Row:
    """A row of a table: its quality, lower is better, and its cost over the median of the rows."""

    label: str
    quality: float
    cost: float


def pareto(rows: Sequence[Row]) -> list[Row]:
    """Rows than which no other is both better and cheaper, the cheapest first.

    Example:
        >>> front = pareto([Row("a", 1.0, 3.0), Row("b", 2.0, 1.0), Row("c", 3.0, 2.0)])
        >>> [row.label for row in front]
        ['b', 'a']
    """
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.cost, row.quality)):
        if not front or row.quality < front[-1].quality:
            front.append(row)
    return front


def rows_of(results: Results, cost: Callable[[CellResult], float | None]) -> list[Row]:
    """Rows with a mean rank, or with a mean in the only column, and a cost in each of these columns."""
    quality, keys = qualities(results)
    known: dict[str, list[float]] = {}
    for label in quality:
        costs = [value for key in keys if (value := cost(results.table.of[label, key]))]
        if len(costs) == len(keys):
            known[label] = costs
    middle = [statistics.median(values) for values in zip(*known.values(), strict=True)]
    costs_of = {label: statistics.geometric_mean(map(truediv, row, middle)) for label, row in known.items()}
    return [Row(label, quality[label], relative) for label, relative in costs_of.items()]


def qualities(results: Results) -> tuple[Mapping[str, float], list[str]]:
    """Row -> mean rank, or its mean where there is one column, signed so that less is better; the columns."""
    if ranks := results.table.mean_ranks:
        return ranks, list(results.spec.ranks)
    if len(results.spec.columns) != 1:
        return {}, []
    (column,) = results.spec.columns
    sign = -1.0 if column.better == "higher" else 1.0
    return {cell.row: sign * cell.summary.mean for cell in results.table.cells if cell.summary}, [column.key]


def costs(results: Results) -> dict[str, dict[str, float]]:
    """By name of a cost, row -> its cost over the median of the rows."""
    if not qualities(results)[0]:
        return {}
    return {name: {row.label: row.cost for row in rows_of(results, cost)} for name, cost in COSTS.items()}


def with_costs(block: Block, costs: Mapping[str, Mapping[str, float]]) -> Block:
    """A matrix of models with a column for each cost; other blocks as they are."""
    if not isinstance(block, Grid) or not costs:
        return block

    def text(number: float | None) -> str:
        return NONE if number is None else digits(number, 2)

    def texts(label: object) -> tuple[str, ...]:
        known = label.at[0] if isinstance(label, Cell) and label.at else ""
        return tuple(text(column.get(known)) for column in costs.values())

    return replace(
        block,
        heads=(*block.heads, *costs),
        lines=tuple((*line, *texts(line[0])) for line in block.lines),
        heading="; ".join(filter(None, (block.heading, "costs as multiples of the median row"))),
        narrow=with_costs(block.narrow, costs) if block.narrow else None,  # type: ignore[arg-type]
    )


def pictures(results: Results) -> Iterator[tuple[str, Markup, str]]:
    """Name, picture and the front in words of each cost that differs between rows by a half and more."""
    if not results.table.own:
        return
    ranked = bool(results.table.mean_ranks)
    name = "mean rank, 1 is the best" if ranked else results.spec.columns[0].title
    for cost, value in COSTS.items():
        rows = rows_of(results, value)
        if len(rows) < FEWEST or max(row.cost for row in rows) < 1.5 * min(row.cost for row in rows):
            continue
        front = pareto(rows)
        sign = -1.0 if not ranked and results.spec.columns[0].better == "higher" else 1.0
        points = [
            plots.Point(
                row.cost,
                sign * row.quality,
                "good" if row in front else "plain",
                f"#{slug(results.spec.columns[0].key)}",
                f"{row.label}: {name} {digits(sign * row.quality, 3)}, {cost} {digits(row.cost, 2)} of the "
                "median",
                row.label if row in front else "",
            )
            for row in rows
        ]
        drawn = plots.scatter(
            plots.Axis.over([point.x for point in points]),
            plots.Axis.over([point.y for point in points]),
            points,
            (f"{cost}, as a multiple of the median row", name),
            f"{name} against {cost} of {len(rows)} models",
            diagonal=False,
        )
        yield cost, drawn, ", ".join(f"{row.label} ({digits(row.cost, 2)})" for row in front)
