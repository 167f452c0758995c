"""Pictures and figures as files: PNG, SVG, PDF, and the numbers as CSV. The same content, the same bytes.

The CSV file has a line per drawn point, bin or rank, with seven digits; columns that say nothing of a line
are NA. Lines of figures without runs, which can be made again, are thinned to at most MOST points, evenly
along the axis.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from physml.base import files
from physml.report.figure.collect import Curve, Figure
from physml.report.figure.legend import published
from physml.report.figure.plot import draw, histogram_edges
from physml.report.figure.spec import WITHOUT_RUNS
from physml.report.figure.style import evenly
from physml.report.outcome import State
from physml.report.table.ranks import rank_values
from physml.report.text.document import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PICTURES = ("png", "svg", "pdf")
FORMS = (*PICTURES, "csv")
USUAL = ("png", "svg", "csv")  # a PDF only where it is asked for
TICK = "$\\mathdefault"  # begins the numbers that matplotlib writes at a logarithmic axis
SHADES = 256  # colours of a PNG: four tenths of the size of one with all
NO_DATES: dict[str, dict[str, Any]] = {
    "png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None},
}  # fmt: skip
HEADS = ("panel", "series", "kind", "run", "x", "x_end", "y", "low", "high", "n", "state")
MOST = 251  # points of a line of a figure without runs
DIGITS = 7


def write_picture(canvas: "Canvas", path: Path, *, dpi: int = 150) -> Path:
    """Writes a PNG, SVG or PDF, by the suffix of the path, whole or not at all."""
    import matplotlib
    from matplotlib.text import Text
    from PIL import Image

    for text in canvas.findobj(Text):
        if isinstance(text, Text) and "$" in (words := text.get_text()) and not words.startswith(TICK):
            text.set_parse_math(False)  # a dollar in a title or label is a dollar
    form = path.suffix.removeprefix(".")
    drawn = io.BytesIO()  # drawing takes a second; a process that is killed in it leaves no half-written file
    # A fixed salt makes ids in an SVG the same each time; fonts of type 42 stay text in a PDF.
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "pdf.fonttype": 42}):
        canvas.savefig(drawn, format=form, metadata=NO_DATES[form], dpi=dpi if form == "png" else "figure")
    if form == "png":
        with Image.open(drawn) as image:
            # MAXCOVERAGE is a tenth smaller, and draws pale bands in the colours of other curves.
            method, no_dither = Image.Quantize.MEDIANCUT, Image.Dither.NONE
            few = image.convert("RGB").quantize(SHADES, method, kmeans=1, dither=no_dither)
        drawn = io.BytesIO()
        few.save(drawn, format="PNG", optimize=True, dpi=(dpi, dpi))
    files.write(path, lambda file: file.write(drawn.getvalue()))
    return path


def write_figure(figure: Figure, folder: Path, forms: Sequence[str] = USUAL) -> list[Path]:
    """Writes <id>.png, .svg, .pdf and .csv into `folder`, as far as `forms` names them."""
    canvas = draw(figure) if set(forms) & set(PICTURES) else None
    return [write_form(figure, folder / f"{figure.spec.id}.{form}", canvas) for form in forms]


def write_form(figure: Figure, path: Path, canvas: "Canvas | None" = None) -> Path:
    """Writes one file, by the suffix of its path. canvas: the figure as drawn, where it is."""
    if path.suffix == ".csv":
        files.write_text(path, comma_separated(figure))
        return path
    return write_picture(canvas or draw(figure), path)


# --- the drawn numbers


def comma_separated(figure: Figure) -> str:
    """The drawn numbers; y of ranks is the mean rank, x the row."""
    return csv_text([HEADS, *([line.get(head) for head in HEADS] for line in _lines(figure))], DIGITS)


def _lines(figure: Figure) -> Iterator[dict[str, object]]:
    spec = figure.spec
    for ranked in rank_values(figure.ranking):
        names = {"column": "panel", "row": "series", "state": "kind", "mean": "y"}
        yield {names.get(key, key): value for key, value in ranked.items()}
    for family, behind in figure.gaps.items():
        for row, gap in behind.items():
            yield {
                "panel": family, "series": row, "kind": "ranks behind the first",
                "y": gap.mean, "low": gap.low, "high": gap.high,
            }  # fmt: skip
    for panel, curves in figure.panels:
        values = [curve.values for curve in curves if curve.values is not None]
        edges = histogram_edges(np.concatenate(values), spec) if values else None
        for curve in curves:
            state = published(State(curve.state.word))
            about: dict[str, object] = {"panel": panel.title, "series": curve.label, "state": state}
            if not curve.drawn:
                yield about | {"kind": "nothing"}
            for line in _of_curve(figure, curve, edges):
                yield about | line
        for printed in panel.printed:
            for x, y in zip(printed.x, printed.y, strict=True):
                yield {"panel": panel.title, "series": printed.label, "kind": "printed", "x": x, "y": y}
    for mark in spec.marks:
        yield {"series": mark.label, "kind": "mark", "x": mark.x, "y": mark.y}


def _of_curve(figure: Figure, curve: Curve, edges: np.ndarray | None) -> Iterator[dict[str, object]]:
    runs = curve.done or None
    if curve.values is not None and edges is not None:
        counts, _ = np.histogram(curve.values, bins=edges)
        for low, high, count in zip(edges, edges[1:], counts, strict=False):
            yield {"kind": "bin", "x": float(low), "x_end": float(high), "y": int(count), "n": runs}
    for k, (x, y) in enumerate(curve.each):
        for at, value in zip(x, y, strict=True):
            yield {"kind": "run", "run": k, "x": float(at), "y": float(value), "n": 1}
    if curve.x is None or curve.y is None:
        return
    most = MOST if figure.spec.kind in WITHOUT_RUNS else len(curve.x)
    for i in evenly(curve.x, figure.spec.x_scale == "log", most):
        line = {"kind": "point", "x": float(curve.x[i]), "y": float(curve.y[i])}
        if curve.low is not None and curve.high is not None:
            line |= {"low": float(curve.low[i]), "high": float(curve.high[i])}
        yield line | {"n": curve.counts[i] if curve.counts else runs}
