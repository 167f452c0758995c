"""Limits of axes, and pictures of mean ranks."""

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from physml.report.figure.collect import Curve
from physml.report.figure.limits import bounds, limits, within
from physml.report.figure.rank_plot import caption, covers_all, draw_gaps
from physml.report.figure.style import COLOURS
from physml.report.outcome import State
from physml.report.stats.across import Middle, Ranks

X = np.arange(100.0)


def curve(y: object) -> Curve:
    return Curve("A", State("complete"), x=X, y=np.broadcast_to(np.asarray(y, float), X.shape))


def test_the_frame_holds_low_errors_and_published_numbers_and_no_diverging_line() -> None:
    calm = [curve(0.2 + 0.001 * X), curve(0.3 - 0.001 * X)]
    low, high = limits([*calm, curve(1.1**X)], (), log=False) or (0, 0)
    assert low < 0.2 and 0.3 < high < 1.1
    assert (limits(calm, (), log=False) or (0, 1))[1] < 0.32
    lines = (0.17, 0.17, np.geomspace(0.17, 1e-6, 100), np.geomspace(0.17, 40, 100))
    low, high = limits([*map(curve, lines)], (), log=True) or (0, 0)
    assert low < 1e-6 and 0.17 < high < 1.1
    low, high = limits([curve(0.5)], [0.01, 2.0], log=False) or (0, 0)
    assert low < 0.01 and high > 2
    assert limits([], (), log=True) is None and limits([curve(np.nan)], (), log=False) is None
    assert limits([curve(0.0)], (), log=True) is None  # a logarithmic axis has no zero


@pytest.mark.parametrize("log", [False, True])
def test_bounds_hold_every_value(log: bool) -> None:
    low, high = bounds([1.0, 2.0, 30.0, np.inf], log) or (0, 0)
    assert low < 1 and 30 < high < 40
    low, high = bounds([3.0], log) or (0, 0)
    assert low < 3 < high and bounds([], log) is None
    assert np.isfinite(bounds([1.0, 1e300], log)).all()


def test_a_line_ends_where_it_leaves_for_good_and_is_marked_where_it_comes_back() -> None:
    y = np.exp(X / 20) * np.cos(X)
    left = within(X, y, (-2.0, 2.0), log=False)
    first = int((np.abs(y) > 2).argmax())
    ((at, above),) = left.exits
    assert len(left.x) == first + 1 and above == (y[first] > 0)
    assert abs(np.interp(at, X, y)) == pytest.approx(2.0)  # on the line, at the edge of the frame
    y = np.full(100, 0.5)
    y[40:43] = 1.2
    left = within(X, y, (0.0, 1.0), log=False)
    assert len(left.x) == 100 and left.exits == ((pytest.approx(39 + 0.5 / 0.7), True),)
    assert within(X, y, (0.0, 2.0), log=False).exits == ()
    y[[0, 80]] = -0.5, -4.0  # far out, but for one point, late
    left = within(X, y, (0.0, 1.0), log=False)
    assert len(left.x) == 100 and len(left.exits) == 2
    y = np.geomspace(1, 1e-60, 100)
    y[90:] = 0.0
    left = within(X, y, (1e-10, 10.0), log=True)
    ((at, above),) = left.exits
    assert at == pytest.approx(99 * 10 / 60) and not above and left.y[-1] < 1e-10


def test_a_line_of_few_points_is_marked_at_the_frame_and_each_row_has_its_gap() -> None:
    x, y = np.array([1.0, 100.0, 200.0]), np.array([1.0, 1e-2, 1e-30])
    ((at, above),) = within(x, y, (1e-4, 10.0), log=True, x_log=True).exits
    assert at == pytest.approx(100 * 2 ** (2 / 28)) and not above
    assert within(x, np.array([1.0, np.inf, 1.0]), (0.0, 2.0), log=False).exits == ((1.0, True),)
    assert within(x, np.array([5.0, 1.0, 1.0]), (0.0, 2.0), log=False).exits == ((1.0, True),)
    behind = {"b": Middle(1.0, -0.5, 2.5), "c": Middle(2.0, 0.5, 3.0), "d": Middle(3.0, 2.0, 4.0)}
    memory = {"d": Middle(-2.0, -3.0, -1.0), "c": Middle(0.0, -1.0, 1.0), "b": Middle(1.0, 0.5, 2.0)}
    panels = Canvas().subplots(1, 2, sharey=True)
    draw_gaps(panels, {"all 5 columns": behind, "memory": memory})
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["b", "c", "d"]
    assert [axes.get_title() for axes in panels] == ["all 5 columns", "memory"]
    assert all(axes.get_xlabel() == "ranks behind" for axes in panels)
    colours = [[line.get_color() for line in axes.get_lines() if line.get_marker() == "o"] for axes in panels]
    assert colours == [["0.6", COLOURS[0], COLOURS[0]], [COLOURS[0], "0.6", COLOURS[1]]]
    assert caption("a").startswith("Mean ranks behind a, paired")


ROWS = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}


@pytest.mark.parametrize(("critical", "covered"), [(3.5, True), (2.5, True), (1.5, False), (0.5, False)])
def test_a_difference_that_tells_at_most_one_row_apart_says_nothing(critical: float, covered: bool) -> None:
    assert covers_all(Ranks(ROWS, 5, 0.2, critical)) is covered
