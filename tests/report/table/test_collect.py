"""Tables: configs are refused with near names, every state is reached, rendering is golden.

`PYTHONPATH=tests/harness python tests/report/table/test_collect.py` rewrites tests/golden/table.*; look at
the diff before you commit.
"""

import csv
import dataclasses
import io
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from each import each
from made_records import finished, ids, on_terminal

from physml.base.errors import ConfigError
from physml.base.paths import CONF
from physml.config import studies
from physml.config.load import read_yaml, structure
from physml.records.costs import Rest
from physml.records.searches import SearchSpread
from physml.report.table import spec as tables
from physml.report.table import typed
from physml.report.table import values as table_values
from physml.report.table.collect import Table, collect, table_state
from physml.report.table.fact_text import fact_lines, search_lines, searched_here
from physml.report.table.spec import TableSpec
from physml.report.text.document import FORMS, Grid, text_of, write
from physml.report.view.text import claim_lines, document

GOLDEN = Path(__file__).parents[2] / "golden"


def record(experiment: str, seed: int, rmse: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    """A finished record as a run leaves it."""
    last128 = None if rmse is None else rmse * 1.01
    fields = {
        "test": {"rmse": rmse, "rmse_last128": last128},
        "selected": {"rule": "min valid/rmse", "step": 10},
        "n_parameters": 1233,
        "cost": {"train_s": 90.0 + seed, "ms_per_step": 50.0, "peak_memory_mib": 411.0 + seed},
        "precision": "fp32",
        "backend": "reference",
        "scoring": {"rmse": "clean", "rmse_last128": "official"},
        "references": {"constant": {"rmse": 0.5, "rmse_last128": 0.505}, "persistence": {"rmse": 0.079}},
        "data": {"version": 1, "fingerprint": "matches"},
        "code": {"commit": "c" * 40, "dirty": False},
        "machine": {"device": "cpu"},
        "provenance": {"kind": "paper"},
        "ended": f"2024-05-0{seed + 1}T10:00:00Z",
    }
    return finished(experiment, seed, **fields | changes)


SEARCHED = {"kind": "searched-here", "note": "Random search: 24 trials."}
PUBLISHED = {"value": 1.0, "digits": 1, "statistic": "mean", "n": 5}


def runs(name: str, *rmse: float, **changes: Any) -> list[dict[str, Any]]:
    return [record(f"t/{name}", seed, value, **changes) for seed, value in enumerate(rmse)]


THREE = (0.01, 0.01, 0.01)
# Row label -> (experiment's records, state in the column `official`). Values are in units of 1e-2.
STATES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "agrees": (runs("agrees", 0.0099, 0.0099, 0.00991), "agrees"),
    "better": (runs("better", 0.0050, 0.0051, 0.0052), "differs: better"),
    "worse": (runs("worse", 0.0150, 0.0151, 0.0152), "differs: worse"),
    "apart": (runs("apart", 0.0080, 0.0100, 0.0120), "cannot be told apart"),
    "reached": (
        [record("t/reached", k, 0.0099 + k * 1e-6, provenance=SEARCHED) for k in range(3)],
        "reached",
    ),
    "missed": (
        [record("t/missed", k, 0.0150 + k * 1e-4, provenance=SEARCHED) for k in range(3)],
        "not reached by our search (24 trials)",
    ),
    "undecidable": (
        runs("undecidable", 0.0090, 0.0095, 0.0100),
        "not decidable: mean of any number, spread as ours: cannot be told apart; best of 5, spread as ours: "
        "cannot be told apart; best of 10, spread as ours: better",
    ),
    "context": ([record("t/context", k, 0.0150 + k * 1e-4) for k in range(3)], "context: theirs better"),
    "partial": ([record("t/partial", k, 0.01) for k in range(2)], "partial 2/3: n = 2, no verdict"),
    "missing": ([], "missing"),
    "preempted": ([record("t/preempted", 0, None, status="preempted", metrics=None)], "missing"),
    "running": ([record("t/running", 0, 0.01)], "running"),
    "stale": (runs("stale", *THREE, identity="ffffffff"), "stale"),
    "old schema": (runs("old schema", *THREE, schema=0), "stale"),
    "failed": (
        [
            record("t/failed", 0, 0.01),
            record("t/failed", 1, None, status="failed", reason="out of memory", metrics=None),
        ],
        "failed: out of memory",
    ),
    "diverged": (
        [record("t/diverged", 0, None, status="diverged", reason="loss is NaN", metrics=None)],
        "diverged",
    ),
    "no metric": (
        runs("no metric", *THREE, metrics={"best": {"test": {"mse": 1.0}}}),
        "failed: the records have no test/rmse_last128",
    ),
    "blocked": ([], "blocked: no data: get them with physml data get"),
    "not composed": ([], "blocked: the experiment can't be composed"),
    "short": ([record("t/short", 0, 0.01, short="30 of 400 epochs")], "not comparable: short budget"),
    "smoke": (runs("smoke", *THREE, config={"profile": "smoke"}), "not comparable: short budget"),
    "substitute": (
        runs("substitute", *THREE, data={"kind": "substitute data"}),
        "not comparable: substitute data",
    ),
    "verified": (
        runs("verified", *THREE, data={"kind": "content-verified"}),
        "agrees: content known from one copy",
    ),
    "other data": (
        runs("other data", *THREE, data={"fingerprint": "differs by 2.0e-01"}),
        "not comparable: different data",
    ),
    "other protocol": (
        runs("other protocol", *THREE, protocol="clean", scoring={}),
        "not comparable: other protocol",
    ),
    "other settings": (runs("other settings", *THREE), "not comparable: settings"),
    "best of 2": (runs("best of 2", 0.0099, 0.012, 0.0010), "cannot be told apart"),
    "best of 9": ([record("t/best of 9", k, 0.0099 + k * 1e-6) for k in range(3)], "agrees"),
    "quoted": ([], "quoted: Somebody 2020"),
    "printed only": ([], "not run here"),
    "nothing": ([], "no printed number, not run"),
    "extra": (
        [record("t/extra", k, 0.0102, code={"commit": "d" * 40, "dirty": True}) for k in range(3)],
        "not published",
    ),
}

AGREES = STATES["agrees"][0]
CELLS: dict[str, dict[str, Any]] = {
    "other settings": {"published": PUBLISHED, "not_comparable": "settings"},
    "best of 2": {"published": {"value": 1.0, "digits": 1, "statistic": "best", "n": 2}},
    "best of 9": {"published": {"value": 1.0, "digits": 1, "statistic": "best", "n": 9}},
    "undecidable": {"published": {"value": 1.0, "digits": 2}},
    "context": {"published": {**PUBLISHED, "quoted": "Somebody 2020"}},
    "quoted": {"published": {"value": 83.8, "digits": 1, "sd": 3.0, "quoted": "Somebody 2020"}},
    "printed only": {"published": {"value": 1.2, "digits": 1}},
    "extra": {},
}
SCALED = {"scale": 100, "unit": "1e-2", "better": "lower"}
UNRUN = ("quoted", "printed only", "nothing")


def content() -> dict[str, Any]:
    rows = [
        {
            "label": label,
            "params": "1k",
            **({} if label in UNRUN else {"experiment": f"t/{label}"}),
            "cells": {} if label == "nothing" else {"official": CELLS.get(label, {"published": PUBLISHED})},
        }
        for label in STATES
    ]
    rows[-1] |= {"extra": True, "params": None}
    return {
        "title": "Every state of a cell, 100 % & more",
        "source": "A paper_of_nobody, Table 1",
        "aliases": ["thesis-0.1"],
        "seeds": [0, 1, 2],
        "claim": {
            "text": "agrees beats worse | nothing else",
            "column": "official",
            "order": [{"better": "agrees", "than": ["worse", "short"]}],
            "ties": [{"rows": ["agrees", "better"], "margin": 0.1, "column": "clean"}],
        },
        "columns": [
            {
                "key": "official",
                "metric": "test/rmse_last128",
                "protocol": "official",
                "margin": {"relative": 0.05, "reason": "a test"},
                **SCALED,
            },
            {"key": "clean", "label": "all of test", "metric": "test/rmse", "protocol": "clean", **SCALED},
        ],
        "rows": rows,
        "notes": ["A first note.", "A second note, with a | bar."],
    }


def spec(**changes: Any) -> TableSpec:
    return structure(TableSpec, {"id": "nobody-1", **content(), **changes}, "nobody-1.yaml")


@cache
def synthetic() -> Table:
    table_spec = spec()
    identities = ids(*tables.experiments_of(table_spec)) | {"t/not composed": None}
    records = [r for examples, _ in STATES.values() for r in examples]
    return collect(
        table_spec,
        identities,
        records,
        running={("t/running", 0, 1)},
        yours=[record("t/better", 41, 0.0049), record("t/better", 42, 0.0049, identity="eeeeeeee")],
        blocked={"t/blocked": "no data: get them with physml data get"},
    )


@cache
def renderings() -> dict[str, str]:
    table = synthetic()
    forms = {f"table.{suffix}": form(document(table)) for suffix, form in FORMS.items()}
    narrow, wide = on_terminal(document(table)), on_terminal(document(table), 260, long=True, rules=True)
    return forms | {"table.console.txt": narrow, "table.wide.txt": wide}


# --- states


@pytest.mark.parametrize("label", STATES)
def test_every_state_is_reached(label: str) -> None:
    cell = next(c for c in synthetic().column("official") if c.row == label)
    assert str(cell.state) == STATES[label][1]


@pytest.mark.parametrize(
    ("rmse", "settings", "cell", "state"),
    [
        ([0.49, 0.50, 0.51], SEARCHED, {}, "did not train with our settings: no better than constant"),
        (
            [0.49, 0.50, 0.51],
            SEARCHED,
            {"quoted": "Somebody 2020"},
            "did not train with our settings: no better than constant",
        ),
        ([0.49, 0.50, 0.51], {"kind": "paper"}, {}, "differs: worse"),  # with theirs it does not train either
        ([0.39, 0.40, 0.41], SEARCHED, {}, "not reached by our search (24 trials)"),  # worse than persistence
        ([0.505, 0.506, 0.507], SEARCHED, {"value": 50.5}, "reached"),  # the paper's does not train either
    ],
)
def test_a_network_at_chance_did_not_train(
    rmse: list[float], settings: dict[str, Any], cell: dict[str, Any], state: str
) -> None:
    row = {"label": "a", "experiment": "t/a", "cells": {"official": {"published": {**PUBLISHED, **cell}}}}
    records = [record("t/a", seed, value, provenance=settings) for seed, value in enumerate(rmse)]
    table = collect(spec(rows=[row], claim=None, notes=[]), ids("t/a"), records)
    assert str(table.column("official")[0].state) == state


def test_which_runs_count() -> None:
    table = synthetic()
    cell = next(c for c in table.column("clean") if c.row == "agrees")
    assert str(cell.state) == "not published"  # not "other protocol": `scoring` says clean
    assert cell.summary is not None and cell.summary.mean == pytest.approx(0.99, abs=1e-3)
    cell = next(c for c in table.column("official") if c.row == "better")
    assert cell.summary is not None and cell.summary.n == 3  # without those of the reader
    assert [(y.seed, str(y.state)) for y in cell.yours] == [(41, "outside the mean"), (42, "other settings")]
    assert cell.yours[0].value == pytest.approx(0.4949)
    assert str(collect(spec(seeds=[0, 1]), ids("t/agrees"), AGREES).cells[0].state) == "n = 2, no verdict"


def test_what_is_left_to_run_costs_what_records_and_measurements_say() -> None:
    rows = [{"label": name, "experiment": f"t/{name}"} for name in ("begun", "measured", "unknown", "done")]
    identities = {f"t/{name}": name for name in ("begun", "measured", "unknown", "done")}
    cost = {"train_s": 3600.0, "ms_per_step": 1.0, "sgemm_gflops": 50.0}  # half as fast as the reference
    begun = record("t/begun", 0, identity="begun", cost=cost)
    done = [record("t/done", seed, identity="done") for seed in range(2)]
    done.append(record("t/done", 2, identity="done", status="diverged"))
    hours = {"measured": 2.0, "begun": 9.0}
    table = collect(
        spec(rows=rows, claim=None, notes=[]),
        identities,
        [begun, *done],
        hours=hours,
        blocked={"t/measured": "no data"},
    )
    assert table.rest == Rest(runs=2 + 3 + 3, hours=2 * 0.5 + 3 * 2.0, unknown=3)


@pytest.mark.parametrize(
    "records",
    [
        [*AGREES, record("t/agrees", 9, 0.5), record("t/agrees", 0, 0.5, split=1)],  # other seeds and splits
        [*AGREES, record("t/agrees", 0, 0.5)],  # found twice
        [record("t/agrees", 0, None, status="failed", reason="disk full"), *AGREES],  # finished later
    ],
)
def test_a_run_counts_once_where_it_is_wanted(records: list[dict[str, Any]]) -> None:
    cell = collect(spec(), ids("t/agrees"), records).cells[0]
    assert cell.summary is not None and (cell.done, cell.wanted, cell.summary.n) == (3, 3, 3)
    assert str(cell.state) == "agrees"


def test_a_claim_ignores_what_is_not_comparable() -> None:
    table = synthetic()
    verdicts = [part.verdict for part in table.claim]
    assert verdicts == ["holds", None, "contradicted"]
    assert table.claim[0].p is not None and table.claim[1].p is None
    assert table.claim_verdict == "contradicted"
    assert "no comparable runs" in claim_lines(table)[2]


def test_a_claim_that_names_an_amount_is_tested_on_it() -> None:
    records = [
        record(f"t/{name}", seed, value * (1 + 0.01 * seed))
        for name, value in (("agrees", 0.01), ("worse", 0.03))
        for seed in range(3)
    ]

    def lines(**amount: float) -> list[str]:
        pair = {"better": "agrees", "than": "worse", "column": "clean", **amount}
        table_spec = spec(claim={"text": "a claim", "amounts": [pair]})
        return claim_lines(collect(table_spec, ids("t/agrees", "t/worse"), records))

    sentences = lines(times=6)
    assert sentences[0] == "Claim: a claim. Its ranking and amounts: contradicted."
    assert "at least 6 times better than worse (clean): contradicted (ratio 3.00 [3.0" in sentences[1]
    assert "times better than worse (clean): holds" in lines(times=2)[1]
    assert "agrees better than worse by at least 3 1e-2 (clean): contradicted" in lines(points=3)[1]
    assert "by at least 1 1e-2 (clean): holds (gain +2.0" in lines(points=1)[1]
    with pytest.raises(ConfigError, match="needs one of times and points"):
        lines(times=2, points=1)
    with pytest.raises(ConfigError, match="times must be positive"):
        lines(times=0)


def test_repeats_of_a_search_stand_beside_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the unit of the column, and only for settings that the search found."""
    spread = SearchSpread("rmse", "lower", (0.01, 0.02, 0.03))
    monkeypatch.setattr("physml.report.table.runs.spread_of_search", {"toy-agrees": spread}.get)
    provenance = {"kind": "searched-here", "search": "results/search/toy-agrees.json"}
    records = [record("t/agrees", seed, 0.02, provenance=provenance) for seed in range(3)]
    records += [record("t/worse", seed, 0.03) for seed in range(3)]
    table = collect(spec(), ids("t/agrees", "t/worse"), records)
    notes = list(search_lines(table))
    assert len(notes) == 1 and "agrees ± 1.0000 (best 1.0000, worst 3.0000, n = 3)" in notes[0]
    assert "worse ±" not in notes[0]
    for long in (False, True):
        assert "agrees ± 1.0000 (best" in on_terminal(document(table), 260, long=long)


def test_splits_have_their_own_spread() -> None:
    table_spec = spec(splits=[0, 1, 2], seeds=[0, 1], spread="splits")
    records = [record("t/agrees", k, 0.01 * (1 + j), split=j) for j in range(3) for k in range(2)]
    cell = collect(table_spec, ids("t/agrees"), records).column("clean")[0]
    assert cell.summary is not None
    assert (cell.done, cell.wanted, cell.summary.n) == (6, 6, 3)
    assert cell.summary.sd == pytest.approx(1.0)


def test_paired_seeds_and_splits() -> None:
    table_spec = spec(splits=[0, 1, 2], seeds=[6, 5, 7], spread="splits", paired=True)
    assert [run[1:] for run in table_spec.runs[:3]] == [(0, 6), (1, 5), (2, 7)]  # in the order given
    records = [record("t/agrees", k, 0.01 * (1 + j), split=j) for j in range(3) for k in (5, 6, 7)]
    table = collect(table_spec, ids("t/agrees"), records)
    cell = table.column("clean")[0]
    assert cell.summary is not None and cell.summary.mean == pytest.approx(2.0)
    assert (cell.done, cell.wanted, cell.summary.n) == (3, 3, 3)
    assert "seeds 6, 5, 7; splits 0, 1, 2, each with one of the seeds" in "\n".join(fact_lines(table))
    assert table_spec.with_seeds((0,)).runs[:3] == [("t/agrees", j, 0) for j in range(3)]
    with pytest.raises(ConfigError, match="got 2 seeds and 3 splits"):
        spec(splits=[0, 1, 2], seeds=[0, 1], paired=True)


def test_references_are_scaled_and_vary_over_splits_only() -> None:
    records = [
        record("t/agrees", k, 0.01, split=j, references={"constant": {"rmse": 0.5 + 0.1 * j}})
        for j in range(2)
        for k in range(2)
    ]
    table = collect(spec(splits=[0, 1], seeds=[0, 1], spread="splits"), ids("t/agrees"), records)
    score = table.references["constant"]["clean"]
    assert (score.n, score.mean) == (2, pytest.approx(55.0)) and score.sd == pytest.approx(50**0.5)
    cell = next(c for c in table.column("clean") if c.row == "agrees")
    assert cell.over is not None and cell.over[0] == "constant"
    assert cell.over[1].mean == pytest.approx(54.0) and cell.over[1].n == 2


def test_rows_on_other_data_have_references_of_their_own() -> None:
    """Features that are scaled otherwise give the same trivial prediction another score."""
    records = [
        record(f"t/{name}", k, 0.01, references={"linear": {"rmse": score}})
        for name, score in (("agrees", 0.5), ("worse", 0.7), ("better", 0.5))
        for k in range(2)
    ]
    table = collect(spec(), ids("t/agrees", "t/worse", "t/better"), records)
    means = {name: scores["clean"].mean for name, scores in table.references.items()}
    first, second = means
    assert (first, second) == ("linear, data of agrees", "linear, data of worse")
    assert means[first] == pytest.approx(50.0) and means[second] == pytest.approx(70.0)


def test_uncommitted_code_and_choice_by_test_are_told() -> None:
    assert "3 runs were made on uncommitted code: no commit holds what produced them" in fact_lines(
        synthetic()
    )
    by_test = [record("t/agrees", k, 0.01, selected={"rule": "min test/rmse"}) for k in range(3)]
    table = collect(spec(), ids("t/agrees"), by_test)
    assert any(line.startswith("Selection on TEST") for line in fact_lines(table))


def test_the_state_of_a_table_counts_each_run_once() -> None:
    state = table_state(synthetic())
    n_runs = len({row.experiment for row in spec().rows if row.experiment}) * 3
    assert state.startswith(f"{sum(c.done for c in synthetic().column('official'))}/{n_runs} runs; ")
    assert "1 differs: worse" in state and "3 agrees" in state and "2 not comparable: short budget" in state


# --- rendering


NUMBER = re.compile(r"\d+\.\d{6,}")


@pytest.mark.parametrize("name", ["table.md", "table.csv", "table.console.txt", "table.wide.txt"])
def test_rendering_is_golden(name: str) -> None:
    rendered, kept = renderings()[name], (GOLDEN / name).read_text(encoding="utf-8")
    if name.endswith(".csv"):  # twelve digits, of which the last depends on the version of scipy
        numbers = [[float(x) for x in NUMBER.findall(text)] for text in (rendered, kept)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-10)
        rendered, kept = NUMBER.sub("#", rendered), NUMBER.sub("#", kept)
    assert rendered == kept


def test_no_cell_is_empty() -> None:
    grids = [block for block in document(synthetic()).long if isinstance(block, Grid)]
    assert len(grids) == 3
    for grid in grids:
        for line in grid.lines:
            assert len(line) == len(grid.heads) and all(text_of(text).strip() for text in line)
    for row in csv.reader(io.StringIO(FORMS["csv"](document(synthetic())))):
        assert all(row)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write(document(synthetic()), tmp_path)]
    assert [path.read_bytes() for path in write(document(synthetic()), tmp_path)] == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nobody-1.csv", "nobody-1.md"]


def test_a_console_line_fits_the_terminal() -> None:
    page = document(synthetic())
    for width in (80, 100, 140, 240):
        for long in (False, True):
            assert max(map(len, on_terminal(page, width, long=long, rules=long).splitlines())) <= width


# --- configs


def claim(**keys: Any) -> dict[str, Any]:
    return {"claim": {"text": "x", **keys}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"titel": "x"}, r"there is no key titel. Did you mean title\?"),
        (
            {"rows": [{"label": "a", "cels": {}}]},
            r"nobody-1.yaml.rows\[0\]: there is no key cels. Did you mean cells\?",
        ),
        (
            {"rows": [{"label": "a", "cells": {"official": {"published": {"vale": 1}}}}]},
            r"rows\[0\].cells.official.published: there is no key vale. Did you mean value\?",
        ),
        (
            {"rows": [{"label": "a", "cells": {"offical": {}}}]},
            r"row a: there is no column offical. Did you mean official\?",
        ),
        ({"rows": []}, "at least one row"),
        ({"rows": [{"label": "a"}, {"label": "a"}]}, "the row a appears twice"),
        ({"rows": [{}]}, r"rows\[0\]: the key label is missing"),
        ({"seeds": []}, "seeds must be different whole numbers"),
        ({"seeds": [0, 0]}, "seeds must be different whole numbers"),
        ({"seeds": [0, -1]}, "seeds must be different whole numbers"),
        ({"seeds": 3}, "seeds must be a list; got 3"),
        ({"seeds": ["a"]}, r"seeds\[0\] must be a whole number; got 'a'"),
        ({"title": 3}, "title must be text; got 3"),
        ({"spread": "split"}, "spread must be one of 'runs', 'splits'; got 'split'. Did you mean splits"),
        (claim(column="official", order=[{"better": "agree", "than": ["worse"]}]), "there is no row agree"),
        (claim(order=[{"better": "agrees", "than": ["worse"]}]), "claim: there is no column ''"),
        (claim(column="clean", ties=[{"rows": ["agrees"], "margin": 0.1}]), "must be two labels"),
    ],
)
def test_a_wrong_config_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "rmse"}, "metric must look like test/rmse"),
        ({"scale": 0}, "scale must be positive"),
        ({"better": "smaller"}, "better must be one of 'lower', 'higher'"),
        ({"margin": {"value": 1.0}}, "reason must say why so much"),
        ({"margin": {"value": -1.0, "reason": "x"}}, "margin: value must not be negative"),
        ({"scale": True}, "scale must be a number; got True"),
    ],
)
def test_a_wrong_column_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(columns=[{**content()["columns"][0], **change}], claim=None)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nobody-1.yaml"
    path.write_text(yaml.safe_dump(content()) + "title: again\n")
    with pytest.raises(ConfigError, match="the key title appears twice"):
        tables.load_table(path)


def test_numbers_like_1e_2_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "nobody-1.yaml"
    path.write_text(
        yaml.safe_dump(content() | {"seeds": [0]}).replace("1e-2", "'1e-2'").replace("0.05", "5e-2")
    )
    assert tables.load_table(path).columns[0].margin.relative == 0.05


@each("ident", lambda: tables.table_ids(kind="runs"))
def test_every_table_of_conf_loads_and_renders(ident: str) -> None:
    table_spec = tables.load_table(CONF / "table" / f"{ident}.yaml")
    for experiment in tables.experiments_of(table_spec):
        assert studies.is_name(experiment)
    table = collect(table_spec, ids(*tables.experiments_of(table_spec)), [])
    assert {str(cell.state) for cell in table.cells if cell.wanted} == {"missing"}
    assert all(form(document(table)) for form in FORMS.values())


def test_aliases_are_unique() -> None:
    contents = [read_yaml(CONF / "table" / f"{ident}.yaml") for ident in tables.table_ids()]
    aliases = [alias for content in contents for alias in content.get("aliases", [])]
    assert len(aliases) == len(set(aliases)) and not set(aliases) & set(tables.table_ids())


@pytest.mark.parametrize(
    ("name", "paper", "expected"),
    [
        ("lem-4", "lem", "lem-4"),
        ("4", "lem", "lem-4"),
        ("6", "cornn", "cornn-6"),
        ("cornn-6", "lem", "cornn-6"),
        ("table-cornn-6", "lem", "cornn-6"),
        ("thesis-5.4", "lem", "lem-4"),
        ("5.4", "lem", "lem-4"),
        ("3.6", "cornn", "unicornn-6"),
    ],
)
def test_a_table_is_found_by_its_names(name: str, paper: str, expected: str) -> None:
    assert tables.find_table(name, paper).stem == expected


def test_an_unknown_table_gets_near_names_and_ids_are_sorted_by_number(tmp_path: Path) -> None:
    for name, hint in (("lem-44", "lem-4"), ("unicorn-6", "unicornn-6"), ("5.44", "5.4")):
        with pytest.raises(ConfigError, match=f"there is no table '{name}'.*{hint}"):
            tables.find_table(name)
    (tmp_path / "table").mkdir()
    for name in ("lem-10", "lem-4", "cornn-2"):
        (tmp_path / "table" / f"{name}.yaml").touch()
    assert tables.table_ids(conf=tmp_path) == ["cornn-2", "lem-4", "lem-10"]


def test_seeds_and_rows_from_the_command_line() -> None:
    assert typed.parse_seeds("n3") == (0, 1, 2)
    assert typed.parse_seeds("0, 5,5") == (0, 5)
    assert typed.parse_row("label=Mine, dt=2,experiment=./mine.yaml").label == "Mine, dt=2"
    assert typed.parse_seeds("1-3,7") == (1, 2, 3, 7)
    for wrong in ("n0", "3-1", "1-", "0-999999999", "", "a"):
        with pytest.raises(ConfigError, match="seeds must look like"):
            typed.parse_seeds(wrong)
    with pytest.raises(ConfigError, match="a row must look like"):
        typed.parse_row("mine.yaml")
    for wrong in ("label=Mine", "label=,experiment=a", "experiment=a,label=Mine", "label=Mine,texas="):
        with pytest.raises(ConfigError, match="a row must look like"):
            typed.parse_row(wrong)


def test_an_extra_row_may_have_an_experiment_of_its_own_in_each_column() -> None:
    row = typed.parse_row("label=Mine, dt=2,official=./a.yaml")
    extended = typed.with_rows(spec(), [row])
    column = next(c for c in extended.columns if c.key == "official")
    assert (row.label, extended.cell(row, column).experiment) == ("Mine, dt=2", "./a.yaml")
    assert ("./a.yaml", 0, 2) in extended.runs
    with pytest.raises(ConfigError, match="row Mine: there is no column offical"):
        typed.with_rows(spec(), [typed.parse_row("label=Mine,offical=./a.yaml")])
    common = typed.with_rows(spec(), [typed.parse_row("label=Mine,experiment=./mine.yaml")])
    records = [record("./mine.yaml", k, 0.01, identity="00000001") for k in range(3)]
    cell = collect(common, {"./mine.yaml": "00000001"}, records).column("official")[-1]
    assert (cell.row, cell.done, cell.extra) == ("Mine", 3, True)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, text in renderings().items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
        print(GOLDEN / name)


def test_data_that_were_not_compared_are_named_below_the_table() -> None:
    how = {"a.zip": "content", "b.ts": "first seen", "c.gz": "bytes"}
    data = {"kind": "content-verified", "files": [{"name": n, "verified": v} for n, v in how.items()]}
    data["notes"] = ["1 of 6 items of test stand in train or valid too"]
    runs = [record("t/agrees", k, 0.01, data=data) for k in range(2)]
    table = collect(spec(), ids("t/agrees"), runs)
    assert table.facts.unproven == {"content": ("a.zip",), "first seen": ("b.ts",)}
    lines = fact_lines(table)
    for kind in ("content-verified", "unverified data"):
        runs = [record("t/agrees", k, 0.01, data={"kind": kind}) for k in range(3)]
        unverified = str(collect(spec(), ids("t/agrees"), runs).cells[0].state)
        assert (unverified == "not comparable: unverified data") == (kind == "unverified data")
    assert "Data of t/agrees: 1 of 6 items of test stand in train or valid too" in lines
    assert "Data without a published checksum, pinned when first seen: b.ts" in lines
    assert "Data compared by their content, not by a checksum of their bytes: a.zip" in lines


def test_a_claim_of_rows_that_are_tuned_otherwise_gets_no_verdict() -> None:
    """The difference is shown; with `searched` rows that took over their settings are not judged either."""

    def found(kinds: dict[str, str], **changes: bool) -> tuple[str | None, str | None]:
        records = [
            record(
                f"t/{name}",
                k,
                0.001 * k + (0.1 if name == "worse" else 0.0),
                provenance={"kind": kind, "note": "Random search: 24 trials (24 finished)."},
            )
            for name, kind in kinds.items()
            for k in range(3)
        ]
        claim = {"text": "a claim", "order": [{"better": "agrees", "than": ["worse"], "column": "clean"}]}
        table = collect(spec(claim=claim | changes), ids(*(f"t/{name}" for name in kinds)), records)
        (part,) = table.claim
        assert part.gain is not None
        return part.verdict, table.claim_verdict

    alike = {"agrees": "searched-here", "worse": "searched-here"}
    assert found(alike) == ("holds", "holds")
    assert found(alike | {"worse": "own"}) == ("rows not tuned alike", "rows not tuned alike")
    assert found({"agrees": "own", "worse": "own"}) == ("holds", "holds")
    assert found({"agrees": "own", "worse": "own"}, searched=True)[0] == "rows not tuned alike"


def test_a_row_may_have_more_seeds_than_the_table() -> None:
    table_spec = spec(seeds=[0, 1])
    own = next(row for row in table_spec.rows if row.label == "agrees")
    table_spec = dataclasses.replace(
        table_spec,
        rows=tuple(dataclasses.replace(r, seeds=(0, 1, 5)) if r is own else r for r in table_spec.rows),
    )
    assert table_spec.seeds_of("t/agrees") == (0, 1, 5) and table_spec.seeds_of("t/worse") == (0, 1)
    assert [run for run in table_spec.runs if run[0] == "t/agrees"] == [("t/agrees", 0, k) for k in (0, 1, 5)]
    records = [record(f"t/{name}", k, 0.01 + k / 1000) for name in ("agrees", "worse") for k in (0, 1, 5)]
    table = collect(table_spec, ids("t/agrees", "t/worse"), records)
    cells = {cell.row: cell for cell in table.column("clean")}
    assert (cells["agrees"].done, cells["agrees"].wanted) == (3, 3)
    assert (cells["worse"].done, cells["worse"].wanted) == (2, 2)
    assert any(line.startswith("Runs: seeds 0, 1; agrees: 0, 1, 5") for line in fact_lines(table))
    assert table_spec.with_seeds((7,)).seeds_of("t/agrees") == (7,)
    with pytest.raises(ConfigError, match="row agrees: seeds must be different whole numbers"):
        dataclasses.replace(table_spec, rows=(dataclasses.replace(own, seeds=(1, 1)), *table_spec.rows[1:]))


def test_searched_experiments_of_a_study_are_named_together() -> None:
    kinds = {
        "g2/texas-gcn": 1,
        "g2/texas-gat": 1,
        "g2/texas-mlp": 1,
        "g2/film-a": 1,
        "g2/film-b": 1,
        "g2/film-c": 0,
        "x/y": 1,
    }
    provenance = {name: "searched-here" if searched else "official-code" for name, searched in kinds.items()}
    assert list(searched_here(provenance)) == ["g2/film-a", "g2/film-b", "g2/texas-*", "x/y"]


def test_memory_is_the_median_over_the_runs_that_have_them() -> None:
    cost = {"train_s": 9.0, "ms_per_step": 5.0}
    costs = [
        cost | {"peak_memory_mib": 300.0},
        cost | {"peak_memory_mib": 500.0},
        cost | {"peak_memory_mib": 700.0},
    ]
    records = [record("t/agrees", k, 0.01 + k / 1000, cost=spent) for k, spent in enumerate(costs)]
    table = collect(spec(), ids("t/agrees"), records)
    heads, *lines = table_values.values(table)
    (line,) = (dict(zip(heads, cells, strict=True)) for cells in lines if cells[1:3] == ("agrees", "clean"))
    assert line["peak_memory_mib"] == 500.0
    (missing,) = (dict(zip(heads, cells, strict=True)) for cells in lines if cells[1:3] == ("worse", "clean"))
    assert missing["peak_memory_mib"] is None
    grid = next(b for b in document(table).long if isinstance(b, Grid) and "clean" in b.heading)
    assert [cells[-1] for cells in grid.lines if cells[0] == "agrees"] == ["500 MiB"]
