"""Critical-difference diagrams: rows on an axis of mean ranks, those that are not told apart joined by bars.

Demsar 2006, section 3.2.4, with the best rank at the left. Lengths on the vertical axis are lines of text,
counted downwards from the axis of ranks. Where the critical difference covers all rows, or all but one, and
so says next to nothing: how far each row is behind the first, with its paired interval.
"""

import textwrap
from typing import TYPE_CHECKING

from physml.report.figure.collect import Figure
from physml.report.figure.style import COLOURS, canvas_of
from physml.report.stats.across import Middle, Ranks
from physml.report.table.ranks_text import TOO_FEW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

BLUE = COLOURS[0]
WIDTH = 6.4  # inches
LINE = 0.17  # inches of a line of text
WIDEST = 24  # characters of a label before it is wrapped
WIDEST_BEHIND = 28  # the same beside intervals
BAR = 0.6  # lines between the bars of two groups
FONT = 9
MOST_NUMBERS = 12  # on the axis; of more ranks every second has its number
GAP = 0.012  # beside labels, as a part of the axis


def draw_ranks(figure: Figure) -> "Canvas":
    """The diagram, or gaps to the first row where none is told apart; a line instead of too few rows."""
    ranks = figure.ranking.ranks if figure.ranking else None
    gaps = figure.ranking.behind if figure.ranking and ranks and covers_all(ranks) else {}
    lines = 6.0 if ranks is None else _first_label(ranks) + _height(list(ranks.mean)) + 5.0
    lines = 1.5 * len(gaps) + 5.0 if gaps else lines
    canvas = canvas_of(WIDTH, 0.5 + LINE * lines)
    canvas.suptitle(f"{figure.spec.id}: {figure.spec.title}", fontsize=11)
    axes = canvas.subplots()
    if ranks and gaps:
        draw_gaps(axes, ranks, gaps)
        return canvas
    axes.set_axis_off()
    if ranks is None:
        axes.text(
            0.5, 0.5, TOO_FEW, transform=axes.transAxes, ha="center", va="center", color="0.5", wrap=True
        )
    else:
        _draw(axes, ranks, figure.spec.x_label)
    return canvas


def _draw(axes: "Axes", ranks: Ranks, x_label: str) -> None:
    last = len(ranks.mean)
    axes.plot([1, last], [0, 0], color="black", linewidth=1)
    for rank in range(1, last + 1):
        axes.plot([rank, rank], [-0.3, 0], color="black", linewidth=1)
    for rank in range(1, last + 1, 1 if last <= MOST_NUMBERS else 2):
        axes.text(rank, -0.45, str(rank), ha="center", va="bottom", fontsize=FONT)
    axes.text((1 + last) / 2, -1.8, x_label, ha="center", va="bottom", fontsize=FONT)
    _critical(axes, ranks)
    for i, group in enumerate(ranks.groups()):
        y = 0.7 + BAR * i
        over = GAP / 2 * (last - 1)
        ends = [ranks.mean[group[0]] - over, ranks.mean[group[-1]] + over]
        axes.plot(ends, [y, y], color=BLUE, linewidth=3.5, solid_capstyle="butt", zorder=3)
    rows = list(ranks.mean)
    half = (len(rows) + 1) // 2
    _labels(axes, ranks, rows[:half], left=True)
    _labels(axes, ranks, rows[: half - 1 : -1] if half else [], left=False)
    low = _first_label(ranks) + _height(rows)
    axes.set_xlim(1, last)
    axes.set_ylim(low, -4.2)


def _critical(axes: "Axes", ranks: Ranks) -> None:
    """The critical difference as a length, above the axis."""
    y, end = -3.3, 1 + ranks.critical
    axes.plot([1, end], [y, y], color=BLUE, linewidth=1.5, clip_on=False)
    for x in (1.0, end):
        axes.plot([x, x], [y - 0.25, y + 0.25], color=BLUE, linewidth=1.5, clip_on=False)
    text = f"critical difference {ranks.critical:.2f}"
    axes.text(end + GAP * (len(ranks.mean) - 1), y, text, ha="left", va="center", fontsize=FONT, color=BLUE)


def _labels(axes: "Axes", ranks: Ranks, rows: list[str], *, left: bool) -> None:
    """Labels at one side, the outermost row first, so that no line crosses another."""
    gap = GAP * (len(ranks.mean) - 1)
    edge = 1 - 2 * gap if left else len(ranks.mean) + 2 * gap
    y = _first_label(ranks)
    for row in rows:
        text, rank = textwrap.fill(row, WIDEST), ranks.mean[row]
        lines = text.count("\n") + 1
        middle = y + lines / 2
        axes.plot([rank, rank, edge], [0, middle, middle], color="0.35", linewidth=0.8, clip_on=False)
        first, *more = text.split("\n")
        whole = f"{text}  {rank:.2f}" if left else "\n".join([f"{rank:.2f}  {first}", *more])
        side = "right" if left else "left"
        place = edge - gap if left else edge + gap
        axes.text(place, middle, whole, ha=side, va="center", fontsize=FONT, multialignment=side)
        y += lines + 0.35


def _first_label(ranks: Ranks) -> float:
    return 1.0 + BAR * len(ranks.groups())


def _height(rows: list[str]) -> float:
    """Lines that the labels of the longer side take."""
    half = (len(rows) + 1) // 2
    lines = [textwrap.fill(row, WIDEST).count("\n") + 1.35 for row in rows]
    return max(sum(lines[:half]), sum(lines[half:]))


def covers_all(ranks: Ranks) -> bool:
    """True if the critical difference tells no two rows apart, or only one row from the others."""
    return any(len(group) >= len(ranks.mean) - 1 for group in ranks.groups())


def draw_gaps(axes: "Axes", ranks: Ranks, behind: dict[str, Middle]) -> None:
    """A dot and an interval for each row; the first row is the line at 0."""
    first = next(iter(ranks.mean))
    for y, gap in enumerate(behind.values()):
        told = gap.low > 0
        axes.plot([gap.low, gap.high], [y, y], color=BLUE if told else "0.6", linewidth=2)
        axes.plot([gap.mean], [y], "o", color=BLUE if told else "0.6", markersize=5)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(behind)), [textwrap.fill(row, WIDEST_BEHIND) for row in behind], fontsize=9)
    axes.set_ylim(len(behind) - 0.5, -0.5)
    axes.set_xlabel(f"mean rank behind {first} (paired, 95 % interval over runs)")
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
