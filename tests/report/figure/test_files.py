"""The files of a figure: pictures that are the same each time, and the drawn numbers."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from PIL import Image

from physml.base.errors import ConfigError
from physml.base.paths import CONF
from physml.config.load import structure
from physml.report.figure.collect import Curve, Figure
from physml.report.figure.files import HEADS, MOST, comma_separated, write_figure, write_picture
from physml.report.figure.plot import LEAVES, draw
from physml.report.figure.spec import FigureSpec, load_figure
from physml.report.figure.style import COLOURS, apart, counted, evenly, styles
from physml.report.outcome import State


def figure(*curves: Curve, **changes: Any) -> Figure:
    printed = {"label": "paper", "x": [1], "y": [2]}
    panel = {"title": "p", "series": [{"label": "A", "arguments": {}}], "printed": [printed]}
    content = {
        "id": "own", "title": "Own", "source": "nobody", "kind": "simulation", "function": "tasks.a.b",
        "x_label": "x", "y_label": "y", "panels": [panel], "marks": [{"label": "level", "y": 0.5}],
    }  # fmt: skip
    spec = structure(FigureSpec, content | changes, "own.yaml")
    return Figure(spec, ((spec.panels[0], curves),))


def line(label: str, n: int = 5, **changes: Any) -> Curve:
    x = np.arange(1.0, n + 1)
    return Curve(label, State("simulated"), **({"x": x, "y": x / 7} | changes))


def rows(*curves: Curve, **changes: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(comma_separated(figure(*curves, **changes)))))


@pytest.mark.parametrize("form", ["png", "svg", "pdf", "csv"])
def test_the_same_figure_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    first, again = (write_figure(figure(line("A"), line("B")), tmp_path / name, (form,))[0] for name in "ab")
    content = first.read_bytes()
    assert first.name == f"own.{form}" and content == again.read_bytes()
    assert b"CreationDate" not in content and b"dc:date" not in content


def test_the_numbers_of_a_figure_have_points_and_marks_and_lines_of_runs_and_bins() -> None:
    low = np.zeros(5)
    table = rows(line("A", low=low, high=low + 1), Curve("B", State("missing")))
    assert tuple(table[0]) == HEADS
    assert [row["kind"] for row in table] == ["point"] * 5 + ["nothing", "printed", "mark"]
    assert (table[1]["x"], table[1]["y"], table[1]["high"], table[1]["n"]) == ("2", "0.2857143", "1", "NA")
    assert table[5]["state"] == "not run" and table[6]["series"] == "paper" and table[7]["y"] == "0.5"
    x = np.array([1.0, 2.0])
    runs = rows(Curve("A", State("complete"), 2, 2, each=((x, x), (x[:1], x[:1]))))
    assert [row["run"] + row["x"] for row in runs[:3]] == ["01", "02", "11"]
    bins = rows(Curve("A", State("complete"), 1, 1, values=x), bins=4)
    assert [row["y"] for row in bins[:4]] == ["0", "0", "1", "1"] and bins[3]["x_end"] == "2"


def test_a_long_line_of_a_simulation_is_thinned_with_both_ends_and_evenly_along_the_axis() -> None:
    points = [row for row in rows(line("A", 4000)) if row["kind"] == "point"]
    assert len(points) == MOST and (points[0]["x"], points[-1]["x"]) == ("1", "4000")
    x = np.arange(1.0, 1001)
    assert np.diff(evenly(x, False, 10)).max() <= 112
    at = x[evenly(x, True, 10)]
    assert len(at) == 10 and np.diff(np.log(at)).std() < 0.08
    assert evenly(x[::-1], False, 10) == list(range(0, 1000, 100))  # one that goes back


def test_lines_differ_in_colour_dashes_and_markers_and_no_series_of_points_hides_another() -> None:
    looks = styles(figure(*map(line, "ABCDEF")))
    for part in ("colour", "dash", "marker"):
        assert len({str(getattr(look, part)) for look in looks.values()}) == 6
    assert looks["A"].colour == COLOURS[0]
    chosen = styles(figure(line("A"), line("B", line="dashed")))
    assert (chosen["A"].dash, chosen["B"].dash) == ("solid", "dashed")
    axes = draw(figure(*(line(name, line="dots") for name in "ABCD"))).axes[0]
    sizes = [curve.get_markersize() for curve in axes.lines if curve.get_label() in "ABCD"]
    assert sizes == [14.0, 11.0, 8.0, 5.0]
    few = {"x": np.array([1.0]), "y": np.array([2.0])}  # points that stand out
    axes = draw(figure(line("A", line="dots"), *(line(name, line="dots", **few) for name in "BCD"))).axes[0]
    sizes = [curve.get_markersize() for curve in axes.lines if curve.get_label() in "ABCD"]
    assert sizes == [6.0, 9.0, 9.0, 9.0]


def test_runs_are_counted_per_point_and_said_once() -> None:
    three = counted(Curve("A", State("complete"), 6, 6, counts=(3, 3)))
    some = counted(Curve("B", State("partial", done=4, wanted=6), 4, 6, counts=(1, 3)))
    assert apart([three, three]) == ("3 runs per point", ["", ""])
    assert apart([three, some]) == ("", ["3 runs per point", "1 to 3 runs per point, 4 of 6 runs"])
    assert apart([three]) == ("", ["3 runs per point"])


def test_a_line_that_leaves_the_frame_has_a_triangle_there() -> None:
    grows = line("A", y=np.array([1.0, 2.0, 30.0, 400.0, 5000.0]))
    axes = draw(figure(grows, line("B"), y_limits=[0, 5])).axes[0]
    drawn = next(curve for curve in axes.lines if curve.get_label() == "A")
    assert len(drawn.get_xdata()) == 3  # type: ignore[arg-type]
    (mark,) = (curve for curve in axes.lines if curve.get_marker() == "^" and not curve.get_clip_on())
    assert mark.get_xdata() == [pytest.approx(2 + 3 / 28)] and mark.get_ydata() == [1.0]
    assert axes.figure.get_supxlabel() == LEAVES
    assert draw(figure(line("A"))).get_supxlabel() == ""


@pytest.mark.parametrize("n", [3, 11])
def test_a_band_keeps_its_colour_in_a_png(n: int, tmp_path: Path) -> None:
    """An area, where bands lie on bands too, is off by at most 3 of 255."""
    x = np.linspace(0, 20, 200)
    waves = [np.sin(x + k) * (1 + k / n) for k in range(n)]
    curves = (line(f"{k}", x=x, y=y, low=y - 0.3, high=y + 0.3) for k, y in enumerate(waves))
    canvas = draw(figure(*curves, seeds=[0, 1, 2]))
    canvas.draw_without_rendering()
    canvas.set_layout_engine("none")  # both pictures have everything at the same place
    canvas.savefig(tmp_path / "whole.png", dpi=150)
    write_picture(canvas, tmp_path / "few.png")
    whole, few = (np.asarray(Image.open(tmp_path / f"{p}.png").convert("RGB"), int) for p in ("whole", "few"))
    _, place, count = np.unique(whole.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    assert np.abs(whole - few).reshape(-1, 3).max(axis=1)[count[place.ravel()] >= 500].max() <= 3


def test_published_points_are_checked_and_drawn() -> None:
    panel = {"title": "p", "series": [{"label": "A"}], "printed": [{"label": "log", "x": [1, 2], "y": [1]}]}
    says = "printed 'log' must have as many y as x, at least one; got 2 and 1"
    with pytest.raises(ConfigError, match=says):
        figure(panels=[panel])
    log = load_figure(CONF / "figure" / "lem-fig-1.yaml")
    canvas = draw(Figure(log, tuple((panel, (Curve("A", State("missing")),)) for panel in log.panels)))
    for axes, panel in zip(canvas.axes, log.panels, strict=True):
        (drawn,) = (curve for curve in axes.lines if curve.get_label() == "official log of LEM")
        assert tuple(drawn.get_ydata()) == panel.printed[0].y  # type: ignore[arg-type]
        assert axes.get_ylim()[0] < min(panel.printed[0].y)


def test_a_dollar_in_a_title_is_no_formula(tmp_path):
    canvas = Canvas(layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots()
    axes.plot([1, 2], [1, 1e6], label="a $ b_{ $")
    axes.set_yscale("log")
    axes.set_title("$x_{")
    axes.legend()
    for form in ("png", "svg", "svg"):
        path = write_picture(canvas, tmp_path / f"x.{form}")
    svg = path.read_text()
    assert "<!-- $x_{ -->" in svg and "<!-- a $ b_{ $ -->" in svg
    assert "<!-- $\\mathdefault{10^{6}}$ -->" in svg and "<use" in svg.split("mathdefault")[1][:900]
