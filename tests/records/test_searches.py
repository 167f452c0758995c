"""Files of searches: those of earlier versions are read in the present form, damaged ones are one line."""

import functools
import json
import math
import operator
import re
from pathlib import Path
from typing import Any

import pytest

from physml.base.errors import RecordError
from physml.records import record
from physml.records import searches as results
from physml.site.search_page import search_context

TINY = {"metric": "rmse", "better": "lower", "trials": 2, "seed": 1000, "trial": {"profile": "smoke"}}
TINY |= {"space": {"optim.lr": {"low": 1.0e-3, "high": 5.0e-2, "log": True}}}


ROW = {"trial": 0, "point": {"a": 1}, "value": "0.5", "status": "finished"}
LATER = {"search": TINY, "rounds": [], "best": None, "trials": [ROW | {"value": 0.5}]}  # without means


@pytest.mark.parametrize(
    "wrong",
    [
        "[" * 100_000,
        "\xff",
        '{"search": 1}',
        json.dumps({"search": TINY, "trials": [ROW]}),
        json.dumps(LATER),
    ],
)
def test_damaged_results_are_one_line(wrong, tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    path = results.results_path("s")
    path.parent.mkdir()
    path.write_text(wrong, encoding="latin-1")
    with pytest.raises(RecordError, match=r"s\.json is not the file of a search"):
        results.state_text("s")


def _of_repeat() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path("results/search/g2-texas-g2_sage-repeat3.json").read_text())
    return content


def _put(content: dict[str, Any], keys: tuple[Any, ...], value: Any) -> dict[str, Any]:
    *above, last = keys
    functools.reduce(operator.getitem, above, content)[last] = value
    return content


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("final", "mean"), 0.99, "its content has the hash"),
        (("final", "mean"), "0.9", "its final.mean is '0.9', not a number"),
        (("final", "values"), [None], "its final.values.0 is None, not a number"),
        (("final", "mean"), float("nan"), "NaN, which is no number of JSON"),
        (("search", "better"), "best", "not one of lower, higher"),
        (("rounds",), [], "60 trials of 0"),
        (("stages",), [], "it has 0 stages"),
        (("best", "trial"), 999, "its best trial is none of its trials"),
        (("best", "trial"), 60, "its best trial is none of its trials"),  # of 60, from 0 on
        (("best", "trial"), -1, "its best trial is none of its trials"),
        (("rounds", 0, "best"), 60, "its best trial is none of its trials"),
        (("trials", 0, "trial"), 7, "its trials are not numbered in order"),
        (("trials", 0, "point", "optim.lr"), "fast", "trial 0 has 'fast' for optim.lr, a range"),
        (("trials", 0, "point", "optim.lr"), True, "trial 0 has True for optim.lr, a range"),
        (("rounds", 0, "space", "optim.lr", "low"), "0", "its rounds.0.space.optim.lr.low is '0'"),
    ],
)
def test_changed_results_are_one_line_that_says_what_is_wrong(keys, value, words, tmp_path, monkeypatch):
    """A table prints `search ± sd` from these files, and `--picture` draws them."""
    content = _put(_of_repeat(), keys, value)
    if "hash" not in words:  # as who knows the rule would write it
        content |= {"check": record.check_of(content)}
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    path = results.results_path("s")
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=rf"s\.json is not the file of a search: .*{re.escape(words)}"):
        results.recorded("s")


def test_all_runs_and_searches_that_are_committed_have_the_hash_of_their_content():
    """Where one is missing, a changed digit would not be noticed."""
    packs = sorted(Path("results/runs").rglob("runs.jsonl"))
    lines = [line for path in packs for line in path.read_text(encoding="utf-8").splitlines()]
    runs = [run for line in lines if "setting" in (run := json.loads(line))]
    files = [json.loads(path.read_text()) for path in results.results_path("x").parent.glob("*.json")]
    assert len(runs) > 9000 and len(files) > 500
    assert all(content.get("check") == record.check_of(content) for content in (*runs, *files))


def test_results_of_the_checkout_count_in_any_results_folder(tmp_path, monkeypatch):
    """As records do: a table keeps `search ± sd`, and a worker makes no search again."""
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    assert results.is_done("sequence-recall-lem")
    assert results.state_text("sequence-recall-lem").startswith("done")
    assert results.spread_of_search("sequence-ecg5000-lem").sd > 0
    assert results.results_path("sequence-recall-lem").parent == tmp_path / "search"


def test_a_search_of_an_earlier_form_is_called_so_and_shows_the_ranges_that_it_had(tmp_path, monkeypatch):
    """Its command would make another search; the best value may lie in what was added to a range."""
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    row = {"point": {"optim.lr": 0.2}, "value": 0.5, "status": "finished"}
    content = results.converted({"search": TINY, "trials": [{"trial": i} | row for i in range(3)]})
    content["rounds"][-1]["space"] = {"optim.lr": {"low": 1.0e-3, "high": 0.3, "log": True}}
    path = results.results_path("s")
    path.parent.mkdir()
    for design, words in (("random", "done in an earlier form, 3 trials, "), ("sobol", "done, trial 0")):
        path.write_text(json.dumps(content | {"design": design}))
        assert results.state_text("s").startswith(words)
        page = search_context("s", "lem/fitzhugh_nagumo-lstm", content | {"design": design})
        facts = dict(page["facts"])
        assert page["earlier"] is (design == "random")
        assert (facts["trials"], facts["range of optim.lr"]) == ("3", "0.001 to 0.3, log")


def test_a_search_that_was_stopped_is_not_done_and_a_trial_waits_for_its_stage(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    rows = [{"trial": i, "point": {"optim.lr": 0.2}, "value": 0.5, "status": "finished"} for i in range(2)]
    content = results.converted({"search": TINY | {"trials": 60}, "trials": rows})
    path = results.unfinished_path("s")
    path.parent.mkdir()
    path.write_text(json.dumps(content | {"design": "sobol"}))
    assert results.state_text("s").startswith("2 of 60 trials, trial 0: ")
    trials = [
        {"trial": 0, "means": [0.1, None]},
        {"trial": 1, "means": [0.2, 0.5]},
        {"trial": 2, "means": [None]},
    ]
    content = {"best": None, "search": TINY, "trials": trials}
    assert results.best_trial(content) == trials[1] | {"value": 0.5}
    assert results.best_trial(content | {"best": trials[0]}) == trials[0], "of one that has ended its winner"
    assert results.best_trial(content | {"trials": trials[:1]}) == trials[0] | {"value": 0.1}


def test_trials_under_way_are_not_done_and_the_highest_value_is_best_where_higher_is_better(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    ends = ["finished", "missing", "waiting", "running", "diverged", "finished"]
    values = [0.5, None, None, None, None, 0.75]
    rows = [
        {"trial": i, "point": {"optim.lr": 0.2}, "value": value, "status": end, "stage": 1, "means": [value]}
        for i, (end, value) in enumerate(zip(ends, values, strict=True))
    ]
    higher = TINY | {"metric": "accuracy", "better": "higher"}  # of 2 trials: the others are extra ones
    content = results.converted({"search": higher, "trials": rows})
    assert content["best"]["trial"] == 5 and content["scored"] == 2
    rows[4]["value"] = 0.9  # before it diverged
    assert results.converted({"search": higher, "trials": rows})["best"]["trial"] == 5
    assert results.best_trial(content | {"best": None})["trial"] == 5
    path = results.results_path("s")
    path.parent.mkdir()
    path.write_text(json.dumps(content | {"design": "sobol"}))
    assert results.state_text("s") == "3 of 6 trials, trial 5: valid/accuracy 0.75"
    assert results.is_done("s")
    results.unfinished_path("s").write_text(json.dumps(content))
    assert not results.is_done("s"), "it has been begun anew"


def test_a_spread_has_no_ratio_across_zero_and_another_unit() -> None:
    spread = results.SearchSpread("r2", "higher", (-0.5, 0.25))
    assert spread.scaled(100) == results.SearchSpread("r2", "higher", (-50.0, 25.0))
    assert [math.isnan(s.ratio) for s in (spread, results.SearchSpread("r2", "higher", (-0.5, -0.25)))] == [
        True
    ] * 2


def test_results_of_earlier_versions_have_the_present_form():
    """Without stages, and in stages; what is no file of a search is refused."""
    rows = [
        {"trial": i, "point": {"a": i}, "value": value, "identity": "x"}
        | {"status": "finished" if value else "diverged"}
        for i, value in enumerate([0.5, 0.25, None])
    ]
    plain = {"search": TINY | {"experiment": "lem/fitzhugh_nagumo-lstm"}, "trials": rows}
    new = results.converted(plain)
    assert new["best"] == {"trial": 1, "point": {"a": 1}, "value": 0.25, "sd": None, "values": [0.25]}
    assert (new["design"], new["scored"], new["sampler_seed"], new["final"]) == ("random", 2, 1000, None)
    assert new["rounds"] == [{"trials": 3, "space": TINY["space"], "best": 1, "bounds": []}]
    assert [row["means"] for row in new["trials"]] == [[0.5], [0.25], [None]]
    assert new["search"]["stages"] == [{"keep": None, "set": {}, "seeds": [], "splits": [0]}]
    assert results.converted(new) == new
    for wrong in ({}, {"search": {}}, plain | {"trials": []}, plain | {"search": {"trials": 3}}, []):
        with pytest.raises((KeyError, TypeError, IndexError)):
            results.converted(wrong)
