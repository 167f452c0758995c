"""Arguments of tasks: those of a paper, of its code or of a page; and those that no task can be made with.

What is wrong whatever the task: the contract of all tasks.
"""

import importlib
from typing import Any

import pytest

from physml.base.errors import InputError
from physml.base.paths import CONF
from physml.config.load import read_yaml

NOT_ARGUMENTS = ("_target_", "datasets", "defaults", "smoke")


def configured(name: str) -> tuple[type, dict[str, Any]]:
    config = read_yaml(CONF / "task" / f"{name}.yaml")
    module, _, task = config["_target_"].rpartition(".")
    arguments = {key: value for key, value in config.items() if key not in NOT_ARGUMENTS}
    return getattr(importlib.import_module(module), task), arguments


OFFICIAL = {"n_points": 1001, "t_end": 400.0, "data_seed": 1234, "protocol": "official"}
DOCUMENTED = {"n_points": 501, "t_end": 100.0, "data_seed": 1234, "protocol": "clean"}
PAPER = {"n_points": 2000, "spacing": 0.01, "substeps": 1, "ahead": 25, "data_seed": 1234, "forcing": 8.0}
PUBLISHED: dict[str, dict[str, Any]] = {
    "adding.Adding": {"length": 500, "n_eval": 1000, "epoch_steps": 100, "protocol": "clean"},
    "fitzhugh_nagumo.FitzHughNagumo": {"n_train": 128, "n_valid": 128, "n_test": 1024, **OFFICIAL},
    "google12.Google12": {"protocol": "official", "data_seed": None},
    "hodgkin_huxley.HodgkinHuxley": {"n_train": 128, "n_valid": 64, "n_test": 128, **DOCUMENTED},
    "lorenz96.Lorenz96": {"n_train": 128, "n_valid": 128, "n_test": 128, **PAPER, "protocol": "paper"},
}


@pytest.mark.parametrize("target", PUBLISHED)
def test_a_config_has_the_published_arguments(target: str) -> None:
    name, _, cls = target.partition(".")
    task, arguments = configured(name)
    assert (task.__module__, task.__name__, arguments) == (f"tasks.{name}", cls, PUBLISHED[target])


WRONG: list[tuple[str, dict[str, Any], str]] = [  # a config, what is changed in it, what is said
    ("adding", {"length": 1}, "length must be at least 2, one step for each flag; got 1"),
    ("cora", {"graph": "photo", "split_of": "public"}, r"public split of cora, citeseer, pubmed .*=photo"),
    ("distance", {"nodes": [3, 8]}, "nodes"),
    ("distance", {"nodes": [9, 8]}, "nodes"),
    ("eigenworms", {"split_of": "stratified"}, r"official is divided as .*lem or nrde; got stratified"),
    ("eigenworms", {"protocol": "clean"}, r"protocol=clean is divided as split_of=stratified; got lem"),
    ("fitzhugh_nagumo", {"n_points": 11}, "n_points must be at least 12"),
    ("fitzhugh_nagumo", {"data_seed": -1}, r"data_seed must lie in \[0, 4294967295\]; got -1"),
    ("google12", {"data_seed": 1}, r"data_seed must be null for protocol official.*got 1"),
    ("google12", {"protocol": "clean", "data_seed": None}, "a number for clean; got None"),
    *((name, {"data_seed": 2**32}, "data_seed must lie in") for name in ("har2", "lorenz96", "diameter")),
    *((f"pendulum{s}", {"data_seed": -1}, "data_seed must lie in") for s in ("", "_windows")),
    ("google12", {"protocol": "clean", "data_seed": -1}, "data_seed must lie in"),
    ("har2", {"protocol": "clean", "held_out": "windows"}, "windows overlap"),
    ("har2", {"protocol": "paper", "tested": "windows"}, "use held_out=windows"),
    ("heart_rate_clean", {"divided": "windows"}, "divided=windows makes protocol=paper; got clean"),
    ("hodgkin_huxley", {"n_points": 50}, "n_points"),
    ("hodgkin_huxley", {"data_seed": -1}, "data_seed must lie in"),
    ("imdb", {"width": 50}, "vectors=glove needs width=100; got 50"),
    ("lorenz96", {"n_points": 25}, "n_points must be above ahead = 25; got 25"),
    ("ncifar", {"protocol": "official", "noise": "fresh_normal"}, "protocol=official has noise fixed_normal"),
    ("ncifar", {"protocol": "paper", "noise": "fixed_normal"}, "protocol=paper has noise fresh_uniform"),
    ("ncifar", {"protocol": "clean", "noise": "fixed_normal"}, "noise fresh_normal or fresh_uniform"),
    ("ncifar", {"length": 31}, "length must be at least 32"),
    ("parity", {"lengths": [5, 3]}, r"lengths must be .* got \[5, 3\]"),
    ("parity", {"test_lengths": [3]}, r"test_lengths must be .* got \[3\]"),
    ("pendulum", {"amplitude": 3.2}, "amplitude must lie below pi"),
    ("pendulum", {"n_points": 1}, "n_points must be at least 2"),
    ("pendulum_windows", {"n_valid": 16}, "n_valid must hold a window of 17 points; got 16"),
    ("pendulum_windows", {"n_points": 816}, "what n_points leaves must hold a window of 17 points; got 16"),
    ("pendulum_windows", {"n_features": 1}, "n_features must be at least 2"),
    ("recall", {"n_pairs": 3, "n_keys": 2}, r"at least n_pairs = 3.* got 2"),
    ("recall", {"n_values": 1}, r"at least 2.* got 1"),
    ("smnist", {"protocol": "clean", "valid": None}, "holds images out"),
    ("smnist", {"protocol": "paper", "scale": "bytes"}, "pixels in"),
    ("smnist", {"stride": 28, "per_step": 5}, r"must divide the 28 pixels that stride=28 leaves; got 5"),
    ("texas", {"protocol": "clean"}, "clean is there for squirrel and chameleon alone; got graph=texas"),
]


@pytest.mark.parametrize(("name", "changes", "says"), WRONG)
def test_wrong_arguments_are_refused(name: str, changes: dict[str, Any], says: str) -> None:
    task, arguments = configured(name)
    with pytest.raises(InputError, match=says):
        task(**arguments | changes)
