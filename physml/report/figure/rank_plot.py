"""Critical-difference diagrams: rows on an axis of mean ranks, those that are not told apart joined by bars.

Demsar 2006, section 3.2.4, with the best rank at the left. Lengths on the vertical axis are lines of text,
counted downwards from the axis of ranks. Where the critical difference covers all rows, or all but one, and
so says next to nothing: how far each row is behind the best one, by family of columns, with its paired
interval.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from physml.report.figure.collect import Figure
from physml.report.figure.legend import NOTE
from physml.report.figure.style import COLOURS, canvas_of, span
from physml.report.stats.across import Middle, Ranks
from physml.report.table.ranks import TOO_FEW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

BLUE, ORANGE, GREY = COLOURS[0], COLOURS[1], "0.6"
WIDTH = 6.4  # inches
FAMILY = 2.2  # inches of a family of columns
LINE = 0.17  # inches of a line of text
WIDEST = 24  # characters of a label before it is wrapped
WIDEST_BEHIND = 28  # the same beside intervals
BAR = 0.6  # lines between the bars of two groups
FONT = 9
MOST_NUMBERS = 12  # on the axis; of more ranks every second has its number
GAP = 0.012  # beside labels, as a part of the axis


def draw_ranks(figure: Figure) -> "Canvas":
    """The diagram, or gaps to the first row where none is told apart; a line instead of too few rows."""
    ranking = figure.ranking
    ranks = ranking.ranks if ranking else None
    gaps = figure.gaps if ranks and covers_all(ranks) else {}
    lines = 6.0 if ranks is None else _first_label(ranks) + _height(list(ranks.mean)) + 5.0
    lines = 1.5 * len(ranks.mean) + 4.5 if ranks and gaps else lines
    canvas = canvas_of(WIDTH + FAMILY * max(0, len(gaps) - 1), 0.7 + LINE * lines)
    canvas.suptitle(f"{figure.spec.id}: {figure.spec.title}", fontsize=11)
    if ranking and ranks and ranking.samples:
        sizes = {len(runs) for row in ranking.samples.values() for runs in row if runs is not None}
        text = f"{caption(next(iter(ranks.mean))) if gaps else ''} {span(sizes)} runs in each column.".strip()
        canvas.supxlabel(textwrap.fill(text, int(14 * canvas.get_figwidth())), fontsize=8, color=NOTE)
    if ranks and gaps:
        ratios = [WIDTH - 2.0, *[FAMILY] * (len(gaps) - 1)]
        draw_gaps(canvas.subplots(1, len(gaps), sharey=True, squeeze=False, width_ratios=ratios)[0], gaps)
        return canvas
    axes = canvas.subplots()
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


def caption(first: str) -> str:
    """How to read the intervals."""
    return (
        f"Mean ranks behind {first}, paired, with 95 % intervals over runs: blue, behind; orange, ahead; "
        "grey, not told apart."
    )


def draw_gaps(panels: "Sequence[Axes]", gaps: Mapping[str, Mapping[str, Middle]]) -> None:
    """A panel for each family of columns, in it a dot and an interval for each row; the first row is at 0.

    The order of rows is that of the first panel.
    """
    rows = list(next(iter(gaps.values())))
    for axes, (family, behind) in zip(panels, gaps.items(), strict=True):
        for y, gap in enumerate(behind[row] for row in rows):
            colour = BLUE if gap.low > 0 else ORANGE if gap.high < 0 else GREY
            axes.plot([gap.low, gap.high], [y, y], color=colour, linewidth=2)
            axes.plot([gap.mean], [y], "o", color=colour, markersize=5)
        axes.axvline(0, color="black", linewidth=1)
        axes.set_title(family, fontsize=10)
        axes.set_xlabel("ranks behind")
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [textwrap.fill(row, WIDEST_BEHIND) for row in rows], fontsize=9)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
