"""`physml list tasks`: sizes and trivial references, measured on data that are at hand, never made up."""

import json
from pathlib import Path

import pytest
from each import each

from physml.base.errors import DataError
from physml.base.paths import ROOT
from physml.cli import main
from physml.data.readers.har import UCI_HAR
from physml.listing import inventory
from physml.listing import tasks as task_facts


@pytest.fixture(autouse=True)
def nothing_measured(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_DATA", str(roots / "data"))
    monkeypatch.setattr("physml.listing.tasks.results_roots", lambda: [roots / "results"])
    (roots / "data").mkdir()


def below(task: str) -> list[str]:
    return next(list(entry.below) for entry in inventory.tasks() if entry.name == task)


def test_sizes_and_references_are_those_of_the_data(roots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    UCI_HAR.fixture(roots / "data")
    assert main.main(["list", "tasks", "--measure", "har2", "--verify", "off"]) == 0
    facts = json.loads((roots / "results/tasks/har2.json").read_text())
    assert [entry["protocol"] for entry in facts["measured"]] == list(task_facts.settings("har2"))
    first = facts["measured"][0]
    accuracy = first["references"]["majority class"]["accuracy"]
    lines = below("har2")
    assert f"train {first['sizes']['train']}, " in lines[1] and lines[1].endswith("[unverified data]")
    assert lines[2].startswith(f"  majority class: accuracy {accuracy:.4g}")
    assert lines[2].strip() in capsys.readouterr().out


def test_what_was_not_measured_is_not_said_and_large_scores_are_whole_numbers(roots: Path) -> None:
    assert below("lorenz96") == ["protocols: paper", "not measured yet: physml list tasks --measure lorenz96"]
    data, protocols = below("har2")
    assert data.startswith("data: uci_har (absent: UCI HAR Dataset.zip missing, get it with")
    assert protocols.startswith("protocols: paper")
    entry = {"protocol": "paper", "sizes": {"test": 1}, "d_in": 1, "d_out": 1, "data": {}}
    entry["references"] = {"uniform": {"perplexity": 1e4, "bpc": 5.64386}}
    assert list(task_facts._lines_of(entry))[1] == "  uniform: perplexity 10,000, bpc 5.644"


def test_absent_data_are_told_and_nothing_is_kept(roots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"har2: data absent: UCI HAR Dataset\.zip missing"):
        task_facts.measure("har2", "bytes")
    assert main.main(["list", "tasks", "--measure", "har2"]) == 2
    assert "not measured" in capsys.readouterr().err
    assert not (roots / "results").exists()


def test_what_was_measured_before_a_change_is_not_shown(roots: Path) -> None:
    file = task_facts.file_of(roots / "results", "lorenz96")
    file.parent.mkdir(parents=True)
    config = task_facts._plain("lorenz96") | {"forcing": 7.0}
    file.write_text(json.dumps({"config": config, "measured": []}))
    assert below("lorenz96")[-1].startswith("measured before it was changed")
    for damaged in ([1], {"config": config, "measured": [{"version": 1}]}, {"config": config, "measured": 1}):
        file.write_text(json.dumps(damaged))
        assert below("lorenz96")[-1].startswith("not measured yet")


@each("path", sorted((ROOT / "results/tasks").glob("*.json")))
def test_what_is_kept_fits_the_tasks_of_today(path: Path) -> None:
    facts = json.loads(path.read_text())
    assert facts["config"] == task_facts._plain(path.stem), f"physml list tasks --measure {path.stem}"
    assert {entry["protocol"] for entry in facts["measured"]} <= set(task_facts.settings(path.stem))
