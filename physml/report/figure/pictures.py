"""Pictures of one run, its curves against steps, and of a search, its trials against each of its settings."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from physml.report.figure.files import write_picture
from physml.report.figure.legend import NOTE
from physml.report.figure.style import COLOURS, canvas_of, style

SIZE = (6.4, 4.2)  # inches of the picture of a run
PANEL = 2.6  # inches
ASIDE = 0.05  # of the distance between two words of a list


def plot_rows(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """The curves of one run: loss and metrics of each evaluation against steps. Whole or not at all."""
    canvas = canvas_of(*SIZE)
    axes = canvas.subplots()
    names = [key for key in dict.fromkeys(k for row in rows for k in row) if "/" in key]
    positive = True
    for i, name in enumerate(names):
        points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        kept = [(step, value) for step, value in points if math.isfinite(value)]
        positive &= all(value > 0 for _, value in kept)
        axes.plot([step for step, _ in kept], [value for _, value in kept], label=name, **style(i).line())
    axes.set_yscale("log" if positive else "linear")
    axes.set_xlabel("training steps")
    axes.set_title(title, fontsize=10)
    if names:
        axes.legend(fontsize=7)
    write_picture(canvas, path, dpi=100)


def write_search_plot(
    title: str,
    metric: str,
    space: Mapping[str, Any],
    trials: Sequence[Mapping[str, Any]],
    best: int | None,
    importance: Mapping[str, float],
    path: Path,
) -> Path:
    """One panel for each key of the space, the most important one first.

    A trial has its point and its value; None: it diverged or was pruned, and is a cross at the top.
    """
    keys = sorted(space, key=lambda key: -importance.get(key, 0.0))
    canvas = canvas_of(max(6.4, PANEL * len(keys)), 3.4)
    grid = canvas.subplots(1, len(keys), sharey=True, squeeze=False)[0]
    values = [trial["value"] for trial in trials if trial["value"] is not None]
    log = bool(values) and min(values) > 0
    for axes, key in zip(grid, keys, strict=True):
        _panel(axes, key, space[key], trials, best)
        part = f", {importance[key]:.0%}" if key in importance else ""
        axes.set_title(f"{key}{part}", fontsize=10)
        axes.set_yscale("log" if log else "linear")
    grid[0].set_ylabel(metric)
    lost = len(trials) - len(values)
    heading = f"{title}: {len(trials)} trials" + (f", {lost} without a value (crosses)" if lost else "")
    canvas.suptitle(heading, fontsize=11)
    legend = "Darker: later trials. Star: the best" + (
        ". Per cent: the part of the variance that a setting explains" if importance else ""
    )
    canvas.supxlabel(legend, fontsize=8, color=NOTE)
    return write_picture(canvas, path)


def _panel(axes: Any, key: str, span: Any, trials: Sequence[Mapping[str, Any]], best: int | None) -> None:
    offered = [str(choice) for choice in span] if isinstance(span, list) else None

    def place(trial: Mapping[str, Any]) -> float:
        value = trial["point"][key]
        if offered is None:
            return value
        return offered.index(str(value)) + ASIDE * (trial["trial"] % 9 - 4)  # so that fewer hide each other

    scored = [trial for trial in trials if trial["value"] is not None and math.isfinite(trial["value"])]
    shades = [trial["trial"] for trial in scored]
    axes.scatter(
        [place(trial) for trial in scored], [trial["value"] for trial in scored], c=shades, cmap="Blues",
        vmin=-len(trials) / 3, edgecolors="0.5", linewidths=0.3, s=18,
    )  # fmt: skip
    lost = [place(trial) for trial in trials if trial["value"] is None]
    axes.scatter(
        lost, [0.97] * len(lost), marker="x", color=COLOURS[1], s=14, transform=axes.get_xaxis_transform()
    )
    for trial in scored:
        if trial["trial"] == best:
            axes.scatter([place(trial)], [trial["value"]], marker="*", color=COLOURS[4], s=110, zorder=3)
    if offered:
        axes.set_xticks(range(len(offered)), offered)
        axes.set_xlim(-0.5, len(offered) - 0.5)
    else:
        axes.set_xscale("log" if span.get("log") else "linear")
    axes.tick_params(labelsize=8)
