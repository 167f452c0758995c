"""A table on terminals of several widths: the claim first, as many columns as there is room for."""

import io

import pytest

from physml.report.state import State
from physml.report.text.document import Document, Grid
from physml.report.text.narrow import fitted, folded_rows, short
from physml.report.text.screen import Screen

HEADS = ("model", "published", "ours", "runs", "95 % interval", "best", "difference", "settings", "outcome")
BY_WIDTH = (0, 1, 2, 8, 3, 6, 4, 7, 5)
RUN = ("1.00 ± 0.10 (mean of 5)", "0.90 ± 0.12", "5/5", "[0.75, 1.05]", "0.80", "-0.10 [-0.30, +0.10]")


def line(label: str, outcome: str = "cannot be told apart") -> tuple[str, ...]:
    return (label, *RUN, "published", outcome)


def quoted(label: str, number: str) -> tuple[str, ...]:
    return (label, f"{number} ± 4.5 (quoted: others)", "–", "–", "–", "–", "–", "–", "quoted")


def grid(*lines: tuple[str, ...]) -> Grid:
    return Grid(
        lines, tuple(State(one[-1].partition(" (")[0]) for one in lines), "accuracy [%]: test/accuracy"
    )


WHOLE = grid(
    quoted("H2GCN", "84.86"),
    line("GCN"),
    quoted("MixHop", "77.84"),
    line("A model with a name of several words", "not decidable (a)"),
    line("GAT", "not reached by our search (16 trials)"),
)


def document(*grids: Grid) -> Document:
    return Document(
        id="own-1", title="Own", heads=HEADS, grids=grids,
        facts=("Source: own",), values=(), folded=((0,), (1, 6)), by_width=BY_WIDTH,
        claim=("Claim: GCN is best. Holds.", "GCN: holds"),
    )  # fmt: skip


def terminal(width: int, made: Document, *, all_rows: bool = False, pipe: bool = False) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=not pipe, legacy_windows=False).print(
        Screen(made, all_rows=all_rows)
    )
    return [text.rstrip() for text in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_claim_comes_first_and_every_line_fits(width: int) -> None:
    lines = terminal(width, document(WHOLE))
    assert lines[:2] == ["own-1: Own", "Claim: GCN is best. Holds."]
    assert max(map(len, lines)) <= width
    assert lines.index("  GCN: holds") > next(i for i, text in enumerate(lines) if text.startswith("GCN "))


def test_a_row_is_one_line_at_80_columns() -> None:
    lines = terminal(80, document(WHOLE))
    (gat,) = (text for text in lines if text.startswith("GAT "))
    assert " ".join(gat.split()) == "GAT 1.00 ± 0.10 0.90 ± 0.12 5/5 not reached by our search"
    assert "For 95 % interval, best, difference, settings a wider terminal is needed." in " ".join(lines)
    assert "published: mean of 5" in lines


def test_a_wider_terminal_has_more_columns_and_longer_forms() -> None:
    heads = [len(fitted(document(WHOLE), [WHOLE], width).heads) for width in (50, 80, 120, 200)]
    assert heads == sorted(heads) and heads[0] == 4 and heads[-1] == len(HEADS)
    wide = fitted(document(WHOLE), [WHOLE], 200)
    assert wide.grids == (WHOLE.lines,) and wide.notes == ()


def test_all_grids_have_the_same_columns() -> None:
    long = grid(line("GCN", "context: " + "far " * 9))
    made = fitted(document(WHOLE, long), [WHOLE, long], 90)
    assert [len(lines) for lines in made.grids] == [5, 1]
    assert {len(row) for lines in made.grids for row in lines} == {len(made.heads)}
    assert len(made.heads) < len(fitted(document(WHOLE), [WHOLE], 90).heads)


def test_rows_that_were_not_run_share_a_line() -> None:
    more = grid(*WHOLE.lines, ("extra", "none printed", *["–"] * 6, "no printed number, not run"))
    kept, note = folded_rows(more)
    assert [row[0][:3] for row in kept.lines] == ["GCN", "A m", "GAT"] and len(kept.states) == 3
    assert note == (
        "More rows (--all-rows): 2 quoted: 77.84 (MixHop) to 84.86 (H2GCN); "
        "1 not run, without a printed number"
    )
    assert any(text.startswith("MixHop") for text in terminal(80, document(more), all_rows=True))
    assert not any(text.startswith("MixHop") for text in terminal(80, document(more)))


def test_a_single_quoted_row_or_nothing_else_is_not_folded() -> None:
    for one in (grid(line("GCN"), quoted("H2GCN", "84.86")), grid(quoted("A", "1"), quoted("B", "2"))):
        assert folded_rows(one) == (one, "")


def test_a_pipe_gets_all_rows_and_columns_as_before() -> None:
    lines = terminal(80, document(WHOLE), pipe=True)
    assert lines[1] == "" and any(text.startswith("MixHop") for text in lines)
    assert lines.index("Claim: GCN is best. Holds.") > 5


def test_short_forms_keep_the_letter_of_a_reason() -> None:
    assert short("not comparable (b)") == "not comparable (b)"
    assert short("1.2 (mean or best?)") == "1.2" and short("none printed") == "none printed"
