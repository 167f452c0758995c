"""Tables of settings: what is read is what runs, every state is reached, no difference is silent."""

import csv
import io
import itertools
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import refuses

from physml.base.errors import ConfigError
from physml.base.paths import CONF, ROOT
from physml.cli import main
from physml.config import conf_files, studies
from physml.config.compose import compose
from physml.config.load import structure
from physml.report.table import settings
from physml.report.table.settings import collect_settings, compare, load_settings, setting_of
from physml.report.table.settings_text import document
from physml.report.table.spec import find_table, load_table, table_ids
from physml.report.text.document import FORMS, comma_separated

IDS = table_ids(kind="settings")

GATE = {"_target_": "x", "d": "${net.hidden}"}
RATE = {"low": 1e-4, "high": 1e-2, "log": True}
FILES: dict[str, Any] = {
    "run.yaml": {"defaults": ["_self_", {"model": "own"}, {"optim": "adam"}]},
    "optim/adam.yaml": {"lr": 1e-3, "betas": [0.9, 0.999]},
    "model/lem.yaml": {"dt": 1.0, "gate": None},
    "study/p/t.yaml": {
        "search": {"metric": "mse", "better": "lower", "trials": 1, "seed": 0},
        "searches": {
            "a": {"space": {"optim.lr": RATE, "net.h": [32, 64]}},
            "b": {"space": {"optim.lr": RATE, "net.h": [32]}},
            "c": {"space": {"model.gate": [None, {"_target_": "x"}], "p": {"low": 1, "high": 5}}},
        },
        "rows": {
            "printed": {"model": "lem", "provenance": {"kind": "paper", "source": "a paper"}}
            | {"set": {"model": {"dt": 0.5, "gate": GATE}, "optim": {"lr": 2.04e-3}}},
            "searched": {"model": "lem", "provenance": {"kind": "searched-here", "source": "a paper"}}
            | {"set": {"optim": {"lr": "${model.dt}"}}},
            "based": {"base": "printed", "set": {"optim": {"lr": 3e-3}}},
            "own": {"provenance": {"kind": "own", "source": "nobody"}, "set": {"model": {"dt": 3}}},
            **{name: {"search": name} for name in "abc"},
        },
    },
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))
    monkeypatch.setattr(conf_files, "CONF", tmp_path)
    return tmp_path


def spec(rows: list[dict[str, Any]], columns: list[dict[str, Any]], **more: Any) -> settings.SettingsSpec:
    named = [{"label": f"row {i}", **row} for i, row in enumerate(rows)]
    values = {"id": "t-1", "title": "T", "source": "S", "rows": named, "columns": columns, **more}
    return structure(settings.SettingsSpec, values, "t-1.yaml")


def one(cell: dict[str, Any], *, searches: tuple[str, ...] = (), **column: Any) -> Any:
    table_spec = spec([{"cells": {"x": cell}}], [{"key": "x", **column}], searches=searches)
    (result,) = collect_settings(table_spec).cells
    return result


def test_ours_is_compared_with_the_printed_setting_and_a_number_said_so_that_it_reads_back() -> None:
    for value in (2.6e-3, 1e-8, 0.01, 0.0, 94.5, 12000, 3.14159e-7, 2e5, -4e-3):
        assert float(settings.value_text(value)) == pytest.approx(value, rel=1e-5)
        assert "e-0" not in settings.value_text(value)
    assert [settings.value_text(value) for value in (math.inf, {"low": 1})] == ["inf", "{'low': 1}"]
    pairs = {
        ("2.6e-3", "0.0026"): "same", ("128", "128"): "same", ("8.0", "8"): "same", ("NO", "no"): "same",
        ("{32, 64}", "{64, 32}"): "same", ("[1e-4, 0.9]", "[0.0001, 0.90]"): "same",
        ("[0, 0.9]", "[0.0, 0.9]"): "same", ("{YES, NO}", "{NO, YES}"): "same",
        ("6.6e-4", "6.58e-4"): "rounded", ("0.76", "0.765"): "rounded",
        ("6.6e-4", "6.54e-4"): "differs", ("0.76", "0.766"): "differs", ("[0, 0.9]", "[0, 0.8]"): "differs",
        ("[0, 1]", "{0, 1}"): "differs", ("NO", "YES"): "differs", ("log uniform", "uniform"): "differs",
        ("1", "none"): "differs", ("[1e-2, 1e-1]", "0.1"): "inside", ("{32, 64}", "64"): "inside",
        ("[1e-2, 1e-1]", "0.11"): "outside", ("{32, 64}", "48"): "outside",
        ("[adam, sgd]", "0.1"): "differs", ("{adam, 1}", "1"): "inside", ("[low, 1]", "[low, 1]"): "same",
        ("nan", "0.1"): "differs", ("inf", "inf"): "same", ("{1, snan}", "{1, snan}"): "same",
    }  # fmt: skip
    assert {pair: compare(*pair) for pair in pairs} == pairs


@pytest.mark.parametrize("ident", IDS)
def test_what_is_read_is_what_runs_and_what_the_official_code_has_runs_as_official(ident: str) -> None:
    """The plain reading of files against the composed config."""
    table = load_settings(CONF / "table" / f"{ident}.yaml")
    for row, column in itertools.product(table.rows, table.columns):
        cell = table.cell(row, column)
        official, setting = f"{cell.experiment}-official", cell.setting or ""
        if cell.code and cell.printed and studies.is_name(official):
            ours = settings.value_text(setting_of(official, setting))
            assert compare(cell.code, ours) == "same", (row.label, column.key)
        if cell.experiment is None or column.reads in ("range", "distribution"):
            continue
        value: Any = compose([f"experiment={cell.experiment}"]).config
        for part in setting.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        read = setting_of(cell.experiment, setting)
        assert isinstance(read, dict) if isinstance(value, dict) else read == value


@pytest.mark.parametrize(
    ("experiment", "key", "says"),
    [
        ("p/t-prnted", "model.dt", "there is no experiment p/t-prnted. Did you mean p/t-printed"),
        ("p/t-printed", "model.gamma", "experiment p/t-printed has no setting model.gamma"),
        ("p/t-printed", "net.hidden", "has no setting net.hidden"),
        ("p/t-searched", "optim.betas.2", "has no setting optim.betas.2"),
        ("p/t-searched", "optim.lr", r"optim.lr is \$\{model.dt\}; a table reads plain values only"),
    ],
)
def test_what_cannot_be_read_is_told(conf: Path, experiment: str, key: str, says: str) -> None:
    refuses(ConfigError, says, setting_of, experiment, key)


def test_a_setting_is_that_of_the_experiment_else_of_what_it_starts_from_or_chooses(conf: Path) -> None:
    expected = {
        ("p/t-printed", "model.dt"): 0.5,
        ("p/t-searched", "model.dt"): 1.0,  # from the chosen model
        ("p/t-searched", "model.gate"): None,
        ("p/t-searched", "optim.betas.1"): 0.999,  # from what every run has
        ("p/t-based", "optim.lr"): 3e-3,
        ("p/t-based", "model.dt"): 0.5,  # of the experiment that it starts from
    }  # fmt: skip
    assert {at: setting_of(*at) for at in expected} == expected
    assert studies.experiment("p/t-based").settings["provenance"]["kind"] == "paper"


PRINTED, SEARCHED = {"experiment": "p/t-printed"}, {"experiment": "p/t-searched"}
DT, GATED = {"setting": "model.dt"}, {"setting": "model.gate", "reads": "use"}


@pytest.mark.parametrize(
    ("cell", "column", "ours", "state"),
    [
        ({**PRINTED, "printed": "0.5"}, DT, "0.5", "same"),
        ({**PRINTED, "printed": "2.0e-3"}, {"setting": "optim.lr"}, "2.04e-3", "rounded"),
        ({**PRINTED, "printed": "0.4"}, DT, "0.5", "differs"),
        ({**PRINTED, "printed": "0.4", "differs": "a slip"}, DT, "0.5", "differs: a slip"),
        ({**PRINTED, "printed": "0.4", "code": "0.50"}, DT, "0.5", "differs: as in the official code"),
        ({**SEARCHED, "printed": "2"}, DT, "1", "differs: searched here"),
        ({"experiment": "p/t-own", "printed": "2"}, DT, "3", "differs: chosen here, not searched"),
        ({**PRINTED, "printed": "[0, 1]"}, DT, "0.5", "inside"),
        ({**PRINTED, "printed": "[1, 2]"}, DT, "0.5", "outside"),
        (PRINTED, DT, "0.5", "no printed value at hand"),
        ({**PRINTED, "code": "0.5"}, DT, "0.5", "no printed value at hand: as in the official code"),
        ({**PRINTED, "code": "0.7"}, DT, "0.5", "no printed value at hand: other than in the official code"),
        ({"printed": "0.5"}, DT, None, "no experiment"),
        ({}, DT, None, "no experiment"),
        ({**PRINTED, "printed": "YES"}, GATED, "YES", "same"),
        ({**SEARCHED, "printed": "YES"}, GATED, "NO", "differs: searched here"),
    ],
)
def test_every_state(conf: Path, cell: Any, column: Any, ours: str | None, state: str) -> None:
    result = one(cell, **column)
    assert (result.ours, str(result.state)) == (ours, state)
    assert (result.where is None) == (ours is None)


@pytest.mark.parametrize(
    ("searches", "setting", "reads", "ours"),
    [
        (("p-t-a",), "optim.lr", "range", "[1e-4, 0.01]"),
        (("p-t-a",), "optim.lr", "distribution", "log uniform"),
        (("p-t-c",), "p", "distribution", "uniform"),
        (("p-t-a", "p-t-b"), "optim.lr", "range", "[1e-4, 0.01]"),
        (("p-t-a", "p-t-b"), "net.h", "range", "{32, 64} or {32}"),
        (("p-t-[ab]",), "net.h", "range", "{32, 64} or {32}"),
        (("*",), "p", "range", "[1, 5]"),
        (("p-t-a", "p-t-c"), "net.h", "distribution", "disc. uniform"),
        (("p-t-c",), "model.gate", "range", "{YES, NO}"),
    ],
)
def test_ranges_are_those_of_our_searches(conf: Path, searches, setting: str, reads: str, ours: str) -> None:
    result = one({"printed": ours}, searches=searches, setting=setting, reads=reads)
    assert (result.ours, str(result.state)) == (ours, "same")


def test_ranges_are_those_of_searches_that_were_made(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs rest on these; what is declared since then, and not made, is no range of ours."""
    monkeypatch.setenv("PHYSML_RESULTS", str(conf / "results"))
    path = conf / "results" / "search" / "p-t-a.json"
    path.parent.mkdir(parents=True)
    space = {"net.h": [8, 16]}
    trial = {"trial": 0, "point": {"net.h": 8}, "value": 1.0, "status": "finished"}
    search = {"trials": 1, "seed": 0, "metric": "mse", "better": "lower", "space": space}
    path.write_text(json.dumps({"search": search, "trials": [trial]}))

    def drawn(setting: str) -> Any:
        return one({"printed": "{8, 16}"}, searches=("p-t-[ab]",), setting=setting, reads="range")

    assert (drawn("net.h").ours, drawn("net.h").state.word) == ("{8, 16}", "same")
    assert (drawn("optim.lr").ours, drawn("optim.lr").state.word) == (None, "not searched")


def test_a_setting_that_no_search_draws_is_said(conf: Path) -> None:
    def drawn(*searches: str, **cell: str) -> Any:
        return one({"printed": "[1, 5]", **cell}, searches=searches, setting="net.h", reads="range")

    assert (drawn().state.word, drawn("p-t-c").state.word) == ("no search", "not searched")
    fixed = drawn("p-t-c", differs="fixed")
    assert (fixed.ours, fixed.where, str(fixed.state)) == (None, None, "not searched: fixed")
    refuses(ConfigError, "there is no search p-t-d", drawn, "p-t-d")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("rows: [{label: a, cells: {lrr: {}}}]", "row a: there is no column lrr. Did you mean lr"),
        ("rows: [{label: a}, {label: a}]", "the row a appears twice"),
        ("rows: []", "a table needs at least one row"),
        ("rows: [{label: a, cells: {lr: {printd: x}}}]", "printd.*Did you mean printed"),
        ("rows: [{label: a, cells: {lr: {printed: 0.5}}}]", "printed must be text.*quotes"),
        ("rows: [{label: a}]\ncolumns: [{key: lr}]", "row a, column lr: `setting` must say what to read"),
        ("rows: [{label: a}]\ncolumns: [{key: lr, setting: x, reads: vlue}]", "reads.*Did you mean value"),
    ],
)
def test_what_is_wrong_in_a_table_is_told_with_its_file(tmp_path: Path, body: str, says: str) -> None:
    columns = "" if "columns" in body else "columns: [{key: lr, setting: optim.lr}]\n"
    path = tmp_path / "t-1.yaml"
    path.write_text(f"kind: settings\ntitle: T\nsource: S\n{columns}{body}\n")
    assert "t-1.yaml" in refuses(ConfigError, says, load_settings, path)


def test_each_kind_of_table_is_loaded_by_its_own_reader(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("kind: setings\n")
    for load, path, says in (
        (load_table, find_table("lem-8"), "lem-8.yaml is a table of settings: it has no runs"),
        (load_settings, find_table("lem-4"), "lem-4.yaml: kind must be settings; got runs"),
        (load_table, tmp_path / "x.yaml", r"x\.yaml: kind must be one of.*Did you mean settings"),
    ):
        refuses(ConfigError, says, load, path)


@cache
def made(ident: str) -> Any:
    return collect_settings(load_settings(CONF / "table" / f"{ident}.yaml"))


@pytest.mark.parametrize("ident", IDS)
def test_no_difference_is_silent_and_every_form_has_every_cell_as_in_results(ident: str) -> None:
    table = made(ident)
    explained = {(r.label, key) for r in table.spec.rows for key, cell in r.cells.items() if cell.differs}
    for cell in table.cells:
        at, differs = (cell.row, cell.column.key), cell.state.word in ("differs", "outside")
        assert cell.state.reason or (not differs and at not in explained), (at, cell.ours)
        assert differs or cell.state.word == "not searched" or at not in explained, at
    page = FORMS["md"](document(table))
    kept = (ROOT / "results" / "tables" / f"{ident}.md").read_text(encoding="utf-8")
    assert kept == page, f"make table-{ident} writes it anew"
    whole = page.partition("## All settings")[2]
    markdown = [line for line in whole.splitlines() if line.startswith("| ")][2:]
    for cell, md in zip(table.cells, markdown, strict=True):
        where, values = (cell.row, cell.column.title), (cell.printed, cell.code, cell.ours)
        shown = [text for text in (*where, *values, str(cell.state)) if text]
        assert [text for text in md.strip("| ").split(" | ") if text in shown] == shown
    lines = list(csv.DictReader(io.StringIO(comma_separated(document(table)))))
    assert len(lines) == len(table.spec.rows) * len(table.spec.columns)
    assert all(all(line.values()) for line in lines), "an empty cell"
    assert {line["state"] for line in lines} == {str(cell.state) for cell in table.cells}


def test_the_line_of_a_table_counts_what_is_printed(conf: Path) -> None:
    cells = ({**PRINTED, "printed": "0.5"}, {**SEARCHED, "printed": "2"}, {"printed": "2"}, PRINTED)
    table = collect_settings(spec([{"cells": {"x": cell}} for cell in cells], [{"key": "x", **DT}]))
    assert table.state == "3 settings printed; 1 same, 1 differs, 1 no experiment"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "results"


def test_a_table_of_settings_has_no_runs_and_is_printed_and_written(results: Path, capsys, prints) -> None:
    assert main.main(["table", "graphcon-6", "--plan"]) == 0
    assert capsys.readouterr().out == "no runs: graphcon-6 is a table of settings, read from conf/\n"
    for option in (["--seeds", "0"], ["--row", "label=A,experiment=./a.yaml"], ["--yours", "a.json"]):
        assert "it has no runs for --seeds, --row or --yours" in prints(2, "table", "graphcon-6", *option).err
    assert not results.exists()
    assert main.main(["table", "g2-6", "--smoke"]) == 0
    assert not (results / "tables").exists()  # the place of the true ones
    out = "".join(prints(0, "table", "5.8", "--long").out.partition("lem-8: ")[1:])
    assert out.startswith("lem-8: Best LEM hyperparameters")
    printed = [line for line in out.splitlines() if not line.startswith("written: ")]
    assert max(map(len, printed)) <= 100
    assert re.search(r"LEM, sMNIST +Δt +0\.21 +– +0\.21 +same", out)
    assert sorted(p.name for p in (results / "tables").iterdir()) == ["lem-8.csv", "lem-8.md"]
    assert not (results / "runs").exists()
