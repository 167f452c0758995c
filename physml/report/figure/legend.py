"""Legends beside the axes, and the words for what is missing."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from physml.report.figure.collect import Curve, Figure
from physml.report.figure.style import Counted, apart, counted, span
from physml.report.outcome import State
from physml.report.text.document import grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

WIDEST = 34  # characters of an entry before it is wrapped
FONT = 8
NOTE = "0.35"  # grey of notes
Entries = dict[str, Counted]  # label -> its runs; nothing for marks and published points


def add_legends(canvas: "Canvas", grid: Any, figure: Figure) -> None:
    """One legend for all panels where its entries are the same in every row, else one beside each row."""
    columns = grid.shape[1]
    rows = _rows(figure, columns)
    if not any(rows):
        return
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0}
    same = all(list(row) == list(rows[0]) for row in rows)
    for i, row in enumerate(rows[:1] if same else rows):
        merged = _merged(rows) if same else row
        last = min(columns, len(figure.panels) - i * columns) - 1
        handles: dict[str, Any] = {}
        for axes in grid.ravel() if same else grid[i]:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        title, texts = _words(merged)
        if last + 1 < columns:  # the place of a panel is free
            last, beside = last + 1, beside | {"bbox_to_anchor": (0.0, 1.0)}
        grid[i, last].legend(
            [handles[label] for label in merged], texts, title=title or None, title_fontsize=FONT,
            fontsize=FONT, handlelength=3.2, alignment="left", **beside,
        )  # fmt: skip


def legend_width(figure: Figure, columns: int) -> float:
    """Inches that a legend beside the axes takes."""
    rows = _rows(figure, columns)
    if not any(rows):
        return 0.0
    words = [(title, *texts) for title, texts in map(_words, rows)]
    longest = max(len(line) for texts in words for text in texts for line in text.split("\n"))
    return 0.75 + 0.062 * longest


def _rows(figure: Figure, columns: int) -> list[Entries]:
    """The entries of each row of panels; none where each panel has one curve that speaks for itself."""
    rows: list[Entries] = []
    for i in range(0, len(figure.panels), columns):
        panels = [[curve for curve in curves if curve.drawn] for _, curves in figure.panels[i : i + columns]]
        named = any(len(drawn) > 1 or any(curve.wanted for curve in drawn) for drawn in panels)
        rows.append(_merged([{curve.label: counted(curve)} for drawn in panels for curve in drawn if named]))
    for i, row in enumerate(rows):
        shown = figure.panels[i * columns : (i + 1) * columns]
        row.update((printed.label, Counted()) for panel, _ in shown for printed in panel.printed)
        row.update((mark.label, Counted()) for mark in figure.spec.marks)
    return rows


def _merged(rows: Sequence[Entries]) -> Entries:
    merged: Entries = {}
    for label, runs in (entry for row in rows for entry in row.items()):
        merged[label] = merged[label] | runs if label in merged else runs
    return merged


def _words(entries: Entries) -> tuple[str, list[str]]:
    """The title of a legend, which says what holds for all curves, and its entries with the rest."""
    of_curves = [label for label, runs in entries.items() if str(runs)]
    common, rest = apart([entries[label] for label in of_curves])
    own = dict(zip(of_curves, rest, strict=True))
    texts = [f"{label} ({own[label]})" if own.get(label) else label for label in entries]
    return textwrap.fill(common, WIDEST), [textwrap.fill(text, WIDEST) for text in texts]


def published(state: State) -> str:
    """The state as a picture says it to any reader: nothing of what this machine lacks or does now."""
    return "not run" if state.word in ("blocked", "missing", "stale", "running") else str(state)


def absent(curves: Iterable[Curve]) -> list[str]:
    """One text for each state of curves that have nothing to draw: `not run: A, B`."""
    states = grouped((published(curve.state), curve.label) for curve in curves if not curve.drawn)
    return [f"{state}: {_listed(labels)}" for state, labels in states.items()]


def _listed(names: list[str]) -> str:
    return ("; " if any("," in name for name in names) else ", ").join(names)


def caption(figure: Figure, shown: Figure) -> str:
    """One text below the panels: what is drawn of several runs, short budgets, and panels that are left out
    as nothing of them was run.
    """
    sentences = [_several(shown)]
    if shorts := {short for _, curves in shown.panels for curve in curves for short in curve.shorts}:
        sentences.append(f"Short budget: {'; '.join(sorted(shorts))}.")
    if any(len(x) > 2 for _, curves in shown.panels for curve in curves for x, _ in curve.each):
        sentences.append("Each run is a line, with a marker at its end.")
    kept = {panel.title for panel, _ in shown.panels}
    if left := [panel.title for panel, _ in figure.panels if panel.title not in kept]:
        sentences.append(f"Not run, and left out: {_listed(left)}.")
    return " ".join(filter(None, sentences))


def _several(figure: Figure) -> str:
    """How curves of several runs or seeds are drawn; empty where there are none."""
    curves = [curve for _, curves in figure.panels for curve in curves]
    if any(max(curve.counts, default=0) > 1 for curve in curves):
        return "Means, with bars of one standard deviation."
    bands = [curve for curve in curves if curve.low is not None and not curve.counts]
    if figure.spec.kind == "simulation" and bands:
        seeds = {len(figure.spec.seeds_of(series)) for panel, _ in figure.panels for series in panel.series}
        return f"Medians over {span(seeds - {0, 1})} seeds, with bands from the least to the greatest."
    several = any(curve.done > 1 for curve in bands)
    return "Means over runs, with bands from the least to the greatest." if several else ""


def whole_labels(text: str, width: int) -> list[str]:
    """The text in lines, broken between labels only, where they fit."""
    kept = re.sub(r"(?<![,;:]) ", "\u00a0", text)
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(kept, width)]
