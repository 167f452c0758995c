"""Documents on terminals of several widths, and in Markdown."""

import io

import pytest
from made_records import on_terminal
from rich.console import Console

from physml.report.outcome import EVEN, REPRODUCED
from physml.report.text.document import Cell, Document, Grid, Lines, blocks, markdown, short_heads, text_of
from physml.report.text.screen import Screen, fitted

LABELS = ("GCN", "A model with a name of several words and more", "GAT", "GAT, another")
WIDE = Grid(
    ("model", *(f"column {k}" for k in range(5))),
    tuple((Cell(label, at=(label, "x")), *["1.00 ± 0.10"] * 5) for label in LABELS),
    "wide",
)
NARROW = Grid(WIDE.heads, tuple((line[0], *["1.00"] * 5) for line in WIDE.lines), "narrow")
STACKED = Grid(("a", "b"), (("x" * 30, "y" * 30),), folded=((0, 1),))


def document(*grids: Grid) -> Document:
    return Document(
        id="own-1", title="Own", first=blocks(Lines(("What came out.",), look="strong"), *grids, Lines(())),
        long=(Lines(("A reason",), "Reasons", "items"),), rules=(Lines(("A rule",)),),
        more={"--long": "all", "--rules": "verdicts"},
    )  # fmt: skip


def terminal(width: int, page: Document, **parts: bool) -> list[str]:
    return on_terminal(page, width, **parts).splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_what_came_out_stands_first_and_every_line_fits(width: int) -> None:
    lines = terminal(width, document(Grid(WIDE.heads, WIDE.lines, "wide", narrow=NARROW)))
    assert lines[:2] == ["own-1: Own", "What came out."]
    assert max(map(len, lines)) <= width and lines == [line.rstrip() for line in lines]
    assert "\n\n\n" not in "\n".join(lines), "one empty line between two grids"
    assert ("wide" in lines) == (width >= 120) and ("narrow" in lines) == (width < 120)


def test_the_rest_is_shown_where_it_is_asked_for_and_a_long_name_is_cut_or_wrapped() -> None:
    page = document(NARROW)
    short = terminal(80, page)
    assert short[-1] == "More: --long (all), --rules (verdicts)" and "- A reason" not in short
    assert "- A reason" in terminal(80, page, long=True)
    assert terminal(80, page, long=True, rules=True)[-1] == "A rule"
    lines = terminal(60, document(NARROW))
    assert any(text.startswith("A model with") and "…" in text for text in lines)
    alike = Grid(("model", "x"), tuple((f"{'long ' * 9}{k}", "1" * 30) for k in range(2)))
    assert not any("…" in text for text in terminal(60, document(alike)))


def test_columns_that_fit_in_no_form_are_stacked_and_heads_are_as_wide_as_their_column() -> None:
    assert [*map(text_of, fitted(STACKED, 40).lines[0])] == [f"{'x' * 30}\n{'y' * 30}"]
    assert fitted(STACKED, 80) is STACKED
    grid = short_heads(Grid(("model", "FitzHugh-Nagumo", "recall"), (("a", "1.00", "1"),)), 9)
    assert grid.heads == ("model", "FitzHugh-\nNagumo", "recall")


def test_markdown_has_parts_that_open_and_a_cell_the_colour_of_its_outcome() -> None:
    best = Grid(("model", "ours"), ((Cell("A | B"), Cell("1.0 ± 0.1 ✓", REPRODUCED, bold=True)),), "[%]")
    text = markdown(document(best))
    assert "*[%]*" in text and "| A \\| B | **1.0 ± 0.1** ✓ |" in text
    assert text.index("What came out.") < text.index("<details>") < text.index("- A reason")
    assert text.count("<details>") == text.count("</details>") == 2
    grid = Grid(("model", "ours"), (("A", Cell("1 ≈", EVEN)), ("B", Cell("2 ≈", EVEN, quoted=True))))
    out = io.StringIO()
    Console(file=out, width=80, color_system="standard", force_terminal=True).print(Screen(document(grid)))
    assert "\x1b[33m1 ≈" in out.getvalue() and "\x1b[2m2 ≈" in out.getvalue()


@pytest.mark.parametrize("width", range(24, 80))
def test_no_line_ends_inside_a_number_with_its_spread_unit_or_interval(width: int) -> None:
    words = "LEM leads by 1.8 [1.6, 2.0] (0.15 ± 0.02, n = 5), the 95 % interval of the difference is [-1, 2]"
    lines = terminal(
        width, Document(id="own-1", title=words, first=blocks(Lines((words, words), look="items")))
    )
    assert max(map(len, lines)) <= width and " ".join(" ".join(lines).split()).count(words) == 3
    assert not [line for line in lines if line.endswith(("±", "=", "1.6,", "-1,", "95", "0.15", "(n"))]
    cells = terminal(max(width, 41), document(Grid(("model", *"xyz"), (("LEM", *["0.263 ± 0.049"] * 3),))))
    assert all(line.count("±") == line.count("± 0.049") for line in cells)
