"""Pictures and figures as files: PNG, SVG, PDF, and the numbers as CSV. The same content, the same bytes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base import files
from physml.report.figure.collect import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PICTURES = ("png", "svg", "pdf")
FORMS = (*PICTURES, "csv")
USUAL = ("png", "svg", "csv")  # a PDF only where it is asked for
TICK = "$\\mathdefault"  # begins the numbers that matplotlib writes at a logarithmic axis
SHADES = 256  # colours of a PNG: a third of the size of one with all
NO_DATES: dict[str, dict[str, Any]] = {
    "png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None},
}  # fmt: skip


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
            few = image.convert("RGB").quantize(SHADES, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        drawn = io.BytesIO()
        few.save(drawn, format="PNG", optimize=True, dpi=(dpi, dpi))
    files.write(path, lambda file: file.write(drawn.getvalue()))
    return path


def write_figure(figure: Figure, folder: Path, forms: Sequence[str] = USUAL) -> list[Path]:
    """Writes <id>.png, .svg, .pdf and .csv into `folder`, as far as `forms` names them."""
    from physml.report.figure.plot import draw

    canvas = draw(figure) if set(forms) & set(PICTURES) else None
    return [write_form(figure, folder / f"{figure.spec.id}.{form}", canvas) for form in forms]


def write_form(figure: Figure, path: Path, canvas: "Canvas | None" = None) -> Path:
    """Writes one file, by the suffix of its path. canvas: the figure as drawn, where it is."""
    from physml.report.figure.data import comma_separated
    from physml.report.figure.plot import draw

    if path.suffix == ".csv":
        files.write_text(path, comma_separated(figure))
        return path
    return write_picture(canvas or draw(figure), path)
