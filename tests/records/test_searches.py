"""Files of searches: those of earlier versions are read in the present form, damaged ones are one line."""

import json

import pytest

from physml.base.errors import RecordError
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
    assert results.best_trial(content | {"trials": trials[:1]}) == trials[0] | {"value": 0.1}


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
