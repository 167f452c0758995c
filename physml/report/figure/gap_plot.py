"""How far rows are behind the best one in mean rank, by family of columns, each with its paired interval.

In place of a diagram whose critical difference covers all rows, or all but one, and so says next to nothing.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from physml.report.figure.style import COLOURS
from physml.report.stats.across import Middle, Ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST = 28  # characters of a label before it is wrapped
BEHIND, AHEAD, NEITHER = COLOURS[0], COLOURS[1], "0.6"


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
            colour = BEHIND if gap.low > 0 else AHEAD if gap.high < 0 else NEITHER
            axes.plot([gap.low, gap.high], [y, y], color=colour, linewidth=2)
            axes.plot([gap.mean], [y], "o", color=colour, markersize=5)
        axes.axvline(0, color="black", linewidth=1)
        axes.set_title(family, fontsize=10)
        axes.set_xlabel("ranks behind")
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [textwrap.fill(row, WIDEST) for row in rows], fontsize=9)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
