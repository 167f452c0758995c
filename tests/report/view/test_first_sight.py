"""A table at first sight: what came out, a line for each model, and what was trained."""

from typing import Any

import pytest
from made_records import finished, ids
from refusals import refuses

from physml.base.errors import ConfigError
from physml.config.load import structure
from physml.report.table.collect import Table, collect, recorded
from physml.report.table.latex import latex_table
from physml.report.table.spec import TableSpec
from physml.report.text.document import Cell, Grid, text_of
from physml.report.view.finding import NOTHING, Coverage, finding_text, outcomes, written
from physml.report.view.first_sight import View

IDENTITY = ids("t/a", "t/b", "t/q", "t/s", "t/none")
LEVEL = {"t/a": 0.01, "t/b": 0.02, "t/q": 0.01}


PRINTED = {"value": 1.0, "digits": 1, "sd": 0.1, "n": 5, "statistic": "mean"}


def spec(keys: tuple[str, ...] = ("x", "y"), **changes: Any) -> TableSpec:
    def cells(**more: Any) -> dict[str, Any]:
        return {key: {"published": PRINTED | more} for key in keys if key != "free"}

    content: dict[str, Any] = {
        "id": "nobody-2", "title": "Nobody", "source": "nobody", "seeds": [0, 1, 2],
        "columns": [
            {"key": key, "label": f"RMSE of {key}", "metric": "test/rmse", "scale": 100, "better": "lower"}
            | {"protocol": "official", "margin": {"value": 0.1, "reason": "a test"}}
            for key in keys
        ],
        "rows": [
            *({"label": label, "experiment": f"t/{label.lower()}", "cells": cells()} for label in "AB"),
            {"label": "Q", "experiment": "t/q", "cells": cells(quoted="others")},
            {"label": "S", "experiment": "t/s"},
            {"label": "none", "experiment": "t/none", "cells": cells(value=3.0)},
        ],
    }  # fmt: skip
    return structure(TableSpec, content | changes, "nobody-2.yaml")


def record(experiment: str, seed: int, **changes: Any) -> dict[str, Any]:
    value = LEVEL.get(experiment, 0.01) + 0.0001 * seed
    return finished(experiment, seed, **{"test": {"rmse": value}, "provenance": {"kind": "paper"}} | changes)


def records() -> list[dict[str, Any]]:
    runs = [record(name, seed) for name in ("t/a", "t/b", "t/q") for seed in range(3)]
    return [*runs, record("t/s", 0, short="1 of 9 epochs")]


def made(runs: list[dict[str, Any]] | None = None, **changes: Any) -> Table:
    of = records() if runs is None else runs
    return collect(spec(**changes), IDENTITY, of, blocked={"t/none": "no data"})


def lines(grid: Grid) -> list[list[str]]:
    return [[text_of(text) for text in line] for line in grid.lines]


def test_one_column_has_a_line_for_each_model_with_its_outcome_in_words() -> None:
    (grid,) = View(made(keys=("x",))).grids()
    assert grid.heads == ("model", "printed", "ours", "outcome")  # all rows have three runs
    assert lines(grid) == [
        ["A", "1.0 ± 0.1", "1.010 ± 0.010", "✓ reproduced"],
        ["B", "1.0 ± 0.1", "2.010 ± 0.010", "✕ differs: worse"],
        ["Q †", "1.0 ± 0.1", "1.010 ± 0.010", "✓ reproduced"],
    ]
    quoted = [text for text in grid.lines[2] if isinstance(text, Cell)]
    assert all(text.quoted for text in quoted) and quoted[0].at == ("Q", "x")
    (grid,) = View(made(records()[:-2], keys=("x",))).grids()  # where the number of runs differs it is there
    assert grid.heads == ("model", "printed", "ours", "n", "outcome")
    assert [line[3:] for line in lines(grid)][-1] == ["2", "· 2 of 3 runs"]


def own_row(keys: tuple[str, ...], epochs: int = 30, lr: float = 0.01) -> Table:
    """Row S is the reader's own, with other settings of training; its score is twice that of persistence."""

    def trained(epochs: int, lr: float) -> dict[str, Any]:
        return {"profile": "full", "trainer": {"epochs": epochs}, "optim": {"lr": lr}}

    cells = {key: {"published": PRINTED} for key in keys}
    rows = [{"label": "A", "experiment": "t/a", "cells": cells}]
    rows += [{"label": "S", "experiment": "t/s", "extra": True}]
    runs = [run | {"config": trained(400, 0.01)} for run in records()[:-1]]
    scores = {"persistence": {"rmse": 0.005}, "constant": {"rmse": 0.5}}
    runs += [record("t/s", seed, config=trained(epochs, lr), references=scores) for seed in range(3)]
    return made(runs, keys=keys, rows=rows)


def test_a_row_of_ones_own_says_how_it_was_trained_and_what_it_does_not_reach() -> None:
    table = own_row(("x",))
    (grid,) = View(table).grids()
    assert lines(grid)[1][-1].endswith("worse than persistence")
    assert "S differs in: trainer.epochs 30 / 400" in View(table).below()
    assert "S differs in: trainer.epochs 30 / 400." in latex_table(table).replace("\\", "")
    two = list(View(own_row(("x", "y"), lr=0.1)).below())
    assert "S differs in: trainer.epochs 30 / 400, optim.lr 0.1 / 0.01" in two
    assert "S, RMSE of y: worse than persistence" in two
    assert not any("differs in" in line for line in View(own_row(("x",), epochs=400)).below())


def test_columns_stand_side_by_side_and_narrow_forms_have_printed_numbers_below() -> None:
    (grid,) = View(made()).grids()
    assert grid.heads == ("model", "RMSE of x:\nprinted", "\nours", "RMSE of y:\nprinted", "\nours")
    assert lines(grid)[1] == ["B", "1.0 ± 0.1", "2.010 ± 0.010 ✕", "1.0 ± 0.1", "2.010 ± 0.010 ✕"]
    bold = [text_of(line[0]) for line in grid.lines if isinstance(line[2], Cell) and line[2].bold]
    assert bold == ["A", "Q †"]
    forms = [grid]
    while forms[-1].narrow is not None:
        forms.append(forms[-1].narrow)
    assert lines(forms[-1])[2:4] == [["B", "2.010 ✕", "2.010 ✕"], ["  printed", "1.0", "1.0"]]


def test_short_runs_have_a_part_of_their_own_which_is_no_result_beside_printed_numbers() -> None:
    table = made()
    (grid,) = View(table, short=True).grids()
    assert grid.heading.startswith("Short budget, no result (1 of 9 epochs; n = 1)")
    assert [line[0] for line in lines(grid)] == ["S"]
    assert not any(line[0] == "S" for line in lines(next(View(table).grids())))
    ours = made(records()[-1:], source="own", rows=[{"label": "S", "experiment": "t/s"}])
    (grid,) = View(ours, short=True).grids()
    assert grid.heading.startswith("Short budget (1 of 9 epochs; n = 1)")
    assert Coverage(ours).text() == "2 of 2 cells trained, n = 1"


def test_what_stands_below_and_a_table_that_was_not_run_has_its_printed_numbers() -> None:
    assert [*View(made(keys=("x", "free"))).below()] == [
        "† quoted by the paper from other work",
        "Not run: none 3.0 ± 0.1",
        "Blocked on this machine: 2 cells (why: --long)",
        "Without printed numbers (--long): RMSE of free",
        "3 of 4 printed cells trained, n = 3",
    ]
    assert next(View(made()).below()).startswith("✓ reproduced  ✕ differs  †")
    table = made([])
    assert finding_text(table) == NOTHING[""]
    stale = [record("t/a", seed, identity="another") for seed in range(3)]
    assert finding_text(made(stale)) == NOTHING["stale"]
    claimed = {"text": "A is best", "column": "x", "order": [{"better": "A", "than": ["B"]}]}
    assert finding_text(made([], claim=claimed)) == f"{NOTHING['']} The paper's claim: A is best."
    (grid,) = View(table).grids()
    assert lines(grid)[-1] == ["none", "3.0 ± 0.1", "3.0 ± 0.1"]
    assert Coverage(table).text() == "0 of 8 printed cells trained"
    lost = [record("t/a", seed, status="diverged") for seed in range(3)]
    assert Coverage(made(lost)).text() == "0 of 8 printed cells trained; in 2 more all runs diverged"


def test_a_file_does_not_depend_on_the_machine() -> None:
    here = recorded(spec(), IDENTITY, records())
    assert {str(cell.state) for cell in here.cells if cell.row == "none"} == {"not run"}
    assert outcomes(here) == outcomes(made()) == "4 reproduced, 2 differs, 2 not run"
    partial = collect(spec(), IDENTITY, records()[:1], blocked={"t/a": "no data"})
    assert str(partial.cells[0].state) == "partial 1/3: n = 1, no verdict"


def finding(text: str, read: str = "4 reproduced, 2 differs, 2 not run", **changes: Any) -> str | None:
    return written(made(finding={"text": text, "outcomes": read}, **changes))


def test_numbers_are_filled_in_by_their_names_in_sentences_that_still_hold() -> None:
    text = "A {A}, {B|y|mean} and {B//A|x|times} times, n = {A|n}, printed {A|y|printed}, best {B|best}."
    assert finding(text) == "A 1.010 ± 0.010, 2.010 and 2 times, n = 3, printed 1.0 ± 0.1, best 2.000."
    assert finding("A is reached.", "5 reproduced, 1 differs, 2 not run") is None
    assert finding("{none}") is None and finding("{S|y|printed}") is None
    counted = "8 printed numbers: 4 reproduced, 2 differs, 2 not run."
    assert finding_text(made(finding={"text": "{none}"})) == counted


@pytest.mark.parametrize("text", ["{C}", "{A|z}", "{A|x|median}", "{A//C|times}"])
def test_a_name_that_there_is_not_is_an_error(text: str) -> None:
    refuses(ConfigError, "finding: there is no", spec, finding={"text": text})


@pytest.mark.parametrize("text", ["{A|x|times}", "{A//B//A|x|times}"])
def test_times_need_two_rows(text: str) -> None:
    refuses(ConfigError, r"finding: times must be of two rows, A//B; got 'A", spec, finding={"text": text})


def test_cells_whose_runs_fall_in_two_groups_are_named_with_their_numbers_or_if_many_without() -> None:
    def below(*rows: str) -> str:
        scores = (0.01, 0.011, 0.012, 0.09, 0.011)
        runs = [record(f"t/{row}", seed, test={"rmse": s}) for row in rows for seed, s in enumerate(scores)]
        return "\n".join(View(made(runs, seeds=[*range(5)])).below())

    says = "Runs in two groups"
    assert f"{says}: RMSE of x: A 4 at 1 to 1.2 and 1 at 9; RMSE of y: A 4" in below("a")
    assert f"{says} (--long): RMSE of x: A, B, Q; RMSE of y: A, B, Q\n" in below("a", "b", "q")
    assert says not in "\n".join(View(made()).below())
