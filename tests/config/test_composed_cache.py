"""A composed config is taken from the cache only where composing would give the same."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from physml.base.errors import ConfigError
from physml.base.files import noting
from physml.base.paths import CONF, cache_root
from physml.config import composed_cache
from physml.config.compose import Composed, compose
from physml.config.composed_cache import ComposedCache
from physml.config.identity import identity

EXPERIMENTS = ["lem/fitzhugh_nagumo-lem", "g2/texas-g2_gcn", "cornn/psmnist-cornn128", "lem/ptb_char-lem"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("physml.base.files.SETTLED_S", -3600.0)


def kept(experiment: str = EXPERIMENTS[0], *overrides: str) -> tuple[Composed, str]:
    with closing(ComposedCache()) as made:
        return made.compose(experiment, list(overrides))


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each config that is composed."""
    made: list[int] = []

    def composing(overrides: list[str]) -> Composed:
        made.append(1)
        return compose(overrides)

    monkeypatch.setattr(composed_cache, "compose", composing)
    return made


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_kept_config_is_the_composed_one(experiment: str, count: list[int]) -> None:
    overrides = ["seed=0", "profile=smoke"]
    expected = compose([f"experiment={experiment}", *overrides])
    with noting() as first:
        assert kept(experiment, *overrides) == (expected, identity(expected.config))
    with noting() as second:
        assert kept(experiment, *overrides) == (expected, identity(expected.config))
    assert len(count) == 1
    assert first <= second
    assert kept(experiment)[0] != expected and len(count) == 2


@pytest.mark.parametrize("other", ["model/lem", "task/fitzhugh_nagumo", "run", "study/lem/fitzhugh_nagumo"])
def test_a_config_or_source_that_it_is_made_of_counts_and_others_do_not(
    other: str, count: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept()
    changed = CONF / f"{other}.yaml"
    original = composed_cache._sha256

    def edited(path: Path) -> str:
        return "other" if path == changed else original(path)

    monkeypatch.setattr(composed_cache, "_sha256", edited)
    kept()
    assert len(count) == 2
    changed = CONF / "model" / "cornn.yaml"
    kept()
    kept()
    assert len(count) == 3  # once for the file as it was
    changed = CONF.parent / "physml" / "models" / "lem.py"
    kept()
    assert len(count) == 4


def test_a_file_that_was_looked_for_counts_once_it_appears(tmp_path: Path) -> None:
    with noting() as sources:
        kept("lem/ptb_char-lem")
    assert CONF / "study" / "lem" / "ptb_char.searched.yaml" in sources
    file = tmp_path / "a.yaml"
    states = [composed_cache._content(str(path)) for path in (file, tmp_path)]
    assert states[0] == ""
    file.touch()
    assert not {composed_cache._content(str(path)) for path in (file, tmp_path)} & set(states)


def test_an_error_is_not_kept(count: list[int]) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError):
            kept("lem/no-such")
    assert len(count) == 2


def test_configs_of_ones_own_are_composed_each_time(
    count: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CONF / "study" / "lem", tmp_path / "conf" / "study" / "own")
    monkeypatch.setenv("PHYSML_CONF", str(tmp_path / "conf"))
    for _ in range(2):
        kept()
    assert len(count) == 2 and not (cache_root() / "composed.sqlite").exists()


@pytest.mark.parametrize(
    "value", ["[]", "3", '{"config": {}}', '{"config": {}, "choices": {}, "datasets": 3}']
)
def test_a_value_of_another_form_is_composed_anew(value: str, count: list[int]) -> None:
    expected = kept()
    with closing(ComposedCache()) as cache:
        ((name, state),) = cache.states.items()
        cache.rows.put(str(CONF), [(name, state, value)])
    assert kept() == expected and kept() == expected
    assert len(count) == 2
    with closing(sqlite3.connect(cache_root() / "composed.sqlite")) as database:
        ((text,),) = database.execute("SELECT value FROM bodies").fetchall()
    assert json.loads(text)["identity"] == expected[1]
