"""How far rows are behind the first in mean rank, each with its paired interval.

In place of a diagram whose critical difference covers all rows, or all but one, and so says next to nothing.
"""

import textwrap
from typing import TYPE_CHECKING

from physml.report.figure.style import COLOURS
from physml.report.stats.across import Middle, Ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST = 28  # characters of a label before it is wrapped
NAME = "mean rank behind {first} (paired, 95 % interval over runs)"


def covers_all(ranks: Ranks) -> bool:
    """True if the critical difference tells no two rows apart, or only one row from the others."""
    return any(len(group) >= len(ranks.mean) - 1 for group in ranks.groups())


def draw_gaps(axes: "Axes", ranks: Ranks, behind: dict[str, Middle]) -> None:
    """A dot and an interval for each row; the first row is the line at 0."""
    first = next(iter(ranks.mean))
    for y, gap in enumerate(behind.values()):
        told = gap.low > 0
        axes.plot([gap.low, gap.high], [y, y], color=COLOURS[0] if told else "0.6", linewidth=2)
        axes.plot([gap.mean], [y], "o", color=COLOURS[0] if told else "0.6", markersize=5)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(range(len(behind)), [textwrap.fill(row, WIDEST) for row in behind], fontsize=9)
    axes.set_ylim(len(behind) - 0.5, -0.5)
    axes.set_xlabel(NAME.format(first=first))
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
