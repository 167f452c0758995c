"""What is marked as searched here is what the recorded search has found."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from physml.paths import CONF, ROOT

WRITTEN = {
    str(path.relative_to(CONF / "experiment").with_suffix("")): content
    for path in sorted((CONF / "experiment").rglob("*.yaml"))
    if (content := yaml.safe_load(path.read_text(encoding="utf-8"))).get("provenance", {}).get("kind")
    == "searched-here"
}


def searched(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / content["provenance"]["search"]).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", WRITTEN)
def test_an_experiment_has_the_best_point_of_its_search(name: str) -> None:
    content = WRITTEN[name]
    found = searched(content)
    search, trials = found["search"], found["trials"]
    assert search["experiment"] == name
    assert len(trials) == search["trials"]
    values = {t["trial"]: t["value"] for t in trials if t["status"] == "finished" and t["value"] is not None}
    best = (max if search["better"] == "higher" else min)(values, key=lambda trial: values[trial])
    config = OmegaConf.create(content)
    for key, value in trials[best]["point"].items():
        assert OmegaConf.select(config, key) == value, key


@pytest.mark.parametrize("name", WRITTEN)
def test_a_search_was_made_as_its_file_says(name: str) -> None:
    file = CONF / "search" / Path(WRITTEN[name]["provenance"]["search"]).with_suffix(".yaml").name
    said = yaml.safe_load(file.read_text(encoding="utf-8"))
    made = searched(WRITTEN[name])["search"]
    assert {key: made[key] for key in said} == said


def test_there_are_such_experiments() -> None:
    assert len(WRITTEN) > 100
