"""Pictures: what is known of a figure becomes a PNG file. The same records, the same bytes."""

import itertools
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from physml import files
from physml.reporting.figure import Curve, Figure
from physml.reporting.figure_spec import WITHOUT_RUNS, FigureSpec
from physml.reporting.rank_plot import draw_ranks
from physml.reporting.state import State

ROOMY = 4  # entries of a legend that still fit inside the axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def draw(figure: Figure) -> "Canvas":
    """The figure as matplotlib draws it: panels in rows, what is missing named in the legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    spec = figure.spec
    if spec.kind == "ranks":
        return draw_ranks(figure)
    n = len(figure.panels)
    columns = spec.columns or n
    rows = math.ceil(n / columns)
    entries = max(sum(c.drawn for c in curves) + len(absent(curves)) for _, curves in figure.panels)
    below = spec.kind in ("curves", "points") and entries > ROOMY  # then the legends stand below the axes
    shared = spec.kind == "simulation" and any(len(curves) > 1 for _, curves in figure.panels)
    width = 4.6 * columns if n > 1 else 6.4
    height = (4.4 if rows == 1 else 3.0 * rows) + 0.2 * entries * below
    canvas = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(canvas)
    grid = canvas.subplots(rows, columns, squeeze=False).ravel()
    every = [curve.label for _, curves in figure.panels for curve in curves]
    colours = {label: f"C{i}" for i, label in enumerate(dict.fromkeys(every))}  # the same in every panel
    for axes, (panel, curves) in zip(grid, figure.panels, strict=False):
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label or spec.x_label)
        axes.set_ylabel(panel.y_label or spec.y_label)
        axes.set_xscale(spec.x_scale)
        axes.set_yscale(spec.y_scale)
        _draw_panel(axes, spec, curves, colours)
        if spec.y_limits:
            axes.set_ylim(*spec.y_limits)
        if panel.equal:
            axes.set_aspect("equal", adjustable="datalim")
            axes.locator_params(nbins=6)
        if shared:
            continue
        if len(curves) > 1 or spec.marks or curves[0].wanted or not curves[0].drawn:
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17)} if below else {}
            axes.legend(fontsize=7, ncols=3 if spec.kind == "trajectories" else 1, **place)
    for axes in grid[n:]:
        axes.set_axis_off()
    if shared:
        _shared_legend(canvas, grid[:n])
    canvas.suptitle(f"{spec.id}: {spec.title}", fontsize=11)
    shorts = {short for _, curves in figure.panels for curve in curves for short in curve.shorts}
    if shorts:
        said = f"Short budget: {'; '.join(sorted(shorts))}. Each run is a line, with a dot at its end."
        canvas.supxlabel(textwrap.fill(said, int(15 * width)), fontsize=8, color="0.3")
    return canvas


def _draw_panel(
    axes: "Axes", spec: FigureSpec, curves: tuple[Curve, ...], colours: Mapping[str, str]
) -> None:
    edges = None
    drawn = [curve.values for curve in curves if curve.values is not None]
    if drawn:
        together = np.concatenate(drawn)
        edges = histogram_edges(together, spec)
    for curve in curves:
        said, colour = legend_label(curve), colours[curve.label]
        if curve.values is not None and edges is not None:
            axes.hist(curve.values, bins=list(edges), label=said, color=colour, alpha=0.6)
        elif spec.kind == "points" and curve.y is not None and curve.x is not None and curve.high is not None:
            bars = {"yerr": curve.high - curve.y, "capsize": 3, "marker": "o", "markersize": 4}
            axes.errorbar(curve.x, curve.y, label=said, color=colour, linestyle=curve.line, **bars)
        elif curve.y is not None and curve.x is not None:
            axes.plot(curve.x, curve.y, label=said, color=colour, **stroke(curve))
            if curve.low is not None and curve.high is not None and (curve.done > 1 or not curve.wanted):
                axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
        for i, (x, y) in enumerate(curve.each):
            axes.plot(x, y, label="_" if i else said, color=colour, linewidth=0.8, linestyle=curve.line)
            axes.plot(x[-1:], y[-1:], label="_", color=colour, marker="o", markersize=3)
    if not any(curve.drawn for curve in curves):
        said = "nothing to draw" if spec.kind in WITHOUT_RUNS else "no run yet"
        axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center", va="center", color="0.5")
        axes.set_xticks([])
    for mark, dashes in zip(spec.marks, itertools.cycle(("--", ":", "-.")), strict=False):
        if mark.y is not None:
            axes.axhline(mark.y, color="0.3", linestyle=dashes, linewidth=1, label=mark.label)
        elif mark.x is not None:
            axes.axvline(mark.x, color="0.3", linestyle=dashes, linewidth=1, label=mark.label)
    for said in absent(curves):
        axes.plot([], [], label=textwrap.fill(said, 48), linestyle="none")


def stroke(curve: Curve) -> dict[str, Any]:
    if curve.line == "dots":
        return {"linestyle": "none", "marker": "o", "markersize": 4}
    return {"linestyle": curve.line, "linewidth": 1.2}


def _shared_legend(canvas: "Canvas", panels: Iterable["Axes"]) -> None:
    """One legend for all panels, below them: each label once."""
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in found}
    columns = len(found) if len(found) <= ROOMY + 1 else math.ceil(len(found) / 2)
    canvas.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, fontsize=8)


def histogram_edges(values: np.ndarray, spec: FigureSpec) -> np.ndarray:
    """From 0 or the least value to the greatest; on a logarithmic axis from the least positive one."""
    if spec.x_scale == "linear" or not (values > 0).any():
        return np.linspace(min(0.0, values.min()), values.max(), spec.bins + 1)
    return np.geomspace(values[values > 0].min(), values.max() * (1 + 1e-6), spec.bins + 1)


def legend_label(curve: Curve) -> str:
    """The legend entry of a drawn curve: its number of runs, and whether its budget is short."""
    if not curve.wanted:
        return curve.label
    whole = curve.done == curve.wanted and curve.state.word != "running"
    words = [f"{curve.done} run{'s' if curve.done > 1 else ''}" if whole else str(curve.state)]
    return f"{curve.label} ({', '.join([*words, *(['short budget'] if curve.shorts else [])])})"


def absent(curves: Iterable[Curve]) -> list[str]:
    """One line for each state of curves that have nothing to draw: `missing: A, B`."""
    states: dict[str, list[str]] = {}
    for curve in curves:
        if not curve.drawn:
            state = curve.state
            if state.word == "blocked":  # what to do, with paths of this machine, is for the screen
                state = State("blocked", re.split(r": looked for |\. ", state.reason or "")[0])
            states.setdefault(str(state), []).append(curve.label)
    return [f"{state}: {', '.join(labels)}" for state, labels in states.items()]


def write_figure(figure: Figure, folder: Path) -> Path:
    """Writes <id>.png into `folder`, whole or not at all. The same records, the same bytes."""
    path = folder / f"{figure.spec.id}.png"
    canvas = draw(figure)
    files.write(path, lambda file: canvas.savefig(file, format="png", dpi=150, metadata={"Software": None}))
    return path


def plot_rows(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """The curves of one run: loss and metrics of each evaluation against steps. Whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4.4), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots()
    names = [key for key in dict.fromkeys(k for row in rows for k in row) if "/" in key]
    positive = True
    for name in names:
        points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        kept = [(step, value) for step, value in points if math.isfinite(value)]
        positive &= all(value > 0 for _, value in kept)
        axes.plot([step for step, _ in kept], [value for _, value in kept], label=name, linewidth=1.2)
    axes.set_yscale("log" if positive else "linear")
    axes.set_xlabel("training steps")
    axes.set_title(title, fontsize=10)
    if names:
        axes.legend(fontsize=7)
    files.write(path, lambda file: canvas.savefig(file, format="png", dpi=100, metadata={"Software": None}))
