"""Small pictures as inline SVG: printed beside ours on one axis, and curves. Places are in per cent."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from physml.base.text import digits, plain
from physml.report.stats.summary import Published, Summary
from physml.report.table.collect import CellResult

LOG_FROM = 15.0  # greatest over least value, from where on an axis is logarithmic
LEFT, RIGHT = 3.0, 97.0  # per cent of the width
HEIGHT = 22
TALL = 200  # of a scatter
MOST_CURVES, MOST_POINTS = 12, 80


@dataclass(frozen=True)
class Axis:
    """Values to per cent of the width."""

    low: float
    high: float
    log: bool

    @classmethod
    def over(cls, values: Iterable[float]) -> "Axis":
        """An axis that holds all values. None finite: from 0 to 1."""
        known = sorted(value for value in values if math.isfinite(value))
        if not known:
            return cls(0.0, 1.0, False)
        low, high = known[0], known[-1]
        log = low > 0 and high / low > LOG_FROM
        if log:
            return cls(low / 1.1, high * 1.1, True)
        pad = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
        return cls(low - pad, high + pad, False)

    def at(self, value: float) -> float:
        """Per cent; what lies outside is at the end."""
        if self.log:
            share = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, share))

    def ticks(self) -> list[float]:
        """Three to seven round values."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1,), (1, 3), (1, 2, 5)):
                values = [k * 10.0**p for p in powers for k in steps]
                values = [value for value in values if self.low <= value <= self.high]
                if len(values) >= 3:
                    return values[:: math.ceil(len(values) / 7)]
        raw = (self.high - self.low) / 4
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(k * unit for k in (1, 2, 5, 10) if k * unit >= raw)
        first = math.ceil(self.low / step)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def interval_axis(
    cells: Iterable[tuple[Published | None, Summary | None]], references: Iterable[float]
) -> Axis:
    """The axis of one column: all printed numbers and our means, and what reference is not far from them."""
    pairs = list(cells)
    printed = [published for published, _ in pairs if published]
    values = [*(p.value for p in printed), *(summary.mean for _, summary in pairs if summary)]
    if not values:
        return Axis.over([])
    least = min(values)
    values += [p.value + sign * (p.sd or 0.0) for p in printed for sign in (-1, 1)]
    if least >= 0 and max(values) > LOG_FROM * max(min(values), 0.0):  # an axis may become logarithmic
        values = [value for value in values if value > 0] or values
    low, high = min(values), max(values)
    near = [r for r in references if 2 * low - high <= r <= 2 * high - low]
    return Axis.over([*values, *near])


def interval(
    axis: Axis, published: Published | None, summary: Summary | None, references: Sequence[float], label: str
) -> Markup:
    """One row: the printed value as a rhomb with its sd, ours as a dot with its interval."""
    middle = HEIGHT / 2
    parts = [_line(LEFT, middle, RIGHT, middle, "axis")]
    parts += [_line(axis.at(reference), 0, axis.at(reference), HEIGHT, "trivial") for reference in references]
    if published is not None:
        parts += _band(axis, published, HEIGHT)
        parts.append(
            f'<svg x="{axis.at(published.value):.2f}%" y="{middle}" overflow="visible">'
            '<path class="theirs" d="M0-6 6 0 0 6-6 0z"/></svg>'
        )
    return _svg([*parts, *_ours(axis, summary, middle, 4)], HEIGHT, label)


def _band(axis: Axis, published: Published, height: float) -> list[str]:
    """The printed standard deviation around the printed number."""
    if not published.sd:
        return []
    low, high = axis.at(published.value - published.sd), axis.at(published.value + published.sd)
    return [
        f'<rect class="band" x="{low:.2f}%" y="0" width="{max(high - low, 0.2):.2f}%" height="{height:g}"/>'
    ]


def _ours(axis: Axis, summary: Summary | None, y: float, radius: float) -> Iterator[str]:
    """Our interval, with a dot at the mean."""
    if summary is None:
        return
    if summary.low is not None and summary.high is not None:
        low, high = axis.at(summary.low), axis.at(summary.high)
        yield _line(low, y, high, y, "interval")
        yield from (_line(x, y - 4, x, y + 4, "interval") for x in (low, high))
    yield f'<circle class="ours" cx="{axis.at(summary.mean):.2f}%" cy="{y}" r="{radius}"/>'


def axis_row(axis: Axis, name: str) -> Markup:
    """The values below the rows of a column."""
    return _svg(_below(axis, 1, name), 35, f"axis: {name}")


def _below(axis: Axis, y: float, name: str) -> list[str]:
    """An axis with its values and its name below it."""
    parts = [_line(LEFT, y, RIGHT, y, "axis")]
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(_line(x, y, x, y + 5, "axis"))
        parts.append(f'<text class="tick" x="{x:.2f}%" y="{y + 17:g}" text-anchor="middle">{value:g}</text>')
    return [*parts, _name("50%", y + 31, name, "middle")]


def _name(x: str, y: float, name: str, anchor: str = "start") -> str:
    return f'<text class="tick name" x="{x}" y="{y:g}" text-anchor="{anchor}">{escape(name)}</text>'


def dots(axis: Axis, values: Sequence[float], result: CellResult, label: str, name: str) -> Markup:
    """Every run as a dot, our interval below, and the band of the paper. name: of the axis."""
    published, summary = result.published, result.summary
    parts = _below(axis, 56, name)
    if published is not None:
        x = axis.at(published.value)
        parts += [*_band(axis, published, 56), _line(x, 0, x, 56, "theirs")]
    for i, value in enumerate(values):
        y = 10 + 5 * (i % 5)
        parts.append(f'<circle class="ours" cx="{axis.at(value):.2f}%" cy="{y}" r="3.5" opacity=".7"/>')
    several = summary if summary and summary.n > 1 else None  # one run is its own mean
    return _svg([*parts, *_ours(axis, several, 44, 4.5)], 92, label)


@dataclass(frozen=True)
class Point:
    """A cell in a scatter. kind: its outcome. page: where a click leads. name: written beside it."""

    x: float
    y: float
    kind: str
    page: str
    label: str
    name: str = ""


def scatter(
    across: Axis,
    up: Axis,
    points: Sequence[Point],
    names: tuple[str, str],
    label: str,
    *,
    diagonal: bool = True,
) -> Markup:
    """Points with links, and the line on which both values are equal. What lies outside is at the edge."""
    ends = max(across.low, up.low), min(across.high, up.high)
    (x1, y1), (x2, y2) = ((across.at(end), 100 - up.at(end)) for end in ends)
    line = f'<line class="trivial" x1="{x1:.2f}%" y1="{y1:.2f}%" x2="{x2:.2f}%" y2="{y2:.2f}%"/>'
    parts = [line] if diagonal else []
    for value in up.ticks():
        y = 100 - up.at(value)
        parts.append(f'<line class="axis" x1="{LEFT}%" x2="{RIGHT}%" y1="{y:.2f}%" y2="{y:.2f}%"/>')
        parts.append(f'<text class="tick" x="{LEFT}%" y="{y - 1:.2f}%">{value:g}</text>')
    places = [(point, across.at(point.x), 100 - up.at(point.y)) for point in points]
    parts += [
        f'<a href="{escape(point.page)}" tabindex="-1"><title>{escape(point.label)}</title>'
        f'<circle class="dot {point.kind}" cx="{x:.2f}%" cy="{y:.2f}%" r="4"/></a>'
        for point, x, y in places
    ]
    parts += [
        f'<text class="tick name" x="{x + 1.2:.2f}%" y="{y - 2:.2f}%">{escape(point.name)}</text>'
        for point, x, y in places
        if point.name
    ]
    inner = f'<svg y="20" width="100%" height="{TALL}" overflow="visible">{"".join(parts)}</svg>'
    outer = [*_below(across, TALL + 20, names[0]), inner, _name(f"{LEFT}%", 10, names[1])]
    return _svg(outer, TALL + 54, label, "group")


def strip(points: Sequence[Point], table: str) -> Markup:
    """Each cell at the difference of ours from its printed number, the line; better is to the right."""
    axis, middle, low = Axis(-100.0, 100.0, False), 8.0, 28.0
    parts = [
        _line(axis.at(0), 0, axis.at(0), 2 * middle, "trivial"),
        _line(LEFT, middle, RIGHT, middle, "axis"),
    ]
    for i, point in enumerate(points):
        parts.append(_dot(point.kind, axis.at(point.y - point.x), middle + 5 * (i % 3 - 1), 3))
    named = [("start", LEFT, "worse"), ("middle", 50.0, "as printed"), ("end", RIGHT, "better")]
    parts += [_name(f"{x}%", low, name, anchor) for anchor, x, name in named]
    return _svg(parts, 30, f"{table}: ours against printed, {len(points)} cells")


def outcome_dots(kinds: Sequence[str], most: int, label: str) -> Markup:
    """A dot for each outcome, on a line with room for `most`."""
    return _svg((_dot(kind, 100 * (i + 0.5) / most, 6, 2.2) for i, kind in enumerate(kinds)), 12, label)


def curves(
    lines: Sequence[tuple[Sequence[float], Sequence[float]]], label: str, names: tuple[str, str]
) -> Markup | None:
    """Curves of several runs. None where nothing is finite. names: what lies across, and what goes up."""
    shown = [_thinned(x, y) for x, y in lines[:MOST_CURVES]]
    points = [point for line in shown for point in line]
    if not points:
        return None
    across = Axis(min(x for x, _ in points), max(max(x for x, _ in points), 1.0), False)
    if across.low == across.high:
        across = Axis(0.0, across.high, False)
    values = sorted(y for _, y in points)
    # A line that runs away does not fill the picture.
    top = values[min(len(values) - 1, int(0.985 * len(values)))]
    up = Axis.over([values[0], top])
    places = (" ".join(f"{across.at(x):.1f},{100 - up.at(y):.1f}" for x, y in line) for line in shown)
    drawn = "".join(f'<polyline class="curve" points="{line}"/>' for line in places)
    inner = (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="200" '
        f'overflow="hidden">{drawn}</svg>'
    )
    texts = [
        f'<text class="tick" x="-3.2rem" y="{2 * (100 - up.at(value)) + 4:.1f}">{digits(value, 3)}</text>'
        for value in up.ticks()
    ]
    below = [
        f'<text class="tick" x="{x}" y="216" text-anchor="{anchor}">{value:g}</text>'
        for x, anchor, value in ((f"{LEFT}%", "start", across.low), (f"{RIGHT}%", "end", across.high))
    ]
    named = [_name("50%", 216, names[0], "middle"), _name(".4rem", 12, names[1])]
    return _svg([inner, *texts, *below, *named], 220, label, style="padding-left: 3.2rem; overflow: visible")


def _thinned(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
    finite = [(float(a), float(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    step = max(1, math.ceil(len(finite) / MOST_POINTS))
    return finite[::step] + ([finite[-1]] if finite and (len(finite) - 1) % step else [])


def _dot(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="dot {kind}" cx="{x:.2f}%" cy="{y:g}" r="{radius:g}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}%" y1="{y1:g}" x2="{x2:.2f}%" y2="{y2:g}"/>'


def _svg(parts: Iterable[str], height: int, label: str, role: str = "img", style: str = "") -> Markup:
    attributes = f'role="{role}" aria-label="{escape(plain(label))}"' + (f' style="{style}"' if style else "")
    return Markup(f'<svg width="100%" height="{height}" {attributes}>{"".join(parts)}</svg>')
