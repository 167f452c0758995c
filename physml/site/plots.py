"""Small pictures as inline SVG: printed beside ours on one axis, and curves. Places are in per cent."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from physml.base.text import plain
from physml.report.stats.summary import Published, Summary

LOG_FROM = 15.0  # greatest over least value, from where on an axis is logarithmic
LEFT, RIGHT = 3.0, 97.0  # per cent of the width
HEIGHT = 22
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
                found = [k * 10.0**p for p in powers for k in steps]
                found = [value for value in found if self.low <= value <= self.high]
                if len(found) >= 3:
                    return found[:: math.ceil(len(found) / 7)]
        raw = (self.high - self.low) / 4
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(k * unit for k in (1, 2, 5, 10) if k * unit >= raw)
        first = math.ceil(self.low / step)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def interval_axis(
    cells: Iterable[tuple[Published | None, Summary | None]], references: Iterable[float]
) -> Axis:
    """The axis of one column: all printed numbers and our means, and what reference is not far from them."""
    main = []
    for published, summary in cells:
        if published is not None:
            main += [
                published.value,
                published.value - (published.sd or 0.0),
                published.value + (published.sd or 0.0),
            ]
        if summary is not None:
            main.append(summary.mean)
    main = [value for value in main if math.isfinite(value)]
    if main and max(main) > LOG_FROM * max(min(main), 0.0):
        main = [value for value in main if value > 0] or main
    span = max(main) - min(main) if main else 0.0
    near = [r for r in references if main and min(main) - span <= r <= max(main) + span]
    return Axis.over([*main, *near])


def interval(
    axis: Axis, published: Published | None, summary: Summary | None, references: Sequence[float], label: str
) -> Markup:
    """One row: the printed value as a rhomb with its sd, ours as a dot with its interval."""
    middle = HEIGHT / 2
    parts = [_line(LEFT, middle, RIGHT, middle, "axis")]
    parts += [_line(axis.at(reference), 0, axis.at(reference), HEIGHT, "trivial") for reference in references]
    if published is not None:
        x = axis.at(published.value)
        if published.sd:
            low, high = axis.at(published.value - published.sd), axis.at(published.value + published.sd)
            parts.append(_rect(low, high, HEIGHT, "band"))
        parts.append(
            f'<svg x="{x:.2f}%" y="{middle}" overflow="visible">'
            '<path class="theirs" d="M0-6 6 0 0 6-6 0z"/></svg>'
        )
    if summary is not None:
        if summary.low is not None and summary.high is not None:
            low, high = axis.at(summary.low), axis.at(summary.high)
            parts.append(_line(low, middle, high, middle, "interval"))
            parts += [_line(x, middle - 4, x, middle + 4, "interval") for x in (low, high)]
        parts.append(f'<circle class="ours" cx="{axis.at(summary.mean):.2f}%" cy="{middle}" r="4"/>')
    return _svg(parts, HEIGHT, label)


def axis_row(axis: Axis) -> Markup:
    """The values below the rows of a column."""
    parts = [_line(LEFT, 1, RIGHT, 1, "axis")]
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(_line(x, 0, x, 5, "axis"))
        parts.append(f'<text class="tick" x="{x:.2f}%" y="17" text-anchor="middle">{value:g}</text>')
    return _svg(parts, 20, "axis")


def dots(
    axis: Axis,
    values: Sequence[float],
    published: Published | None,
    summary: Summary | None,
    label: str,
) -> Markup:
    """Every run as a dot, our interval below, and the band of the paper."""
    parts = [_line(LEFT, 56, RIGHT, 56, "axis")]
    if published is not None:
        if published.sd:
            low, high = axis.at(published.value - published.sd), axis.at(published.value + published.sd)
            parts.append(_rect(low, high, 56, "band"))
        x = axis.at(published.value)
        parts.append(_line(x, 0, x, 56, "theirs"))
    for i, value in enumerate(values):
        y = 10 + 5 * (i % 5)
        parts.append(f'<circle class="ours" cx="{axis.at(value):.2f}%" cy="{y}" r="3.5" opacity=".7"/>')
    if summary is not None and summary.low is not None and summary.high is not None:
        low, high = axis.at(summary.low), axis.at(summary.high)
        parts.append(_line(low, 44, high, 44, "interval"))
        parts += [_line(x, 40, x, 48, "interval") for x in (low, high)]
        parts.append(f'<circle class="ours" cx="{axis.at(summary.mean):.2f}%" cy="44" r="4.5"/>')
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(_line(x, 56, x, 61, "axis"))
        parts.append(f'<text class="tick" x="{x:.2f}%" y="74" text-anchor="middle">{value:g}</text>')
    return _svg(parts, 78, label)


def curves(lines: Sequence[tuple[Sequence[float], Sequence[float]]], label: str) -> Markup | None:
    """Curves of one metric against steps, of several runs. None where nothing is finite."""
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
    parts = []
    for line in shown:
        places = " ".join(f"{across.at(x):.1f},{100 - up.at(y):.1f}" for x, y in line)
        parts.append(f'<polyline class="curve" points="{places}"/>')
    inner = (
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" x="3.2rem" y="0" width="100%" height="200" '
        f'overflow="hidden">{"".join(parts)}</svg>'
    )
    texts = [
        f'<text class="tick" x="0" y="{2 * (100 - up.at(value)) + 4:.1f}">{value:.3g}</text>'
        for value in up.ticks()
    ]
    below = [
        f'<text class="tick" x="{x}" y="216" text-anchor="{anchor}">{value:g}</text>'
        for x, anchor, value in (("3.4rem", "start", across.low), ("99%", "end", across.high))
    ]
    return _svg([inner, *texts, *below], 220, label)


def _thinned(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
    finite = [(float(a), float(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    step = max(1, math.ceil(len(finite) / MOST_POINTS))
    return finite[::step] + ([finite[-1]] if finite and (len(finite) - 1) % step else [])


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}%" y1="{y1:g}" x2="{x2:.2f}%" y2="{y2:g}"/>'


def _rect(low: float, high: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{low:.2f}%" y="0" width="{max(high - low, 0.2):.2f}%" height="{height:g}"/>'
    )


def _svg(parts: Iterable[str], height: int, label: str) -> Markup:
    content = "".join(parts)
    return Markup(
        f'<svg width="100%" height="{height}" role="img" aria-label="{escape(plain(label))}">{content}</svg>'
    )
