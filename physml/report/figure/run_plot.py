"""Pictures of the curves of runs: all columns of one, or one metric of several. No torch."""

import math
from pathlib import Path
from typing import Any

from physml.report.figure.files import write_picture
from physml.report.figure.style import canvas_of, style

SIZE = (6.4, 4.2)


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
