"""Files with anything in them: a message for a person comes out, never another error."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from refusals import refuses

from physml.base.errors import InputError, PhysmlError
from physml.base.paths import CONF
from physml.config import conf_files
from physml.config.compose import compose
from physml.config.load import read_yaml
from physml.config.schema import checked
from physml.report.figure.spec import find_figure, load_figure
from physml.report.table.settings import load_settings
from physml.report.table.spec import find_table, load_table

BOUNDED = settings(
    max_examples=15,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NUMBERS = st.integers(-3, 10**20) | st.floats()
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=6) | st.dates() | st.binary(max_size=3)
KEYS = st.text(max_size=4) | st.integers()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
READERS: dict[str, Callable[[Path], Any]] = {
    "table/lem-4.yaml": load_table,
    "table/cornn-7.yaml": load_settings,
    "figure/cornn-fig-6.yaml": load_figure,
    "figure/lem-fig-1.yaml": load_figure,
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a mapping or a list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in inner for place in ((*at, key), *places(child, (*at, key)))]


def changed(content: dict[str, Any], place: tuple[Any, ...], value: Any) -> str:
    """YAML of a copy with another value at a place."""
    edited = copy.deepcopy(content)
    node: Any = edited
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return yaml.dump(edited, allow_unicode=True, sort_keys=False)


@pytest.mark.parametrize("name", READERS)
@seed(15)
@BOUNDED
@given(data=st.data())
def test_a_value_of_any_kind_is_read_or_refused(
    name: str, data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = read_yaml(CONF / name)
    monkeypatch.setattr(conf_files, "CONF", tmp_path)
    place = data.draw(st.sampled_from(places(content)))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(changed(content, place, data.draw(VALUES)), encoding="utf-8")
    for read in (READERS[name], find_table, find_figure):
        try:
            read(path) if read is READERS[name] else read("9")
        except InputError as error:
            assert str(error)


PUNCTUATION = ["a ", ": ", "- ", "  ", *"{}[],?~=@#;|'\"\\\n\t\x85é", "---", "&x ", "*x", "<<: ", "%YAML 9\n"]
TAGS = [f"!!{t} " for t in ("int", "timestamp", "binary", "set", "omap", "python/object/apply:os.system")]
NEARLY = ["2001-99-99", "1e400", "0o9", "0x", ".nan", "190:20:30"]


@seed(15)
@settings(BOUNDED, max_examples=300)
@given(st.lists(st.sampled_from(PUNCTUATION + TAGS + NEARLY), max_size=14).map("".join))
def test_any_text_is_yaml_or_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        assert isinstance(read_yaml(path), dict)
    except InputError as error:
        assert "any.yaml" in str(error)


BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00a: 1", "is not UTF-8"),
        (b"a: 2001-99-99", "is not valid YAML"),
        (b"a: !!int x", "is not valid YAML"),
        (b"? [1, 2]\n: 3", "a key must be text; got list"),
        (b"a: &a [*a]", "nested too deeply"),
        (BOMB, "too many values"),
        (b"a: " + b"[" * 100_000 + b"]" * 100_000, "nested too deeply|maximum nesting depth"),  # PyYAML 6.0.4
        (b"- " * 100_000, "nested too deeply"),
        (b"a: !!python/object/apply:os.system [true]", "is not valid YAML"),
    ],
    ids=["utf-16", "date", "int", "key", "cycle", "bomb", "brackets", "dashes", "python"],
)
def test_files_that_break_parsers_are_told(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    refuses(InputError, says, read_yaml, path)


def test_what_is_no_config_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    refuses(InputError, rf"bad\.yaml can't be read: it has {1 << 40} bytes", read_yaml, path)
    path.unlink()
    os.mkfifo(path)
    refuses(InputError, r"bad\.yaml can't be read: a FIFO, expected a file", read_yaml, path)


BASE = {
    "model": {"d_hidden": 3, "dt": 1.0, "clip": None, "init": "official"},
    "net": {"dropout": 0.1, "encoder": None},
    "task": {"length": 9},
    "trainer": {"epochs": 2, "stop": None, "schedule": None, "average": None, "select": {"metric": None}},
    "optim": {"lr": 0.1, "lr_factors": {"*": 1.0}},
    "arrays": None,
}


@seed(15)
@settings(BOUNDED, max_examples=6)
@given(data=st.data())
def test_an_experiment_of_any_values_is_checked_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    head = {"task": "adding", "provenance": {"kind": "own", "source": "x"}}
    study = head | {"rows": {"mine": {"model": "lem", "set": BASE}}}
    place = data.draw(st.sampled_from([p for p in places(study) if len(p) > 3 or p[0] == "provenance"]))
    path = tmp_path / "mine.yaml"
    path.write_text(changed(study, place, data.draw(VALUES)), encoding="utf-8")
    try:
        checked(compose([f"experiment={path}:mine"]).config)
    except PhysmlError as error:
        assert str(error)
