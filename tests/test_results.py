"""physml.results: cells, runs and tables as data agree with the tables that are printed."""

import statistics
import sys
from pathlib import Path

import pytest
from refusals import refuses

from physml import results
from physml.base.errors import ConfigError, MissingExtra
from physml.base.paths import ROOT
from physml.records import record
from physml.report.outcome import ALL

EXPERIMENT = "lem/fitzhugh_nagumo-lem"


def test_a_table_as_text_is_the_one_of_the_readme_and_names_that_are_not_there_are_refused() -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8").partition("```text\n")[2].partition("\n```")[0]
    assert str(results.table("thesis-5.4")) == shown
    refuses(ConfigError, r"there is no table 'lem-44'\. Did you mean lem-4", results.cells, "lem-44")
    with pytest.raises(ConfigError, match=r"there are no runs of lem/fitzhugh_nagumo-lme\. Did you mean"):
        results.runs("lem/fitzhugh_nagumo-lme")
    refuses(ConfigError, "is a table of settings: it has no runs", results.table, "lem-8")


def test_cells_have_print_and_runs() -> None:
    table = results.table("lem-4")
    assert list(table.rows)[:2] == ["LSTM", "expRNN"] and len(table.cells) == 3 * len(table.rows)
    assert table.cells == results.cells("lem-4")
    cell = next(cell for cell in table.rows["LEM"] if cell.column == "official")
    assert cell.printed and cell.ours
    assert (cell.table, cell.experiment, cell.metric) == ("lem-4", EXPERIMENT, "test/rmse_last128")
    assert (cell.unit, cell.better, cell.printed.value) == ("1e-2", "lower", 0.2)
    assert cell.outcome == "cannot be told apart"
    runs = results.runs(EXPERIMENT)
    assert [run.seed for run in sorted(runs, key=lambda run: run.seed)] == list(range(10))
    assert {run.status for run in runs} == {"finished"}
    assert cell.ours.n == cell.runs == cell.wanted == 10
    scores = [100 * (run.scores["test/rmse_last128"] or 0.0) for run in runs]
    assert cell.ours.mean == pytest.approx(statistics.fmean(scores))
    assert cell.ours.low is not None and cell.ours.low < cell.ours.mean
    assert cell.core_hours == pytest.approx(sum(run.core_hours for run in runs))
    assert cell.parameters == runs[0].parameters
    assert len(runs[0].commit or "") == 40 and runs[0].cost["train_s"] > 0


def test_cells_without_runs_or_print() -> None:
    cells = results.cells("cornn-6", "unicornn-6")
    assert {cell.table for cell in cells} == {"cornn-6", "unicornn-6"}
    assert {cell.outcome for cell in cells} <= {verdict.name for verdict in ALL}
    for cell in cells:
        assert (cell.ours is None) == (cell.runs == 0) == (cell.core_hours is None)
        assert cell.outcome != "not run" or cell.words.partition(":")[0] in (
            *("quoted", "not run", "not run here", "no printed number, not run"),
        )


def test_to_pandas_has_columns_for_parts() -> None:
    pandas = pytest.importorskip("pandas")
    frame = results.cells("lem-4").to_pandas()
    line = frame[(frame.row == "LEM") & (frame.column == "official")].iloc[0]
    assert (line.printed_value, line.ours_n) == (0.2, 10) and 0.2 < line.ours_mean < 0.4
    assert {"printed", "ours"} & set(frame) == set()
    runs = results.runs(EXPERIMENT).to_pandas()
    assert isinstance(runs, pandas.DataFrame) and len(runs) == 10
    assert {"seed", "status", "test/rmse", "train_s", "commit"} <= set(runs)


def test_without_pandas_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"to_pandas\(\) needs pandas\. Install it with: pip install"):
        results.runs(EXPERIMENT).to_pandas()


def test_runs_of_the_reader_count_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = record.records(EXPERIMENT)
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    record.write(tmp_path / "runs" / "adhoc" / "study-mine" / Path(str(first["path"])).name, dict(first))
    assert [len(results.runs(name)) for name in ("./study.yaml:mine", "adhoc/study-mine")] == [1, 1]
    place = tmp_path / "runs" / EXPERIMENT / Path(str(first["path"])).name
    record.write(place, {**first, "n_parameters": 7})
    assert [run.parameters for run in results.runs(EXPERIMENT)].count(7) == 1
    assert len(results.runs(EXPERIMENT)) == 10
