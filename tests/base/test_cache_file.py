"""Rows of the cache: nothing that is damaged, of other code or of another state is ever given."""

import os
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from physml.base.cache_file import CacheFile
from physml.base.paths import cache_root

ROWS = [("a", "1", "first"), ("b", "2", "second ü")]
STATES = [(name, state) for name, state, _ in ROWS]
VALUES = {name: value for name, _, value in ROWS}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))


def filled(code: str = "code") -> dict[str, str]:
    """The values that are there after they were put."""
    with closing(CacheFile("some.sqlite", code)) as rows:
        rows.put("place", ROWS)
        return rows.values("place", rows.states("place").items())


def found(code: str = "code", place: str = "place") -> tuple[dict[str, str], dict[str, str]]:
    with closing(CacheFile("some.sqlite", code)) as rows:
        return rows.states(place), rows.values(place, STATES)


def test_rows_are_given_to_the_same_code_and_place_in_the_same_state() -> None:
    assert filled() == VALUES
    assert found() == (dict(STATES), VALUES)
    assert found(code="other") == ({}, {})
    assert found(place="elsewhere") == ({}, {})
    with closing(CacheFile("some.sqlite", "code")) as rows:
        assert rows.values("place", [("a", "2"), ("c", "1")]) == {}
        rows.put("place", [("a", "3", "changed")], gone=["b"])
        assert rows.states("place") == {"a": "3"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE heads SET state = '7'",
        "UPDATE heads SET hash = NULL",
        "UPDATE heads SET state = x'ff00'",
        "DELETE FROM heads",
        "DROP TABLE heads",
        "DROP TABLE heads; CREATE TABLE heads (place TEXT)",
    ],
)
def test_heads_that_were_tampered_with_are_not_there_and_are_written_anew(change: str) -> None:
    filled()
    with closing(sqlite3.connect(cache_root() / "some.sqlite")) as database:
        database.executescript(change)
    assert found()[0] == {}
    assert filled() == VALUES


@pytest.mark.parametrize(
    "change",
    ["UPDATE bodies SET value = 'third'", "UPDATE bodies SET value = 7", "UPDATE bodies SET name = 'c'"],
)
def test_values_that_were_tampered_with_are_not_there(change: str) -> None:
    filled()
    with closing(sqlite3.connect(cache_root() / "some.sqlite")) as database:
        database.execute("DELETE FROM bodies WHERE name = 'b'")
        database.executescript(change)
    assert found()[1] == {}
    assert filled() == VALUES


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_made_anew(content: bytes) -> None:
    filled()
    (cache_root() / "some.sqlite").write_bytes(content)
    assert found() == ({}, {})
    assert filled() == VALUES


def test_a_file_with_damaged_pages_gives_no_wrong_value() -> None:
    filled()
    path = cache_root() / "some.sqlite"
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        states, values = found()
        assert states.items() <= dict(STATES).items()
        assert values.items() <= VALUES.items()
    assert filled() == VALUES


def test_without_a_folder_to_write_to_there_are_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "file" / "cache"))
    assert filled() == {}
    monkeypatch.setenv("PHYSML_CACHE", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert filled() in ({}, VALUES)


def test_a_file_that_another_process_writes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    filled()
    monkeypatch.setattr("physml.base.cache_file.PATIENCE_S", 0.01)
    with closing(sqlite3.connect(cache_root() / "some.sqlite")) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert filled() == {}
    assert found() == (dict(STATES), VALUES)


def put(number: int) -> None:
    with closing(CacheFile("some.sqlite", "code")) as rows:
        rows.put("place", [(f"{number}-{i}", "1", "value") for i in range(20)])


def test_processes_write_side_by_side() -> None:
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(put, range(6)))
    assert len(found()[0]) == 120
