"""What is marked as searched here is what the recorded search has found."""

import json
from typing import Any

import pytest

from physml.config import studies
from physml.execution.search import KEYS, load_search
from physml.paths import ROOT

FOUND = {f"{s}-{row}": found for s in studies.studies() for row, found in studies.found(s).items()}


def results(name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((ROOT / FOUND[name].search).read_text(encoding="utf-8"))
    return made


@pytest.mark.parametrize("name", FOUND)
def test_a_searched_row_has_the_best_point_of_its_search(name: str) -> None:
    search, trials = results(name)["search"], results(name)["trials"]
    assert search["experiment"] == name
    assert len(trials) == search["trials"]
    values = {t["trial"]: t["value"] for t in trials if t["status"] == "finished" and t["value"] is not None}
    best = (max if search["better"] == "higher" else min)(values, key=lambda trial: values[trial])
    assert (FOUND[name].trial, FOUND[name].set) == (best, trials[best]["point"])
    assert studies.experiment(name).settings["provenance"]["kind"] == "searched-here"


@pytest.mark.parametrize("name", FOUND)
def test_a_search_was_made_as_its_study_has_it(name: str) -> None:
    spec, made = load_search(name), results(name)["search"]
    assert {"experiment": name} | {key: getattr(spec, key) for key in KEYS} == made
    assert list(made["space"]) == list(spec.space), "points are drawn in this order"


def test_only_what_was_searched_is_marked_so() -> None:
    kinds = {name: studies.experiment(name).settings["provenance"].get("kind") for name in studies.names()}
    assert {name for name, kind in kinds.items() if kind == "searched-here"} == set(FOUND)
    assert len(FOUND) > 100
