"""Gaps to the first row, drawn where a critical difference tells no rows apart."""

import pytest
from matplotlib.figure import Figure as Canvas

from physml.report.figure.rank_plot import caption, covers_all, draw_gaps
from physml.report.figure.style import COLOURS
from physml.report.stats.across import Middle, Ranks

ROWS = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}


@pytest.mark.parametrize(("critical", "covered"), [(3.5, True), (2.5, True), (1.5, False), (0.5, False)])
def test_a_difference_that_tells_at_most_one_row_apart_says_nothing(critical: float, covered: bool) -> None:
    assert covers_all(Ranks(ROWS, 5, 0.2, critical)) is covered


def test_each_row_has_its_gap_and_those_behind_are_coloured() -> None:
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
