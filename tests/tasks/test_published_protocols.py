"""Arguments in conf/task that are those of a paper, of its code, or of a page of the documentation."""

from typing import Any

import pytest

from physml.base.paths import CONF
from physml.config.load import read_yaml

OFFICIAL = {"n_points": 1001, "t_end": 400.0, "data_seed": 1234, "protocol": "official"}
DOCUMENTED = {"n_points": 501, "t_end": 100.0, "data_seed": 1234, "protocol": "clean"}
PAPER = {
    **{"n_points": 2000, "spacing": 0.01, "substeps": 1, "ahead": 25, "data_seed": 1234},
    "protocol": "paper",
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "adding.Adding": {"length": 500, "n_eval": 1000, "epoch_steps": 100, "protocol": "clean"},
    "fitzhugh_nagumo.FitzHughNagumo": {"n_train": 128, "n_valid": 128, "n_test": 1024, **OFFICIAL},
    "google12.Google12": {"protocol": "official", "data_seed": None},
    "hodgkin_huxley.HodgkinHuxley": {"n_train": 128, "n_valid": 64, "n_test": 128, **DOCUMENTED},
    "lorenz96.Lorenz96": {"forcing": 8.0, "n_train": 128, "n_valid": 128, "n_test": 128, **PAPER},
}


@pytest.mark.parametrize("target", ARGUMENTS)
def test_a_config_has_the_published_arguments(target: str) -> None:
    module, _, _ = target.partition(".")
    config = read_yaml(CONF / "task" / f"{module}.yaml")
    ours = {key: value for key, value in config.items() if key not in ("smoke", "datasets")}
    assert ours == {"_target_": f"tasks.{target}", **ARGUMENTS[target]}
