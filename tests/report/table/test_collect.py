"""Tables: configs are refused with near names, every state is reached, rendering is golden.

`PYTHONPATH=tests/harness python tests/report/table/test_collect.py` rewrites tests/golden/table.*; look at
the diff before you commit.
"""

import itertools
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from each import each
from made_records import finished, ids, on_terminal
from refusals import refuses

from physml.base.errors import ConfigError
from physml.base.paths import CONF
from physml.config import conf_files, studies
from physml.config.load import read_yaml, structure
from physml.records.costs import Rest
from physml.records.searches import SearchSpread
from physml.report.table import spec as tables
from physml.report.table import typed
from physml.report.table.collect import collect, table_state
from physml.report.table.fact_text import fact_lines, search_lines, settled_here
from physml.report.table.spec import Column, TableSpec
from physml.report.text.document import FORMS, Grid, write
from physml.report.view.finding import finding_text
from physml.report.view.text import claim_lines, document, values

GOLDEN = Path(__file__).parents[2] / "golden"


def record(experiment: str, seed: int, rmse: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    """A finished record as a run leaves it."""
    fields = {
        "test": {"rmse": rmse, "rmse_last128": None if rmse is None else rmse * 1.01},
        "cost": {"train_s": 90.0 + seed, "ms_per_step": 50.0, "peak_memory_mib": 411.0 + seed},
        "scoring": {"rmse": "clean", "rmse_last128": "official"},
        "references": {"constant": {"rmse": 0.5, "rmse_last128": 0.505}, "persistence": {"rmse": 0.079}},
        "data": {"version": 1, "fingerprint": "matches"}, "code": {"commit": "c" * 40, "dirty": False},
        "selected": {"rule": "min valid/rmse", "step": 10}, "provenance": {"kind": "paper"},
        "machine": {"device": "cpu"}, "precision": "fp32", "backend": "reference", "n_parameters": 1233,
        "ended": f"2024-05-0{seed + 1}T10:00:00Z",
    }  # fmt: skip
    return finished(experiment, seed, **fields | changes)


SEARCHED = {"kind": "searched-here", "note": "Random search: 24 trials."}
PUBLISHED = {"value": 1.0, "digits": 1, "statistic": "mean", "n": 5}


def runs(name: str, *rmse: float | None, **changes: Any) -> list[dict[str, Any]]:
    return [record(f"t/{name}", seed, value, **changes) for seed, value in enumerate(rmse)]


THREE = (0.01, 0.01, 0.01)
NEAR = tuple(0.0099 + k * 1e-6 for k in range(3))


def state(text: str, *rmse: float | None, **changes: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The state of a row in the column `official`, in units of 1e-2, with the runs that it comes from."""
    return text, rmse, changes


STATES = {
    "agrees": state("agrees", 0.0099, 0.0099, 0.00991),
    "better": state("differs: better", 0.0050, 0.0051, 0.0052),
    "worse": state("differs: worse", 0.0150, 0.0151, 0.0152),
    "apart": state("cannot be told apart", 0.0080, 0.0100, 0.0120),
    "reached": state("reached", *NEAR, provenance=SEARCHED),
    "missed": state("not reached by our search (24 trials)", 0.0150, 0.0151, 0.0152, provenance=SEARCHED),
    "undecidable": state(
        "not decidable: mean of any number, spread as ours: cannot be told apart; best of 5, spread as ours: "
        "cannot be told apart; best of 10, spread as ours: better",
        *(0.0090, 0.0095, 0.0100),
    ),
    "context": state("context: theirs better", 0.0150, 0.0151, 0.0152),
    "partial": state("partial 2/3: n = 2, no verdict", 0.01, 0.01),
    "missing": state("missing"),
    "preempted": state("missing", None, status="preempted", metrics=None),
    "running": state("running", 0.01),
    "stale": state("stale", *THREE, identity="ffffffff"),
    "old schema": state("stale", *THREE, schema=0),
    "failed": state("failed: out of memory", 0.01),  # and another run, in RUNS
    "diverged": state("diverged 1/3", None, status="diverged", reason="loss is NaN", metrics=None),
    "no metric": state(
        "failed: the records have no test/rmse_last128. Did you mean test/mse?",
        *THREE,
        metrics={"best": {"test": {"mse": 1.0}}},
    ),
    "blocked": state("blocked: no data: get them with physml data get"),
    "not composed": state("blocked: the experiment can't be composed"),
    "short": state("not comparable: short budget", 0.01, short="30 of 400 epochs"),
    "smoke": state("not comparable: short budget", *THREE, config={"profile": "smoke"}),
    "substitute": state("not comparable: substitute data", *THREE, data={"kind": "substitute data"}),
    "verified": state("agrees: content known from one copy", *THREE, data={"kind": "content-verified"}),
    "other data": state("not comparable: different data", *THREE, data={"fingerprint": "differs by 2.0e-01"}),
    "other protocol": state("not comparable: other protocol", *THREE, protocol="clean", scoring={}),
    "other settings": state("not comparable: settings", *THREE),
    "best of 2": state("cannot be told apart", 0.0099, 0.012, 0.0010),
    "best of 9": state("agrees", *NEAR),
    "quoted": state("quoted: Somebody 2020"),
    "printed only": state("not run here"),
    "nothing": state("no printed number, not run"),
    "extra": state("not published", *[0.0102] * 3, code={"commit": "d" * 40, "dirty": True}),
}
RUNS = {label: runs(label, *rmse, **changes) for label, (_, rmse, changes) in STATES.items()}
RUNS["failed"].append(record("t/failed", 1, None, status="failed", reason="out of memory", metrics=None))

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
    rows: list[dict[str, Any]] = [
        {"label": label, "params": "1k", "cells": {"official": CELLS.get(label, {"published": PUBLISHED})}}
        | ({} if label in UNRUN else {"experiment": f"t/{label}"})
        for label in STATES
    ]
    rows[[*STATES].index("nothing")]["cells"] = {}
    rows[-1] |= {"extra": True, "params": None}
    return {
        "title": "Every state of a cell, 100 % & more", "source": "A paper_of_nobody, Table 1",
        "aliases": ["thesis-0.1"], "seeds": [0, 1, 2], "rows": rows,
        "notes": ["A first note.", "A second note, with a | bar."],
        "claim": {
            "text": "agrees beats worse | nothing else",
            "column": "official",
            "order": [{"better": "agrees", "than": ["worse", "short"]}],
            "ties": [{"rows": ["agrees", "better"], "margin": 0.1, "column": "clean"}],
        },
        "columns": [
            {"key": "official", "metric": "test/rmse_last128", "protocol": "official", **SCALED}
            | {"margin": {"relative": 0.05, "reason": "a test"}},
            {"key": "clean", "label": "all of test", "metric": "test/rmse", "protocol": "clean", **SCALED},
        ],
    }  # fmt: skip


def spec(**changes: Any) -> TableSpec:
    return structure(TableSpec, {"id": "nobody-1", **content(), **changes}, "nobody-1.yaml")


def collected(runs: list[dict[str, Any]], of: TableSpec | None = None, **changes: Any) -> Any:
    """A table of these runs, whose settings are those of today."""
    return collect(of or spec(**changes), ids(*(run["experiment"] for run in runs)), runs)


@cache
def synthetic() -> Any:
    table_spec, blocked = spec(), {"t/blocked": "no data: get them with physml data get"}
    identities = ids(*tables.experiments_of(table_spec)) | {"t/not composed": None}
    every = [run for examples in RUNS.values() for run in examples]
    yours = [record("t/better", 41, 0.0049), record("t/better", 42, 0.0049, identity="eeeeeeee")]
    return collect(table_spec, identities, every, running={("t/running", 0, 1)}, yours=yours, blocked=blocked)


def cell_of(column: str, row: str) -> Any:
    return next(cell for cell in synthetic().column(column) if cell.row == row)


@cache
def renderings() -> dict[str, str]:
    page = document(synthetic())
    forms = {f"table.{suffix}": form(page) for suffix, form in FORMS.items()}
    wide = on_terminal(page, 260, long=True, rules=True)
    return forms | {"table.console.txt": on_terminal(page), "table.wide.txt": wide}


@pytest.mark.parametrize("label", STATES)
def test_every_state_is_reached(label: str) -> None:
    assert str(cell_of("official", label).state) == STATES[label][0]


LOST = {"status": "diverged", "reason": "the loss is NaN", "metrics": None}
CHANCE = (0.49, 0.50, 0.51)


@pytest.mark.parametrize(
    ("rmse", "settings", "cell", "state"),
    [
        (CHANCE, SEARCHED, {}, "not shown to beat a constant with our settings: constant"),
        (CHANCE, SEARCHED, {"quoted": "X 2020"}, "not shown to beat a constant with our settings: constant"),
        (CHANCE, {"kind": "paper"}, {}, "differs: worse"),  # with theirs it does not train either
        ((0.39, 0.40, 0.41), SEARCHED, {}, "not reached by our search (24 trials)"),  # worse than persistence
        ((0.505, 0.506, 0.507), SEARCHED, {"value": 50.5}, "reached"),  # the paper's does not train either
    ],
)
def test_a_network_at_chance_is_no_better_than_a_constant(rmse, settings, cell, state) -> None:
    row = {"label": "a", "experiment": "t/a", "cells": {"official": {"published": {**PUBLISHED, **cell}}}}
    table = collected(runs("a", *rmse, provenance=settings), rows=[row], claim=None, notes=[])
    assert str(table.column("official")[0].state) == state


def test_a_row_that_solves_the_task_in_some_runs_or_is_ahead_in_every_run_is_not_at_chance() -> None:
    # One of eight gets there: the interval of the gain over the constant holds 0, and yet it trained.
    row = {"label": "a", "experiment": "t/a", "cells": {"official": {"published": PUBLISHED}}}

    def state(**threshold: float) -> str:
        columns = [{**column, **threshold} for column in content()["columns"]]
        split = runs("a", 0.001, *[0.51, 0.52] * 3, 0.5, provenance=SEARCHED)
        table = collected(split, rows=[row], columns=columns, claim=None, notes=[], seeds=list(range(8)))
        return str(table.column("official")[0].state)

    assert state() == "not shown to beat a constant with our settings: constant"
    assert state(solved=0.01) == "not shown to beat a constant with our settings: constant"
    assert state(solved=1.0) == "not reached by our search (24 trials)"
    # The best run made better widens the interval until it holds 0, and says nothing against the row.
    for best in (0.46, 0.30, 0.01):
        five = runs("a", best, 0.48, 0.482, 0.481, 0.484, provenance=SEARCHED)
        table = collected(five, rows=[row], claim=None, notes=[], seeds=list(range(5)))
        assert str(table.column("official")[0].state) == "not reached by our search (24 trials)", best


def test_the_mean_of_runs_that_did_not_diverge_is_no_best_one() -> None:
    lost = record("t/worse", 2, None, status="diverged", reason="loss is NaN", metrics=None)
    table = collected([*runs("agrees", *THREE), *runs("worse", 0.001, 0.001), lost])
    cells = {cell.row: cell for cell in table.column("official")}
    assert cells["worse"].summary.mean < cells["agrees"].summary.mean
    assert (cells["worse"].eligible, cells["agrees"].eligible) == (None, cells["agrees"].summary.mean)


@pytest.mark.parametrize(
    ("second", "third", "state"),
    [
        ({}, {}, "failed: 1 of 3 runs: no finite test/rmse_last128"),
        ({}, LOST, "diverged 1/3"),
        (LOST, {"status": "failed", "reason": "disk full", "metrics": None}, "failed: disk full"),
    ],
)
def test_a_row_with_a_run_without_a_number_is_no_best_one(second: Any, third: Any, state: str) -> None:
    number = None if second else 0.001
    of_row = [record("t/worse", seed, x, **more) for seed, x, more in ((0, 0.001, {}), (1, number, second))]
    table = collected([*runs("agrees", *THREE), *of_row, record("t/worse", 2, None, **third)])
    (cell,) = (cell for cell in table.column("official") if cell.row == "worse")
    assert (cell.eligible, str(cell.state)) == (None, state)


def test_a_number_without_a_variance_has_no_place_in_a_mean_nor_has_a_reference_that_is_none() -> None:
    """Squares of 1e200 are no floats, and JSON of others may hold NaN."""
    for score in (1e200, -math.inf, math.nan):
        lost = [*runs("worse", 0.001, 0.001), record("t/worse", 2, score)]
        (cell,) = (cell for cell in collected(lost).column("official") if cell.row == "worse")
        assert str(cell.state) == "failed: 1 of 3 runs: no finite test/rmse_last128"
        records = runs("agrees", *THREE, references={"linear": {"rmse": score, "rmse_last128": 0.5}})
        assert collected(records).references["linear"].keys() == {"official"}


def test_a_threshold_is_reached_by_a_score_on_it_and_intervals_are_cut_at_bounds_of_known_metrics() -> None:
    scored = {"better": "higher", "metric": "test/accuracy", "solved": 29}
    columns = [{**column, **scored} for column in content()["columns"]]
    run, row = record("t/a", 0, test={"accuracy": 0.29}), {"label": "a", "experiment": "t/a"}
    table = collected([run], rows=[row], columns=columns, claim=None, notes=[], seeds=[0])
    assert [cell.solved for cell in table.cells] == [1] * len(columns)

    def bounds(metric: str, better: str, unit: str) -> tuple[float, float]:
        return Column("k", f"test/{metric}", better, "clean", unit=unit, scale=100.0).bounds  # type: ignore[arg-type]

    assert bounds("accuracy_white_1_2", "higher", "%") == (0.0, 100.0)
    assert bounds("nrmse", "lower", "%") == bounds("rmse_last128", "lower", "") == (0.0, math.inf)
    assert bounds("log10_mse", "lower", "") == bounds("nll", "lower", "") == (-math.inf, math.inf)


def test_which_runs_count() -> None:
    cell = cell_of("clean", "agrees")
    assert str(cell.state) == "not published"  # not "other protocol": `scoring` says clean
    assert cell.summary.mean == pytest.approx(0.99, abs=1e-3)
    cell = cell_of("official", "better")
    assert cell.summary.n == 3  # without those of the reader
    assert [(y.seed, str(y.state)) for y in cell.yours] == [(41, "outside the mean"), (42, "other settings")]
    assert cell.yours[0].value == pytest.approx(0.4949)
    stray = [record("t/elsewhere", 41, 0.0049, identity="eeeeeeee")]
    refuses(ConfigError, "nobody-1 has no row for a run of t/elsewhere", collect, spec(), {}, [], yours=stray)
    assert str(collected(RUNS["agrees"], seeds=[0, 1]).cells[0].state) == "n = 2, no verdict"


def test_what_is_left_to_run_costs_what_records_and_measurements_say() -> None:
    identities = {f"t/{name}": name for name in ("begun", "measured", "unknown", "done")}
    rows = [{"label": name, "experiment": experiment} for experiment, name in identities.items()]
    cost = {"train_s": 3600.0, "ms_per_step": 1.0, "sgemm_gflops": 50.0}  # half as fast as the reference
    records = [record("t/begun", 0, identity="begun", cost=cost), *runs("done", 1.0, 1.0, identity="done")]
    records.append(record("t/done", 2, identity="done", status="diverged"))
    hours, blocked = {"measured": 2.0, "begun": 9.0}, {"t/measured": "no data"}
    table_spec = spec(rows=rows, claim=None, notes=[])
    rest = collect(table_spec, identities, records, hours=hours, blocked=blocked).rest
    assert rest == Rest(runs=2 + 3 + 3, hours=2 * 0.5 + 3 * 2.0, unknown=3)


@pytest.mark.parametrize(
    "records",
    [
        [*RUNS["agrees"], record("t/agrees", 9, 0.5), record("t/agrees", 0, 0.5, split=1)],
        [*RUNS["agrees"], record("t/agrees", 0, 0.5)],
        [record("t/agrees", 0, None, status="failed", reason="disk full"), *RUNS["agrees"]],
    ],
    ids=["other seeds and splits", "found twice", "finished later"],
)
def test_a_run_counts_once_where_it_is_wanted(records: list[dict[str, Any]]) -> None:
    cell = collected(records).cells[0]
    assert (cell.done, cell.wanted, cell.summary.n, str(cell.state)) == (3, 3, 3, "agrees")


def test_a_claim_needs_all_runs_comparable_ones_and_names_a_row_that_learned_nothing() -> None:
    table = synthetic()
    assert [part.verdict for part in table.claim] == ["holds", None, "contradicted"]
    assert table.claim[0].p is not None and table.claim[1].p is None
    assert table.claim_verdict == "contradicted"
    assert "no comparable runs" in claim_lines(table)[2]
    pair = {"text": "a claim", "order": [{"better": "agrees", "than": ["worse"], "column": "clean"}]}

    def parts(*records: dict[str, Any], seeds: int = 3) -> Any:
        return collected(list(records), claim=pair, seeds=list(range(seeds))).claim

    ours, theirs = runs("agrees", 0.01, 0.0101, 0.0102), runs("worse", *CHANCE, provenance=SEARCHED)
    (part,) = parts(*runs("agrees", 0.01, 0.0101, 0.0102, provenance=SEARCHED), *theirs)
    assert (part.verdict, part.chance) == ("holds", "constant")
    (part,) = parts(*ours, *runs("worse", *CHANCE), seeds=4)
    assert part.gain.n == 3 and part.verdict is None and part.chance is None


def test_a_claim_that_names_an_amount_is_tested_on_it() -> None:
    records = runs("agrees", 0.01, 0.0101, 0.0102) + runs("worse", 0.03, 0.0303, 0.0307)

    def lines(**amount: float) -> list[str]:
        pair = {"better": "agrees", "than": "worse", "column": "clean", **amount}
        return claim_lines(collected(records, claim={"text": "a claim", "amounts": [pair]}))

    first, second, *_ = lines(times=6)
    assert first == "Claim: a claim. Its ranking and amounts: contradicted."
    assert "at least 6 times better than worse (clean): contradicted (ratio 3.00 [2.99" in second
    assert "times better than worse (clean): holds" in lines(times=2)[1]
    assert "agrees better than worse by at least 3 1e-2 (clean): contradicted" in lines(points=3)[1]
    assert "by at least 1 1e-2 (clean): holds (gain +2.0" in lines(points=1)[1]
    for amounts, says in (
        ({"times": 2, "points": 1}, "needs one of times and points"),
        ({"times": 0}, "times must be positive"),
    ):
        refuses(ConfigError, says, lines, **amounts)


def test_claims_that_name_a_factor_or_a_difference_are_tested_on_it() -> None:
    named = re.compile(r"\bhal(f|ve)|\bthird\b|\d times\b|\d+ points|\d % below|from [\d.]+ to [\d.]+")
    without = []
    for path in sorted((CONF / "table").glob("*.yaml")):
        claim = read_yaml(path).get("claim")
        claim = {"text": claim} if isinstance(claim, str) else claim or {"text": ""}
        if named.search(claim["text"]) and not claim.get("amounts"):
            without.append(path.stem)
    assert not without, without


def test_searched_rows_are_named_together_and_repeats_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # In the unit of the column, and only for settings that the search found.
    spread = SearchSpread("rmse", "lower", (0.01, 0.02, 0.03))
    spreads = {("toy-agrees", metric, "lower"): spread for metric in ("rmse", "rmse_last128")}
    monkeypatch.setattr("physml.report.table.runs.spread_of_search", lambda *search: spreads.get(search))
    provenance = {"kind": "searched-here", "search": "results/search/toy-agrees.json"}
    table = collected(runs("agrees", *[0.02] * 3, provenance=provenance) + runs("worse", *[0.03] * 3))
    (note,) = search_lines(table, table.spec.columns[1:])
    assert "agrees ± 1.000 (best 1.000, worst 3.000, n = 3)" in note and "worse ±" not in note
    for long in (False, True):
        assert "agrees ± 1.000 (best" in on_terminal(document(table), 260, long=long)
    searched = ("g2/texas-gcn", "g2/texas-gat", "g2/texas-mlp", "g2/film-a", "g2/film-b", "x/y")
    provenance = dict.fromkeys(searched, "searched-here") | {"g2/film-c": "official-code"}
    provenance["x/z"] = "own"
    assert list(settled_here(provenance)) == ["g2/film-a", "g2/film-b", "g2/texas-*", "x/y", "x/z"]


def test_paired_seeds_and_splits() -> None:
    table_spec = spec(splits=[0, 1, 2], seeds=[6, 5, 7], spread="splits", paired=True)
    assert [run[1:] for run in table_spec.runs[:3]] == [(0, 6), (1, 5), (2, 7)]  # in the order given
    records = [record("t/agrees", k, 0.01 * (1 + j), split=j) for j in range(3) for k in (5, 6, 7)]
    table = collected(records, table_spec)
    cell = table.column("clean")[0]
    assert (cell.done, cell.wanted, cell.summary.n, cell.summary.mean) == (3, 3, 3, pytest.approx(2.0))
    assert "seeds 6, 5, 7; splits 0, 1, 2, each with one of the seeds" in "\n".join(fact_lines(table))
    assert table_spec.with_seeds((0,)).runs[:3] == [("t/agrees", j, 0) for j in range(3)]
    refuses(ConfigError, "got 2 seeds and 3 splits", spec, splits=[0, 1, 2], seeds=[0, 1], paired=True)


def test_splits_have_their_own_spread_and_references_are_of_the_splits_and_the_data_of_a_row() -> None:
    records = [
        record("t/agrees", k, 0.01 * (1 + j), split=j, references={"constant": {"rmse": 0.5 + 0.1 * j}})
        for j in range(3)
        for k in range(2)
    ]
    table = collected(records, splits=[0, 1, 2], seeds=[0, 1], spread="splits")
    cell, score = table.column("clean")[0], table.references["constant"]["clean"]
    assert (cell.done, cell.wanted, cell.summary.n, cell.summary.sd) == (6, 6, 3, pytest.approx(1.0))
    assert (score.n, score.mean, score.sd) == (3, pytest.approx(60.0), pytest.approx(10.0))
    name, over = cell.over
    assert (name, over.n, over.mean) == ("constant", 3, pytest.approx(58.0))
    # Features that are scaled otherwise give the same trivial prediction another score.
    records = []
    for name, score in {"agrees": 0.5, "worse": 0.7, "better": 0.5}.items():
        records += runs(name, 0.01, 0.01, references={"linear": {"rmse": score}})
    means = {name: scores["clean"].mean for name, scores in collected(records).references.items()}
    assert means == pytest.approx({"linear, data of agrees": 50.0, "linear, data of worse": 70.0})
    assert next(iter(means)) == "linear, data of agrees"


def test_uncommitted_code_and_choice_by_test_are_told_and_the_state_counts_each_run_once() -> None:
    uncommitted = "3 runs were made on uncommitted code: no commit holds what produced them"
    assert uncommitted in fact_lines(synthetic())
    by_test = collected(runs("agrees", *THREE, selected={"rule": "min test/rmse"}))
    assert any(line.startswith("Selection on TEST") for line in fact_lines(by_test))
    state = table_state(synthetic())
    n_runs = len({row.experiment for row in spec().rows if row.experiment}) * 3
    assert state.startswith(f"{sum(c.done for c in synthetic().column('official'))}/{n_runs} runs; ")
    outcomes = "4 reproduced, 3 cannot be told apart, 3 not reached here, 2 differs, 10 not run, 8 no verdict"
    assert state.endswith(f"; {outcomes}; 4 blocked here")


NUMBER = re.compile(r"\d+\.\d{6,}")


@pytest.mark.parametrize("name", ["table.md", "table.csv", "table.console.txt", "table.wide.txt"])
def test_rendering_is_golden(name: str) -> None:
    rendered, kept = renderings()[name], (GOLDEN / name).read_text(encoding="utf-8")
    if name.endswith(".csv"):  # twelve digits, of which the last depends on the version of scipy
        numbers = [[float(x) for x in NUMBER.findall(text)] for text in (rendered, kept)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-10)
        rendered, kept = NUMBER.sub("#", rendered), NUMBER.sub("#", kept)
    assert rendered == kept


def test_writing_twice_gives_the_same_bytes_and_a_console_line_fits_the_terminal(tmp_path: Path) -> None:
    first, again = ([path.read_bytes() for path in write(document(synthetic()), tmp_path)] for _ in range(2))
    assert first == again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nobody-1.csv", "nobody-1.md"]
    page = document(synthetic())
    for width, long in itertools.product((80, 100, 140, 240), (False, True)):
        assert max(map(len, on_terminal(page, width, long=long, rules=long).splitlines())) <= width


def claim(**keys: Any) -> dict[str, Any]:
    return {"claim": {"text": "x", **keys}}


def column(**keys: Any) -> dict[str, Any]:
    return {"columns": [{**content()["columns"][0], **keys}], "claim": None}


def row(**keys: Any) -> dict[str, Any]:
    return {"rows": [{"label": "a", **keys}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"titel": "x"}, r"there is no key titel. Did you mean title\?"),
        (row(cels={}), r"nobody-1.yaml.rows\[0\]: there is no key cels. Did you mean cells\?"),
        (
            row(cells={"official": {"published": {"vale": 1}}}),
            r"rows\[0\].cells.official.published: there is no key vale. Did you mean value\?",
        ),
        (row(cells={"offical": {}}), r"row a: there is no column offical. Did you mean official\?"),
        ({"rows": []}, "at least one row"),
        ({"rows": [{"label": "a"}, {"label": "a"}]}, "the row a appears twice"),
        ({"rows": [{}]}, r"rows\[0\]: the key label is missing"),
        *(({"seeds": seeds}, "seeds must be different whole numbers") for seeds in ([], [0, 0], [0, -1])),
        ({"seeds": 3}, "seeds must be a list; got 3"),
        ({"seeds": ["a"]}, r"seeds\[0\] must be a whole number; got 'a'"),
        ({"title": 3}, "title must be text; got 3"),
        ({"spread": "split"}, "spread must be one of 'runs', 'splits'; got 'split'. Did you mean splits"),
        (claim(column="official", order=[{"better": "agree", "than": ["worse"]}]), "there is no row agree"),
        (claim(order=[{"better": "agrees", "than": ["worse"]}]), "claim: there is no column ''"),
        (claim(column="clean", ties=[{"rows": ["agrees"], "margin": 0.1}]), "must be two labels"),
        (
            {"rows": [{"label": "LSTM 2"}, {"label": "LSTM-2"}], "claim": None},
            "differ in case or hyphens alone",
        ),
        (column(metric="rmse"), "metric must look like test/rmse"),
        (column(scale=0), "scale must be positive"),
        (column(decimals=-1), "decimals must not be negative; got -1"),
        (column(scale=1000), "the unit 1e-2 needs scale: 100; got 1000"),
        (column(metric="test/accuracy", better="higher", unit="%", scale=1), "the unit % needs scale: 100"),
        (column(scale=True), "scale must be a number; got True"),
        (column(better="smaller"), "better must be one of 'lower', 'higher'"),
        (column(margin={"value": 1.0}), "reason must say why so much"),
        (column(margin={"value": -1.0, "reason": "x"}), "margin: value must not be negative"),
    ],
)
def test_a_wrong_config_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    refuses(ConfigError, message, spec, **change)


def test_a_file_has_numbers_like_1e_2_and_no_key_twice(tmp_path: Path) -> None:
    path, text = tmp_path / "nobody-1.yaml", yaml.safe_dump(content() | {"seeds": [0]})
    path.write_text(text.replace("1e-2", "'1e-2'").replace("0.05", "5e-2"))
    assert tables.load_table(path).columns[0].margin.relative == 0.05
    path.write_text(text + "title: again\n")
    refuses(ConfigError, "the key title appears twice", tables.load_table, path)


@each("ident", lambda: tables.table_ids(kind="runs"))
def test_every_table_of_conf_loads_and_renders(ident: str) -> None:
    table_spec = tables.load_table(CONF / "table" / f"{ident}.yaml")
    assert all(map(studies.is_name, tables.experiments_of(table_spec)))
    table = collect(table_spec, ids(*tables.experiments_of(table_spec)), [])
    assert {str(cell.state) for cell in table.cells if cell.wanted} == {"missing"}
    page = document(table)
    assert all(form(page) for form in FORMS.values())
    assert page.first[0].lines and page.first[1].lines == (finding_text(table),) and page.first[-1].lines
    nothing = table_spec.source != "own" and not table.printed
    assert table_spec.finding is None or table_spec.finding.outcomes or nothing


def test_a_table_is_found_by_its_names_each_unique_and_an_unknown_one_gets_near_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [read_yaml(CONF / "table" / f"{ident}.yaml") for ident in tables.table_ids()]
    aliases = [alias for content in contents for alias in content.get("aliases", [])]
    assert len(aliases) == len(set(aliases)) and not set(aliases) & set(tables.table_ids())
    stems = {"lem-4": "lem-4", "4": "lem-4", "thesis-5.4": "lem-4", "5.4": "lem-4", "cornn-6": "cornn-6"}
    stems["table-cornn-6"] = "cornn-6"
    assert {name: tables.find_table(name, "lem").stem for name in stems} == stems
    assert [tables.find_table(name, "cornn").stem for name in ("6", "3.6")] == ["cornn-6", "unicornn-6"]
    for name, hint in (("lem-44", "lem-4"), ("unicorn-6", "unicornn-6"), ("5.44", "5.4")):
        refuses(ConfigError, f"there is no table '{name}'.*{hint}", tables.find_table, name)
    (tmp_path / "table").mkdir()
    for name in ("lem-10", "lem-4", "cornn-2"):
        (tmp_path / "table" / f"{name}.yaml").touch()
    monkeypatch.setattr(conf_files, "CONF", tmp_path)
    assert tables.table_ids() == ["cornn-2", "lem-4", "lem-10"]


def test_seeds_and_rows_from_the_command_line() -> None:
    for text, seeds in {"n3": (0, 1, 2), "0, 5,5": (0, 5), "1-3,7": (1, 2, 3, 7)}.items():
        assert typed.parse_seeds(text) == seeds
    assert typed.parse_row("label=Mine, dt=2,experiment=./mine.yaml").label == "Mine, dt=2"
    seeds = ("n0", "3-1", "1-", "", "a")
    refuses(ConfigError, "at most 100000 seeds; got '0-999999999'", typed.parse_seeds, "0-999999999")
    rows = ("mine.yaml", "label=Mine", "label=,experiment=a", "experiment=a,label=Mine", "label=Mine,texas=")
    for what, parse, wrongs in (("seeds", typed.parse_seeds, seeds), ("a row", typed.parse_row, rows)):
        for wrong in wrongs:
            refuses(ConfigError, f"{what} must look like.*got '{wrong}'", parse, wrong)


def test_an_extra_row_may_have_an_experiment_of_its_own_in_each_column() -> None:
    refuses(
        ConfigError, "names official twice", typed.parse_row, "label=A,official=./a.yaml,official=./b.yaml"
    )
    row = typed.parse_row("label=Mine, dt=2,official=./a.yaml")
    extended = typed.with_rows(spec(), [row])
    assert (row.label, extended.cell(row, extended.columns[0]).experiment) == ("Mine, dt=2", "./a.yaml")
    assert ("./a.yaml", 0, 2) in extended.runs
    with pytest.raises(ConfigError, match="row Mine: there is no column offical"):
        typed.with_rows(spec(), [typed.parse_row("label=Mine,offical=./a.yaml")])
    common = typed.with_rows(spec(), [typed.parse_row("label=Mine,experiment=./mine.yaml")])
    cell = collected([record("./mine.yaml", k, 0.01) for k in range(3)], common).column("official")[-1]
    assert (cell.row, cell.done, cell.extra) == ("Mine", 3, True)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, text in renderings().items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
        print(GOLDEN / name)


def test_data_that_were_not_compared_are_named_below_the_table() -> None:
    another = {"data": {"files": [{"name": "a.zip", "sha256": None, "verified": "by hand"}]}}
    lines = fact_lines(collected(runs("agrees", *THREE, **another)))
    assert "Data verified in another way (by hand): a.zip" in lines
    how = {"a.zip": "content", "b.ts": "first seen", "c.gz": "bytes"}
    data = {"kind": "content-verified", "files": [{"name": n, "verified": v} for n, v in how.items()]}
    data["notes"] = ["1 of 6 items of test stand in train or valid too"]
    table = collected(runs("agrees", 0.01, 0.01, data=data))
    assert table.facts.unproven == {"content": ("a.zip",), "first seen": ("b.ts",)}
    assert {
        "Data of t/agrees: 1 of 6 items of test stand in train or valid too",
        "Data without a published checksum, pinned when first seen: b.ts",
        "Data compared by their content, not by a checksum of their bytes: a.zip",
    } <= set(fact_lines(table))
    unverified = collected(runs("agrees", *THREE, data={"kind": "unverified data"}))
    assert str(unverified.cells[0].state) == "not comparable: unverified data"


def test_a_claim_of_rows_that_are_tuned_otherwise_gets_no_verdict() -> None:
    """The difference is shown; with `searched` rows that took over their settings are not judged either."""

    def found(kinds: dict[str, str], **changes: bool) -> tuple[str | None, str | None]:
        note, level = "Random search: 24 trials (24 finished).", {"agrees": 0.0, "worse": 0.01}
        records = [
            record(f"t/{name}", k, level[name] * (9 + k) + k / 1000, provenance={"kind": kind, "note": note})
            for name, kind in kinds.items()
            for k in range(3)
        ]
        claim = {"text": "a claim", "order": [{"better": "agrees", "than": ["worse"], "column": "clean"}]}
        table = collected(records, claim=claim | changes)
        (part,) = table.claim
        assert part.gain
        return part.verdict, table.claim_verdict

    alike = {"agrees": "searched-here", "worse": "searched-here"}
    assert found(alike) == ("holds", "holds")
    assert found(alike | {"worse": "own"}) == ("rows not tuned alike", "rows not tuned alike")
    assert found({"agrees": "own", "worse": "own"}) == ("holds", "holds")
    assert found({"agrees": "own", "worse": "own"}, searched=True)[0] == "rows not tuned alike"


def test_a_row_may_have_more_seeds_than_the_table() -> None:
    def seeded(*seeds: int) -> TableSpec:
        first, *others = content()["rows"]
        return spec(seeds=[0, 1], rows=[first | {"seeds": [*seeds]}, *others])

    table_spec = seeded(0, 1, 5)
    assert table_spec.seeds_of("t/agrees") == (0, 1, 5) and table_spec.seeds_of("t/worse") == (0, 1)
    assert [run for run in table_spec.runs if run[0] == "t/agrees"] == [("t/agrees", 0, k) for k in (0, 1, 5)]
    records = [record(f"t/{name}", k, 0.01 + k / 1000) for name in ("agrees", "worse") for k in (0, 1, 5)]
    table = collected(records, table_spec)
    counts = {cell.row: (cell.done, cell.wanted) for cell in table.column("clean")}
    assert (counts["agrees"], counts["worse"]) == ((3, 3), (2, 2))
    assert any(line.startswith("Runs: seeds 0, 1; agrees: 0, 1, 5") for line in fact_lines(table))
    assert table_spec.with_seeds((7,)).seeds_of("t/agrees") == (7,)
    refuses(ConfigError, "row agrees: seeds must be different whole numbers", seeded, 1, 1)


def test_memory_is_the_median_over_the_runs_that_have_them() -> None:
    costs = [{"train_s": 9.0, "ms_per_step": 5.0, "peak_memory_mib": mib} for mib in (300.0, 500.0, 700.0)]
    table = collected([record("t/agrees", k, 0.01 + k / 1000, cost=cost) for k, cost in enumerate(costs)])
    heads, *lines = values(table)
    memory = {cells[1:3]: cells[heads.index("peak_memory_mib")] for cells in lines}
    assert (memory["agrees", "clean"], memory["worse", "clean"]) == (500.0, None)
    grid = next(b for b in document(table).long if isinstance(b, Grid) and "clean" in b.heading)
    assert [cells[-1] for cells in grid.lines if cells[0] == "agrees"] == ["500 MiB"]
