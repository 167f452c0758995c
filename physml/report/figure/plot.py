"""Pictures: what is known of a figure becomes a drawing. The same records, the same drawing."""

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from physml.report.figure.collect import Curve, Figure
from physml.report.figure.legend import NOTE, absent, add_legends, caption, legend_width, whole_labels
from physml.report.figure.limits import bounds, limits, within
from physml.report.figure.rank_plot import draw_ranks
from physml.report.figure.spec import WITHOUT_RUNS, FigureSpec, Panel
from physml.report.figure.style import ON_A_LINE, WIDTH, Style, canvas_of, evenly, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANEL = (4.3, 3.3)  # inches
ALONE = (5.8, 4.0)  # of a figure with one panel
LEAVES = "A triangle at an edge: the line goes on outside the frame."
MARK_DASHES = ("--", ":", "-.")
MOST_TICKS = 12  # settings on an axis that have their number
ACROSS, DIGIT = 216.0, 5.3  # typographic points: from the first to the last setting of a panel, and a digit
IN_A_BAND = 250  # points of its edge
FINE = 0.7  # width of a line that goes back, a trajectory in a plane
DODGE = 2.0  # typographic points between the bars of two series at the same setting


def draw(figure: Figure) -> "Canvas":
    """The figure as matplotlib draws it: panels in rows, each with a line that says what was not run.

    A panel without runs is left out, and named below; if all are, they are drawn empty.
    """
    spec = figure.spec
    if spec.kind == "ranks":
        return draw_ranks(figure)
    whole, figure = figure, _with_runs(figure)
    n = len(figure.panels)
    columns = min(spec.columns or n, n)
    rows = math.ceil(n / columns)
    width, height = ALONE if n == 1 else (PANEL[0] * columns, (ALONE[1] if rows == 1 else PANEL[1]) * rows)
    canvas = canvas_of(width + legend_width(figure, columns), height)
    grid = canvas.subplots(rows, columns, squeeze=False)
    looks, span, frame = styles(figure), _span(figure), _frame(figure)
    for axes, (panel, curves) in zip(grid.ravel(), figure.panels, strict=False):
        own = (panel.y_limits[0], panel.y_limits[1]) if panel.y_limits else frame
        _panel(axes, spec, panel, curves, looks, own)
        if span:
            axes.set_xlim(*span)
    for axes in grid.ravel()[n:]:
        axes.set_axis_off()
    add_legends(canvas, grid, figure)
    canvas.suptitle(f"{spec.id}: {spec.title}", fontsize=11)
    leaves = any(not line.get_clip_on() for axes in grid.flat for line in axes.lines)
    if text := f"{caption(whole, figure)} {LEAVES if leaves else ''}".strip():
        canvas.supxlabel(textwrap.fill(text, int(14 * canvas.get_figwidth())), fontsize=8, color=NOTE)
    return canvas


def _with_runs(figure: Figure) -> Figure:
    kept = tuple(pair for pair in figure.panels if any(curve.drawn for curve in pair[1]))
    return dataclasses.replace(figure, panels=kept or figure.panels)


def _span(figure: Figure) -> tuple[float, float] | None:
    """The limits of x of curves, the same in every panel, and of points; None where matplotlib finds them."""
    spec = figure.spec
    if spec.kind not in ("curves", "points") or len({panel.x_label for panel, _ in figure.panels}) > 1:
        return None
    drawn = [curve for _, curves in figure.panels for curve in curves if curve.drawn]
    x = [value for curve in drawn if curve.x is not None for value in curve.x]
    x += [value for curve in drawn for steps, _ in curve.each for value in steps]
    x += [value for panel, _ in figure.panels for printed in panel.printed for value in printed.x]
    if x:  # of points also those that are missing, so that the axis is the same when they are there
        x += [point.x for panel, _ in figure.panels for series in panel.series for point in series.points]
    return bounds(x, spec.x_scale == "log")


def _frame(figure: Figure) -> tuple[float, float] | None:
    """The limits of y, the same in every panel: of the config, else of curves and points from the data."""
    spec = figure.spec
    if spec.y_limits:
        return spec.y_limits[0], spec.y_limits[1]
    if spec.kind not in ("curves", "points") or len({panel.y_label for panel, _ in figure.panels}) > 1:
        return None
    fixed = [mark.y for mark in spec.marks if mark.y is not None]
    fixed += [y for panel, _ in figure.panels for printed in panel.printed for y in printed.y]
    return limits([curve for _, curves in figure.panels for curve in curves], fixed, spec.y_scale == "log")


def _panel(
    axes: "Axes",
    spec: FigureSpec,
    panel: Panel,
    curves: tuple[Curve, ...],
    looks: Mapping[str, Style],
    frame: tuple[float, float] | None,
) -> None:
    axes.set_xlabel(panel.x_label or spec.x_label)
    axes.set_ylabel(panel.y_label or spec.y_label)
    axes.set_xscale(spec.x_scale)
    axes.set_yscale(spec.y_scale)
    axes.tick_params(labelsize=9)
    _draw_curves(axes, spec, curves, looks, frame)
    for printed in panel.printed:
        theirs = looks[printed.of] if printed.of else Style("black", "solid", "D")
        dots = (0, (1, 2)) if len(printed.x) > 2 else "none"
        axes.plot(
            printed.x, printed.y, label=printed.label, color=theirs.colour, linestyle=dots, linewidth=1,
            marker=theirs.marker, markersize=5.5, markerfacecolor="none", zorder=4,
        )  # fmt: skip
    for i, mark in enumerate(spec.marks):
        look: Any = {"color": "0.35", "linestyle": MARK_DASHES[i % 3], "linewidth": 1, "label": mark.label}
        if mark.y is not None:
            axes.axhline(mark.y, **look)
        elif mark.x is not None:
            axes.axvline(mark.x, **look)
    if frame:
        axes.set_ylim(*frame)
    missing = absent(curves)
    _ticks(axes, spec, curves)
    if panel.printed or any(curve.drawn for curve in curves):
        notes = [part for text in missing for part in whole_labels(text, 62)]
        axes.set_title(panel.title, fontsize=10, pad=6 + 9 * len(notes))
        if notes:
            _say(axes, "\n".join(notes), (0.5, 1.0), va="bottom", fontsize=7)
    else:
        axes.set_title(panel.title, fontsize=10)
        text = missing or ["nothing to draw" if spec.kind in WITHOUT_RUNS else "no run yet"]
        lines = [part for message in text for part in whole_labels(message, 46)]
        _say(axes, "\n".join(lines), (0.5, 0.5), va="center", fontsize=9, backgroundcolor="white")
        axes.set_xticks([], minor=False)
        if not spec.marks:
            axes.set_yticks([])
        axes.minorticks_off()
    if panel.equal:
        axes.set_aspect("equal", adjustable="datalim")


def _say(axes: "Axes", text: str, place: tuple[float, float], **options: Any) -> None:
    up = 3 if place[1] == 1.0 else 0
    axes.annotate(
        text, place, (0, up), xycoords="axes fraction", textcoords="offset points", ha="center", color=NOTE,
        **options,
    )  # fmt: skip


def _draw_curves(
    axes: "Axes",
    spec: FigureSpec,
    curves: Sequence[Curve],
    looks: Mapping[str, Style],
    frame: tuple[float, float] | None,
) -> None:
    values = [curve.values for curve in curves if curve.values is not None]
    edges = histogram_edges(np.concatenate(values), spec) if values else None
    drawn = [curve for curve in curves if curve.drawn]
    dots = {curve.label: len(curve.x) for curve in drawn if curve.line == "dots" and curve.x is not None}
    whole = [label for label, points in dots.items() if points == max(dots.values())]
    for i, curve in enumerate(drawn):
        look = looks[curve.label]
        if curve.values is not None and edges is not None:
            _histogram(axes, curve, edges, look, filled=spec.y_scale == "linear")
        elif spec.kind == "points":
            _points(axes, curve, look, DODGE * (i - (len(drawn) - 1) / 2))
        elif curve.label in dots:
            # Those that stand out lie on the others; of three or more that have as many points
            # each is smaller than those below it.
            size = 6.0 if curve.label == next(iter(dots)) else 9.0
            if curve.label in whole and len(whole) > 2:
                size = 14.0 - 9.0 * whole.index(curve.label) / (len(whole) - 1)
            assert curve.x is not None and curve.y is not None
            look_of = look.line() | look.marks(size) | {"linestyle": "none"}
            axes.plot(curve.x, curve.y, label=curve.label, **look_of)
            _band(axes, curve, look, spec)
        elif curve.y is not None and curve.x is not None:
            offset = i / len(drawn) if len(drawn) > 1 else None
            _line(axes, curve, look, frame, spec, offset)
        for k, (x, y) in enumerate(curve.each):
            left = within(x, y, frame, spec.y_scale == "log", spec.x_scale == "log") if frame else None
            axes.plot(x, y, label="_" if k else curve.label, **look.path(len(x), 0.9))
            axes.plot(x[-1:], y[-1:], label="_", color=look.colour, linestyle="none", **look.marks(5))
            _exits(axes, left.exits if left else (), look)


def _histogram(axes: "Axes", curve: Curve, edges: np.ndarray, look: Style, *, filled: bool) -> None:
    """An outline; on a logarithmic axis without an area, whose size would mean nothing there."""
    assert curve.values is not None
    counts, _ = np.histogram(curve.values, bins=edges)
    if filled:
        axes.stairs(counts, edges, fill=True, color=look.colour, alpha=0.2)
    axes.stairs(counts, edges, baseline=None, label=curve.label, **look.line())


def _points(axes: "Axes", curve: Curve, look: Style, dodge: float) -> None:
    """Means with one standard deviation, a little beside those of other series."""
    from matplotlib.transforms import offset_copy

    assert curve.x is not None and curve.y is not None and curve.high is not None
    beside = offset_copy(axes.transData, cast(Any, axes.figure), x=dodge, units="points")
    bars = {"yerr": curve.high - curve.y, "capsize": 2.5, "elinewidth": 0.9, "transform": beside}
    axes.errorbar(
        curve.x, curve.y, label=curve.label, **bars, **look.line() | {"linestyle": "none"}, **look.marks(6)
    )
    for at in joined(curve):
        axes.plot(curve.x[at], curve.y[at], label="_", transform=beside, **look.line())


def joined(curve: Curve) -> list[slice]:
    """Stretches of points without a gap, where runs are missing; two points alone are no trend."""
    assert curve.x is not None
    ends = [0, *curve.gaps, len(curve.x)]
    stretches = [slice(low, high) for low, high in pairwise(ends) if high - low > 1]
    return stretches if len(curve.x) > 2 else []


def _line(
    axes: "Axes",
    curve: Curve,
    look: Style,
    frame: tuple[float, float] | None,
    spec: FigureSpec,
    offset: float | None,
) -> None:
    """A line with its band. offset: of the markers along it, from 0 to 1; None: it needs none."""
    assert curve.x is not None and curve.y is not None
    x, y, exits = curve.x, curve.y, ()  # type: tuple[Any, Any, tuple[tuple[float, bool], ...]]
    if frame:
        left = within(x, y, frame, spec.y_scale == "log", spec.x_scale == "log")
        x, y, exits = left.x, left.y, left.exits
    goes_back = bool((np.diff(x) < 0).any())
    path = look.path(len(curve.x), FINE if goes_back else WIDTH)
    if offset is not None and not goes_back and len(curve.x) > 2:
        path |= look.marks() | {"markevery": evenly(x, spec.x_scale == "log", ON_A_LINE, 0.1 + 0.8 * offset)}
    axes.plot(x, y, label=curve.label, **path)
    _band(axes, curve, look, spec)
    _exits(axes, exits, look)


def _band(axes: "Axes", curve: Curve, look: Style, spec: FigureSpec) -> None:
    """From the least to the greatest of several runs."""
    if curve.x is None or curve.low is None or curve.high is None:
        return
    if curve.done > 1 or not curve.wanted:
        at = evenly(curve.x, spec.x_scale == "log", IN_A_BAND)
        band = curve.x[at], curve.low[at], curve.high[at]
        axes.fill_between(*band, color=look.colour, alpha=0.15, linewidth=0)


def _exits(axes: "Axes", exits: Sequence[tuple[float, bool]], look: Style) -> None:
    """A triangle at the edge of the frame where a line leaves it."""
    for x, above in exits:
        axes.plot(
            [x], [1.0 if above else 0.0], marker="^" if above else "v", markersize=7, color=look.colour,
            label="_", linestyle="none", transform=axes.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip


def _ticks(axes: "Axes", spec: FigureSpec, curves: Sequence[Curve]) -> None:
    """Round numbers; of points, of simulations on a logarithmic axis where they are few, and of measurements
    the settings.
    """
    from matplotlib import ticker

    axis = axes.xaxis
    for scale, scaled_axis in ((spec.x_scale, axes.xaxis), (spec.y_scale, axes.yaxis)):
        if scale == "linear":
            scaled_axis.set_major_locator(ticker.MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    settings = sorted({float(x) for curve in curves if curve.x is not None for x in curve.x})
    few = spec.kind == "simulation" and spec.x_scale == "log" and 0 < len(settings) <= MOST_TICKS
    if spec.kind == "measurement" and settings:
        axis.set_major_locator(ticker.FixedLocator(settings))
        return
    if spec.kind != "points" and not few:
        return
    if spec.x_scale == "log" and len(settings) <= MOST_TICKS:
        axis.set_major_locator(ticker.FixedLocator(legible([x for x in settings if x > 0])))
        axis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.set_minor_locator(ticker.NullLocator())
    elif spec.x_scale == "log":
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ticker.EngFormatter(sep=""))
        axis.set_minor_formatter(ticker.NullFormatter())
    elif settings and all(x.is_integer() for x in settings):
        axis.set_major_locator(ticker.MaxNLocator(integer=True))


def legible(settings: Sequence[float]) -> list[float]:
    """Those of them, on a logarithmic axis, whose number does not touch the one before."""
    kept: list[float] = []
    room = ACROSS / math.log(settings[-1] / settings[0]) if len(settings) > 1 else 0.0
    for x in settings:
        if not kept or room * math.log(x / kept[-1]) > DIGIT * len(f"{kept[-1]:g}{x:g}") / 2:
            kept.append(x)
    return kept


def histogram_edges(values: np.ndarray, spec: FigureSpec) -> np.ndarray:
    """From 0 or the least value to the greatest; on a logarithmic axis from the least positive one."""
    if spec.x_scale == "linear" or not (values > 0).any():
        return np.linspace(min(0.0, values.min()), values.max(), spec.bins + 1)
    return np.geomspace(values[values > 0].min(), values.max() * (1 + 1e-6), spec.bins + 1)
