"""A results file as a picture: a panel per workload, a dot per variant, targets as marks; by matplotlib."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.ops.backend import BACKENDS
from scripts.bench import store, targets
from scripts.bench.gemm import LIBRARIES
from scripts.bench.report import LABELS, number, title
from scripts.bench.variants import VARIANTS
from scripts.bench.workloads import WORKLOADS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
FEW_DECADES = 30  # greatest time over the least, below which ticks stand at 1, 2 and 5
OWN, THEIRS, BARE = "#2a6f97", "#b8b8b8", "#8fb8d0"  # the fast kernel, others' code, our slower variants


def write(path: Path, result: Mapping[str, Any], device: str) -> bool:
    """The picture, whole or not at all; False if there is nothing to draw, or no matplotlib."""
    timed = [w.name for w in WORKLOADS if "variants" in result["workloads"].get(w.name, {})]
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from physml.report.figure.files import write_picture
    except ImportError:
        return False
    if not timed:
        return False
    n_rows = math.ceil(len(timed) / COLUMNS)
    figure = Figure(figsize=(4.6 * min(len(timed), COLUMNS), 2.6 * n_rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(n_rows, min(len(timed), COLUMNS), squeeze=False).ravel()
    for axes, name in zip(panels, timed, strict=False):
        _panel(axes, name, result["workloads"][name], device)
    for axes in panels[len(timed) :]:
        axes.set_visible(False)
    what = store.machine_name(result["machine"]) + ("" if device.startswith("cuda") else ", 1 thread")
    unit = "GPU ms" if device.startswith("cuda") else "CPU ms"
    figure.suptitle(
        f"Forward and backward of one batch, {unit} (median), {what}\n"
        "dashed: GEMM limit by torch's products, dotted: by the kernels' own; "
        "triangles: the goals against the loop (down) and nn.LSTM (up); hollow: with memory that stays warm",
        fontsize=10,
    )
    write_picture(figure, path, dpi=130)
    return True


def _panel(axes: "Axes", name: str, result: Mapping[str, Any], device: str) -> None:
    from matplotlib.ticker import LogLocator

    kernel = targets.fast(device)
    times = {v: ms for v in VARIANTS if (ms := targets.time_of(result, v)) is not None}
    colours = [OWN if v == kernel else BARE if v in BACKENDS else THEIRS for v in times]
    heights = list(range(len(times)))
    across = axes.get_yaxis_transform()
    axes.hlines(heights, 0, 1, transform=across, color="0.88", linewidth=0.8, zorder=0)
    axes.scatter(list(times.values()), heights, c=colours, edgecolors="0.25", linewidths=0.6, s=52, zorder=3)
    warm = {v: ms for v in times if (ms := targets.time_of(result, v, "warm")) is not None}
    axes.scatter(
        list(warm.values()),
        [list(times).index(v) for v in warm],
        facecolors="none",
        edgecolors="0.25",
        linewidths=0.6,
        s=52,
        zorder=4,
    )
    for height, ms in zip(heights, times.values(), strict=True):
        axes.text(1.02, height, number(ms), va="center", fontsize=8, transform=across)
    axes.set_ylim(-0.6, len(heights) - 0.4)
    axes.set_yticks(heights, [LABELS[v] for v in times], fontsize=8)
    axes.invert_yaxis()
    limits = [limit for library in LIBRARIES if (limit := targets.limit(result, library))]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda ms, _: number(ms))
    axes.xaxis.set_minor_formatter(lambda *_: "")
    ends = [*times.values(), *limits]
    steps = (1, 2, 5) if max(ends) < FEW_DECADES * min(ends) else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    for limit, dashes in zip(limits, ("--", ":"), strict=False):
        axes.axvline(limit, color="0.25", linestyle=dashes, linewidth=0.9)
    axes.set_xlim(min(ends) / 1.6, max(ends) * 1.6)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title(name), fontsize=9)
    for kind, other, shape in (("loop", targets.loop_of(result), "v"), ("lstm", "lstm", "^")):
        goal = targets.goals(device, name).get(kind)
        if goal and other in times and kernel in times:
            at = times[other] / goal, list(times).index(kernel)
            axes.plot(*at, marker=shape, color="#c1121f", markersize=6, clip_on=False)
