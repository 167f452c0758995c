"""Compositions are kept on disk, and never outlive the files they were made of."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from physml.config import compose as composing
from physml.config.compose_cache import STATES, kept, steady
from physml.paths import CONF

WANTED = ["model=lem", "task=adding"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "composed"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The overrides of each composition that Hydra was asked for."""
    seen: list[list[str]] = []
    plain = composing._hydra

    def counted(overrides: list[str]) -> Any:
        seen.append(overrides)
        return plain(overrides)

    monkeypatch.setattr(composing, "_hydra", counted)
    return seen


def test_the_second_time_hydra_is_not_asked_and_the_config_is_the_same(calls: list[list[str]]) -> None:
    first, second = composing.compose(WANTED), composing.compose(WANTED)
    assert first == second and len(calls) == 1
    assert composing.compose([*WANTED, "seed=1"]).config["seed"] == 1
    assert len(calls) == 2


def test_a_changed_file_of_conf_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    copy = tmp_path / "conf"
    shutil.copytree(CONF, copy)
    monkeypatch.setattr(composing, "CONF", copy)
    assert composing.compose(WANTED).config["task"]["length"] != 77
    file = copy / "task" / "adding.yaml"
    lines = [
        "length: 77\n" if line.startswith("length:") else line for line in file.read_text().splitlines(True)
    ]
    file.write_text("".join(lines))
    assert composing.compose(WANTED).config["task"]["length"] == 77
    assert len(calls) == 2


def test_a_damaged_file_or_an_unwritable_cache_is_no_matter(cache: Path, calls: list[list[str]]) -> None:
    good = composing.compose(WANTED)
    (file,) = cache.rglob("*.json")
    file.write_text(file.read_text()[:100])
    assert composing.compose(WANTED) == good and len(calls) == 2
    json.loads(file.read_text())
    shutil.rmtree(cache)
    cache.write_text("a file stands where the folder should be")
    assert composing.compose(WANTED) == good and len(calls) == 3


def test_a_plan_looks_at_conf_once_and_the_next_one_anew(tmp_path: Path, cache: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    made: list[int] = []

    def make(_: list[str]) -> Any:
        made.append(len(made))
        return {"i": made[-1]}, {}

    with steady():
        kept([], conf, make)
        (conf / "run.yaml").write_text("x")
        with steady():
            assert kept([], conf, make)[0] == {"i": 0}
        assert kept([], conf, make)[0] == {"i": 0}
    assert kept([], conf, make)[0] == {"i": 1}


@pytest.mark.parametrize("group", composing.GROUPS)
def test_a_name_is_told_as_by_the_list(group: str) -> None:
    known = composing.names(group)
    assert all(composing.is_name(group, name) for name in known[:20])
    odd = [
        "",
        ".",
        "..",
        "/",
        "a//b",
        f"../{group}/{known[0]}",
        f"./{known[0]}",
        f"/{known[0]}",
        "no_such",
        "x" * 999,
    ]
    assert not any(composing.is_name(group, name) for name in odd)


def test_errors_are_not_kept(cache: Path) -> None:
    for _ in range(2):
        with pytest.raises(Exception, match=r"there is no config key model\.gama"):
            composing.compose([*WANTED, "model.gama=1"])
    assert not list(cache.rglob("*.json"))


def test_what_json_would_change_is_composed_anew(tmp_path: Path, cache: Path) -> None:
    made: list[int] = []

    def make(_: list[str]) -> Any:
        made.append(1)
        return {"dt": {1: 0.5}}, {}

    assert kept([], tmp_path, make) == kept([], tmp_path, make) == ({"dt": {1: 0.5}}, {})
    assert len(made) == 2


def test_old_states_are_forgotten(tmp_path: Path, cache: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    for i in range(STATES + 3):
        (conf / "run.yaml").write_text("x" * (i + 1))
        kept([], conf, lambda _: ({"i": 1}, {}))
        newest = max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (i, i))  # in order, whatever the clock's grain
    assert len(list(cache.iterdir())) == STATES
