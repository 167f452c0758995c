"""What is marked as searched here is what the recorded search has found."""

import functools
import json
from itertools import groupby
from typing import Any

from each import each

from physml.base.paths import ROOT
from physml.config import studies
from physml.records.searches import converted
from physml.search.spec import SearchSpec, load_search


@functools.cache
def searched() -> dict[str, studies.Found]:
    return {f"{s}-{row}": best for s in studies.studies() for row, best in studies.found(s).items()}


@functools.cache
def results(name: str) -> dict[str, Any]:
    return converted(json.loads((ROOT / searched()[name].search).read_text(encoding="utf-8")))


@each("name", searched)
def test_a_searched_row_has_the_best_point_of_its_search(name: str) -> None:
    search, trials = results(name)["search"], results(name)["trials"]
    assert search["experiment"] == name
    assert len(trials) == sum(drawn["trials"] for drawn in results(name)["rounds"])
    values = {t["trial"]: t["value"] for t in trials if t["status"] == "finished" and t["value"] is not None}
    best = (max if search["better"] == "higher" else min)(values, key=lambda trial: values[trial])
    chosen = searched()[name]
    assert (chosen.trial, chosen.set) == (best, search["set"] | trials[best]["point"])
    facts = len(trials), results(name)["scored"], len(results(name)["best"]["values"])
    assert (chosen.drawn, chosen.trials, chosen.seeds) == facts
    assert studies.experiment(name).settings["provenance"]["kind"] == "searched-here"


@functools.cache
def spec_of(name: str) -> SearchSpec:
    return load_search(name)


def before_stages(name: str) -> bool:
    """Searched in one stage, where the study has several now: to be searched again."""
    return len(results(name)["stages"]) == 1 < len(spec_of(name).stages)


@each("name", searched)
def test_a_search_was_made_as_its_study_has_it(name: str) -> None:
    spec, search = spec_of(name), results(name)["search"]
    if not before_stages(name):
        assert spec.described == search
        assert list(search["space"]) == list(spec.space), "points are drawn in this order"


def design(name: str) -> str:
    return results(name)["design"]


@each("name", lambda: [name for name in searched() if spec_of(name).equal])
def test_searches_of_a_group_had_equal_trials(name: str) -> None:
    """Once all of them have been searched in stages: those of today's design, and those of the one before."""
    group = [member for member in spec_of(name).equal if member in searched()]
    if not any(map(before_stages, group)):
        designs = groupby(sorted(group, key=design), key=design)
        assert all(len({len(results(member)["trials"]) for member in members}) == 1 for _, members in designs)


def test_only_what_was_searched_is_marked_so() -> None:
    kinds = {name: studies.experiment(name).settings["provenance"].get("kind") for name in studies.names()}
    assert {name for name, kind in kinds.items() if kind == "searched-here"} == set(searched())
    assert len(searched()) > 100
