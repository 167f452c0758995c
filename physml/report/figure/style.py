"""How the lines of a figure are told apart: by colour, dashes and markers, so that grey print keeps them.

The colours are those of Okabe and Ito (2008), without yellow, which is too light for lines on white.
"""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from physml.report.figure.collect import Curve, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (8, 2)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
ON_A_LINE = 8  # markers along it
WIDTH = 1.3


@dataclass(frozen=True)
class Style:
    colour: str
    dash: Any
    marker: str

    def line(self, width: float = WIDTH) -> dict[str, Any]:
        """Keywords of a line of matplotlib."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": width}

    def path(self, n: int, width: float = WIDTH) -> dict[str, Any]:
        """Keywords of a line through n points; two points alone are no trend, and stay points."""
        return self.line(width) if n > 2 else self.line() | {"linestyle": "none"} | self.marks(6)

    def marks(self, size: float = 4.5) -> dict[str, Any]:
        return {"marker": self.marker, "markersize": size, "markeredgewidth": 0.5, "markeredgecolor": "white"}


def canvas_of(width: float, height: float) -> "Canvas":
    """An empty picture of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas


def style(i: int, line: str | None = None) -> Style:
    """The i-th style; line: the dashes that a config asks for."""
    dash = DASHES[i % len(DASHES)] if line is None else line
    return Style(COLOURS[i % len(COLOURS)], dash, MARKERS[i % len(MARKERS)])


def styles(figure: Figure) -> dict[str, Style]:
    """The style of each label, the same in every panel; those that are drawn come first.

    A curve that is alone in its panel, and in those beside it, has the first style. Where a config gives one
    series other dashes than solid, all have those of the config.
    """
    panels = [curves for _, curves in figure.panels]
    curves = [curve for panel in panels for curve in panel]
    columns = figure.spec.columns or len(panels) or 1
    rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
    company = {curve.label for row in rows if max(map(len, row)) > 1 for panel in row for curve in panel}
    drawn = [curve.label for curve in curves if curve.drawn and curve.label in company]
    labels = dict.fromkeys(drawn + [curve.label for curve in curves if curve.label in company])
    chosen = any(curve.line not in ("solid", "dots") for curve in curves)
    dashes = {curve.label: curve.line for curve in curves if curve.line != "dots"} if chosen else {}
    by_label = {curve.label: style(0) for curve in curves}
    return by_label | {label: style(i, dashes.get(label)) for i, label in enumerate(labels)}


def evenly(x: np.ndarray, log: bool, n: int, offset: float = 0.0) -> list[int]:
    """At most n points of a line that lie evenly along the axis; where x goes back every second or k-th.

    offset: where the first one lies, in parts of the distance between two; 0: with both ends.
    """
    if len(x) <= n or (np.diff(x) < 0).any():
        return list(range(0, len(x), max(1, -(-len(x) // n))))
    place = np.log10(np.maximum(x, np.finfo(float).tiny)) if log else x
    step = (place[-1] - place[0]) / (n if offset else n - 1)
    places = place[0] + step * (offset + np.arange(n))
    return sorted({int(i) for i in np.abs(place[:, None] - places).argmin(axis=0)})


def span(numbers: Collection[int]) -> str:
    """Counts in words.

    Example:
        >>> span([3]), span({5, 3, 4})
        ('3', '3 to 5')
    """
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Counted:
    """How many runs a curve has, where all are there: at least and at most, or `words` in place of them."""

    low: int = 0
    high: int = 0
    per_point: bool = False
    words: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        if not self.high:
            return ""
        number = span((self.low, self.high))
        return f"{number} run{'s' if self.high > 1 else ''}{' per point' if self.per_point else ''}"

    def __str__(self) -> str:
        """The text for a legend.

        Example:
            >>> str(Counted(3, 3, True)), str(Counted(1, 3, words=("short budget",)))
            ('3 runs per point', '1 to 3 runs, short budget')
        """
        return ", ".join(filter(None, (self.number, *self.words)))

    def __or__(self, other: "Counted") -> "Counted":
        """The count of two panels together; what is true of one of them alone is true in part.

        Example:
            >>> str(Counted(words=("1 of 5 runs",)) | Counted(3, 3, words=("short budget",)))
            '3 runs, partly 1 of 5 runs, partly short budget'
        """
        low = min(filter(None, (self.low, other.low)), default=0)
        words = dict.fromkeys(
            word if word in {*self.words} & {*other.words} else f"partly {word.removeprefix('partly ')}"
            for word in (*self.words, *other.words)
        )
        return Counted(low, max(self.high, other.high), self.per_point or other.per_point, tuple(words))


def counted(curve: Curve) -> Counted:
    """The runs behind a drawn curve; of one that is not complete its state."""
    if not curve.wanted:
        return Counted()
    short = ("short budget",) if curve.shorts else ()
    whole = curve.done == curve.wanted and curve.state.word != "running"
    if curve.counts:
        words = () if whole else (_left(curve),)
        return Counted(min(curve.counts), max(curve.counts), True, (*words, *short))
    return Counted(curve.done, curve.done, words=short) if whole else Counted(words=(_left(curve), *short))


def _left(curve: Curve) -> str:
    """Runs of a curve that is not complete; of one that failed its state."""
    failed = curve.state.word in ("failed", "diverged")
    return str(curve.state) if failed else f"{curve.done} of {curve.wanted} runs"


def apart(counts: Sequence[Counted]) -> tuple[str, list[str]]:
    """Common part of several labels, as the legend's title, and the rest of each label."""
    if len(counts) < 2:
        return "", list(map(str, counts))
    numbers, words = {count.number for count in counts}, {count.words for count in counts}
    common = Counted()
    if len(numbers) == 1:
        common = dataclasses.replace(counts[0], words=())
    if len(words) == 1:
        common = dataclasses.replace(common, words=words.pop())
    rest = [
        (count.number if len(numbers) > 1 else "", *(count.words if len(words) > 1 else ()))
        for count in counts
    ]
    return str(common), [", ".join(filter(None, parts)) for parts in rest]
