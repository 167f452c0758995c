"""Parts of pages: axes, pictures, prose, words."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physml.listing import inventory
from physml.report.outcome import State
from physml.report.stats.summary import Published, Summary
from physml.report.text.document import Cell, Grid
from physml.site import pareto, plots, prose
from physml.site.catalogue import _facts
from physml.site.content import slug
from physml.site.table_pages import short

NUMBERS = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=8)


@given(NUMBERS)
def test_an_axis_holds_its_values_in_order(values):
    places = [*map(plots.Axis.over(values).at, sorted(values))]
    assert places == sorted(places) and all(plots.LEFT <= place <= plots.RIGHT for place in places)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=6))
def test_ticks_lie_on_the_axis(values):
    axis = plots.Axis.over(values)
    ticks, slack = axis.ticks(), 1e-6 * (axis.high - axis.low)
    assert len(ticks) <= 8 and all(axis.low - slack <= tick <= axis.high + slack for tick in ticks)


OURS = Summary(3, 1.1, 0.1, 0.9, 1.3, 1.0)


def test_an_axis_is_logarithmic_where_values_differ_by_much_but_for_a_reference_far_away():
    assert plots.Axis.over([0.1, 10.0]).log and not plots.Axis.over([1.0, 2.0]).log
    assert plots.Axis.over([0.1, 10.0]).at(1.0) == pytest.approx(50.0)
    assert plots.Axis.over([math.nan, math.inf]) == plots.Axis(0.0, 1.0, False)
    near, far = (plots.interval_axis([(Published(1.0, digits=1), OURS)], [at]) for at in (1.15, 900.0))
    assert near.low <= 1.15 <= near.high and far.high < 2
    # The end of a band below 0 keeps no axis from being logarithmic; a printed number below 0 is on it.
    bands = plots.interval_axis([(Published(1.0, sd=2.0), None), (Published(90.0), None)], [])
    mixed = plots.interval_axis([(Published(-3.0), None), (Published(0.5), OURS)], [])
    assert bands.log and bands.low > 0 and mixed.low < -3 and not mixed.log


def test_a_row_says_what_it_shows_and_a_long_reason_stands_on_the_page_of_its_cell_alone():
    axis = plots.Axis.over([0.0, 2.0])
    svg = plots.interval(axis, Published(1.0, digits=1, sd=0.2), OURS, [0.5], "<a>")
    assert 'aria-label="&lt;a&gt;"' in svg
    assert svg.count("theirs") == 1 and svg.count("<circle") == 1 and svg.count("trivial") == 1
    assert 'class="band"' in svg
    assert "<circle" not in plots.interval(axis, Published(1.0), None, [], "x")
    assert short(State("not decidable", "x" * 50)) == "not decidable"
    assert short(State("blocked", "no data")) == "blocked: no data"


def test_curves_have_the_ends_of_their_axis_named_and_one_that_runs_away_does_not_fill_the_picture() -> None:
    flat = ([float(i) for i in range(200)], [1.0 - 0.001 * i for i in range(200)])
    svg = plots.curves([flat, ([0.0, 1.0], [1.0, 1e9])], "x", ("steps", "valid/rmse"))
    ticks = [float(part.split(">", 1)[1].split("<")[0]) for part in svg.split('class="tick"')[1:]]
    assert max(ticks[:-2]) < 10
    assert ">steps</text>" in svg and ">valid/rmse</text>" in svg
    assert plots.curves([([0.0], [math.nan])], "x", ("", "")) is None
    svg = plots.curves([([4.0, 1600.0], [1.0, 2.0])], "x", ("steps", "loss"))
    line = re.search(r'points="([\d.]+),\S+ ([\d.]+),', svg)
    ends = re.findall(r'x="([\d.]+)%" y="216" text-anchor="(?:start|end)">(\d+)<', svg)
    assert [(float(x), int(value)) for x, value in ends] == [(float(line[1]), 4), (float(line[2]), 1600)]
    assert 'style="padding-left: 3.2rem; overflow: visible"' in svg
    assert " x=" not in svg.partition("<polyline")[0]


@pytest.mark.parametrize("text", ["<script>x</script>", "[a](javascript:x)", "<img src=x onerror=y>"])
def test_markdown_lets_no_html_through(text):
    page = prose.markdown(text, lambda target: target)
    assert "<script" not in page and 'href="javascript' not in page and "<img" not in page


def test_a_docstring_has_its_equations_and_arguments_and_a_matrix_keeps_its_rows() -> None:
    text = r"""One line.

    .. math::
        y' &= z \\
        z' &= \tanh(u)

    Source: a paper, https://arxiv.org/abs/1234.5678.

    Args:
        dt: step of :math:`\Delta t`,
            in two lines.
        x: other.
    Example:
        >>> 1 < 2
    """
    page = prose.docstring(text)
    assert page.count("<math") == 5 and page.count("Equation") == 2
    assert "&amp;" not in page.partition("<p>Source")[0]
    assert '<a href="https://arxiv.org/abs/1234.5678">' in page
    assert page.count("<dt>") == 2 and "in two lines." in page
    assert "<pre>&gt;&gt;&gt; 1 &lt; 2</pre>" in page
    text = r"""Name.

    .. math::
        P &= \begin{cases} a & b = c + d \\
             e & \text{else} \end{cases}, \qquad f = 1 \\
        g &= \bigl\| h + \arg i

    Args:
        k: a number.
        The others are those of `GNN`.
    """
    page = prose.docstring(text)
    assert page.count("Equation") == 2 and page.count("<mtr>") == 2 and page.count("<mtd") == 4
    assert "\\" not in page and "‖" in page and ">arg<" in page and "<code>\\" not in page
    assert page.count("<dt>") == 1 and page.endswith("</dl><p>The others are those of <code>GNN</code>.</p>")


@pytest.mark.parametrize(
    "text",
    [
        r"\text{<svg/onload=document.title='X'>}",
        r"\text{&lt;img/src=x onerror=alert(1)&gt;}",
        r"\href{javascript:alert(1)}{y}",
        r"\style{background:url(//x)}{y}",
        r"\class{\"onload=\"}{y}",
        r"<script>alert(1)</script>",
    ],
)
def test_an_equation_has_elements_of_mathml_alone(text: str) -> None:
    equation = prose.mathml(text)
    assert equation.startswith(("<math ", "<code>"))
    tree = ElementTree.fromstring(equation)
    assert {element.tag.rpartition("}")[2] for element in tree.iter()} <= {*prose.ELEMENTS, "code"}
    assert all(prose.ATTRIBUTES.issuperset(element.keys()) for element in tree.iter())


def test_links_go_where_they_are_sent_and_an_equation_breaks_before_signs_that_no_bracket_holds():
    page = prose.markdown("# A b\n[x](lem.md#c) and [y](gone.md)", {"lem.md#c": "../lem/#c"}.get)
    assert '<h1 id="a-b">' in page and '<a href="../lem/#c">x</a>' in page
    twice = prose.markdown("## Step (2.16), and 3\n## Step (2.16), and 3", {}.get)
    assert 'id="step-216-and-3"' in twice and 'id="step-216-and-3-1"' in twice  # as GitHub has them
    assert "gone" not in page and " y" in page
    page = prose.docstring(r":math:`y = (a + b) z + \frac{c + d}{e}`")
    assert page.count("<math") == 3 and "<code>" not in page
    assert prose.mathml(r"\frac{") == r"<code>\frac{</code>"


@given(st.text(min_size=1), st.text(min_size=1))
def test_labels_have_pages_of_their_own(first, second):
    if first.lower() != second.lower():
        same = slug(first) == slug(second)
        assert not same or first.replace(" ", "-").lower() == second.replace(" ", "-").lower()
    assert slug(first).strip("-") and "/" not in slug(first)


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0.1, 9)), min_size=1, max_size=12))
def test_every_row_is_on_the_front_or_beaten_by_it(values):
    rows = [pareto.Row(str(i), *value) for i, value in enumerate(values)]
    front = pareto.pareto(rows)
    for row in rows:
        assert any(rival.quality <= row.quality and rival.cost <= row.cost for rival in front)
        assert not any(row.quality < best.quality and row.cost <= best.cost for best in front)


def test_costs_stand_beside_the_scores_of_a_matrix_and_of_its_narrow_form():
    line = (Cell("LEM", at=("LEM", "f")), "0.24")
    block = Grid(("model", "f"), (line, ("mine", "0.3")), narrow=Grid(("model", "f"), (line,)))
    shown = pareto.with_costs(block, {"memory": {"LEM": 0.974}, "parameters": {}})
    assert shown.heads == ("model", "f", "memory", "parameters")
    assert shown.narrow.lines == ((*line, "0.97", "–"),)
    assert shown.lines == ((*line, "0.97", "–"), ("mine", "0.3", "–", "–"))
    assert shown.heading == "costs as multiples of the median row"
    assert pareto.with_costs(block, {}) is block


def test_facts_of_a_model_are_read_from_its_class():
    (lem,) = (entry for entry in inventory.models() if entry.name == "lem")
    assert dict(_facts(lem, [{"parameters": n} for n in (5, 1200, None)], False)) == {
        "paper": "https://arxiv.org/abs/2110.04744",
        "equation": "equation 3",
        "code": "physml/models/sequence/lem.py, class LEM",
        "parameters in tables": "5 to 1,200, by task",
    }
    assert "paper" not in dict(_facts(lem, [], True))
