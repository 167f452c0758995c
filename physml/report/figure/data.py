"""The numbers of a figure as a CSV file: a line per drawn point, bin or rank, with seven digits.

Columns that say nothing of a line are NA. Lines of figures without runs, which can be made again, are
thinned to at most MOST points, evenly along the axis.
"""

from collections.abc import Iterator

import numpy as np

from physml.report.figure.collect import Curve, Figure
from physml.report.figure.legend import published
from physml.report.figure.plot import histogram_edges
from physml.report.figure.spec import WITHOUT_RUNS
from physml.report.figure.style import evenly
from physml.report.outcome import State
from physml.report.table.ranks_text import values as rank_values
from physml.report.text.document import csv_text

HEADS = ("panel", "series", "kind", "run", "x", "x_end", "y", "low", "high", "n", "state")
MOST = 251  # points of a line of a figure without runs
DIGITS = 7


def comma_separated(figure: Figure) -> str:
    """The drawn numbers; y of ranks is the mean rank, x the row."""
    return csv_text([HEADS, *([line.get(head) for head in HEADS] for line in _lines(figure))], DIGITS)


def _lines(figure: Figure) -> Iterator[dict[str, object]]:
    spec = figure.spec
    for ranked in rank_values(figure.ranking):
        names = {"column": "panel", "row": "series", "state": "kind", "mean": "y"}
        yield {names.get(key, key): value for key, value in ranked.items()}
    for family, behind in figure.gaps.items():
        for row, gap in behind.items():
            yield {
                "panel": family, "series": row, "kind": "ranks behind the first",
                "y": gap.mean, "low": gap.low, "high": gap.high,
            }  # fmt: skip
    for panel, curves in figure.panels:
        values = [curve.values for curve in curves if curve.values is not None]
        edges = histogram_edges(np.concatenate(values), spec) if values else None
        for curve in curves:
            state = published(State(curve.state.word))
            about: dict[str, object] = {"panel": panel.title, "series": curve.label, "state": state}
            if not curve.drawn:
                yield about | {"kind": "nothing"}
            for line in _of_curve(figure, curve, edges):
                yield about | line
        for printed in panel.printed:
            for x, y in zip(printed.x, printed.y, strict=True):
                yield {"panel": panel.title, "series": printed.label, "kind": "printed", "x": x, "y": y}
    for mark in spec.marks:
        yield {"series": mark.label, "kind": "mark", "x": mark.x, "y": mark.y}


def _of_curve(figure: Figure, curve: Curve, edges: np.ndarray | None) -> Iterator[dict[str, object]]:
    runs = curve.done or None
    if curve.values is not None and edges is not None:
        counts, _ = np.histogram(curve.values, bins=edges)
        for low, high, count in zip(edges, edges[1:], counts, strict=False):
            yield {"kind": "bin", "x": float(low), "x_end": float(high), "y": int(count), "n": runs}
    for k, (x, y) in enumerate(curve.each):
        for at, value in zip(x, y, strict=True):
            yield {"kind": "run", "run": k, "x": float(at), "y": float(value), "n": 1}
    if curve.x is None or curve.y is None:
        return
    most = MOST if figure.spec.kind in WITHOUT_RUNS else len(curve.x)
    for i in evenly(curve.x, figure.spec.x_scale == "log", most):
        line = {"kind": "point", "x": float(curve.x[i]), "y": float(curve.y[i])}
        if curve.low is not None and curve.high is not None:
            line |= {"low": float(curve.low[i]), "high": float(curve.high[i])}
        yield line | {"n": curve.counts[i] if curve.counts else runs}
