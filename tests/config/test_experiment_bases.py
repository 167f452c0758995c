"""An experiment that starts from another one and changes a thing or two: conf/experiment, `defaults`."""

from pathlib import Path

import pytest

from physml.cli import inventory
from physml.config import compose
from physml.config.compose import HEADER

ROOT = "defaults:\n  - override /model: lem\n  - override /task: adding\nmodel: {d_hidden: 7}\n"
ONE_CHANGE = "defaults:\n  - some/base\n  - _self_\nmodel: {dt: 0.25}\n"
OTHER_TASK = "defaults:\n  - some/base\n  - _self_\n  - override /task: fitzhugh_nagumo\n"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """conf/ with three experiments alone: one, the same with another dt, the same on another task."""
    for path in compose.CONF.iterdir():
        if path.name != "experiment":
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "experiment" / "some").mkdir(parents=True)
    for name, text in {"base": ROOT, "changed": ONE_CHANGE, "moved": OTHER_TASK}.items():
        (tmp_path / "experiment" / "some" / f"{name}.yaml").write_text(f"{HEADER}\n{text}")
    for module in (compose, inventory):
        monkeypatch.setattr(module, "CONF", tmp_path)
    return tmp_path


def test_it_has_the_settings_of_the_other_but_its_own_name(conf: Path) -> None:
    base, changed = (compose.compose([f"experiment=some/{name}"]) for name in ("base", "changed"))
    assert base.config["experiment"] == base.choices["experiment"] == "some/base"
    assert changed.config["experiment"] == changed.choices["experiment"] == "some/changed"
    assert changed.config["model"] == {**base.config["model"], "dt": 0.25} != base.config["model"]
    assert changed.config["task"] == base.config["task"]


def test_it_may_choose_another_task(conf: Path) -> None:
    moved = compose.compose(["experiment=some/moved"])
    assert moved.choices["task"] == "fitzhugh_nagumo" and moved.config["model"]["d_hidden"] == 7


def test_what_is_typed_counts_most(conf: Path) -> None:
    assert compose.compose(["experiment=some/changed", "model.dt=0.5"]).config["model"]["dt"] == 0.5


def test_the_list_knows_model_and_task(conf: Path) -> None:
    about = {entry.name: entry.about for entry in inventory.experiments()}
    assert about["some/changed"] == about["some/base"] == "lem on adding"
    assert about["some/moved"] == "lem on fitzhugh_nagumo"
