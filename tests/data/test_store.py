"""The cache of generated data: it may cost time, never a result."""

import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import DataError, InputError
from physml.base.paths import ROOT
from physml.data.cache import read_arrays, write_arrays
from physml.data.store import Store
from physml.queue.engines.job import shared_environment

KEY = {"n": 5, "seed": 1}


class Maker:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"a": np.arange(5.0), "b": np.array([[1, 2], [3, 4]], dtype=np.int32)}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(None, tmp_path / "cache")


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def same(arrays: dict[str, np.ndarray]) -> bool:
    want = Maker()()
    return set(arrays) == set(want) and all(
        np.array_equal(arrays[name], want[name]) and arrays[name].dtype == want[name].dtype for name in want
    )


def test_made_once_then_read_and_another_name_key_or_version_is_another_file(store, caplog):
    """Another order of keys is not."""
    make = Maker()
    assert all(same(store.generated("set", KEY, 1, make)) for _ in range(2))
    assert make.calls == 1 and not warnings(caplog) and not list(store.cache.rglob("*.tmp"))
    for name, key, version in (
        ("set", KEY, 1),
        ("other", KEY, 1),
        ("set", KEY | {"seed": 2}, 1),
        ("set", KEY, 2),
    ):
        store.generated(name, key, version, make)
    store.generated("set", {"seed": 1, "n": 5}, 1, make)
    assert make.calls == 4
    assert len(list((store.cache / "generated").glob("*.npz"))) == 4


class Trap:
    def __reduce__(self):
        return (os.abort, ())


def truncated(share: float) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(3))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    **{f"truncated to {share}": truncated(share) for share in (0.0, 0.3, 0.7, 0.99)},
    "no zip": lambda path: path.write_bytes(b"not a zip"),
    "half a zip": lambda path: path.write_bytes(b"PK\x03\x04junk"),
    "half an array": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00"),
    "a single array": one_array,
    "a pickle, which is never loaded": lambda path: np.savez(path, a=np.array([Trap()], dtype=object)),
    "of other arguments": lambda path: write_arrays(path, "other arguments", Maker()()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_not_what_was_written_is_made_again(store, caplog, damage):
    store.generated("set", KEY, 1, Maker())
    DAMAGE[damage](next(store.cache.rglob("*.npz")))
    make = Maker()
    assert same(store.generated("set", KEY, 1, make)) and make.calls == 1
    (warning,) = warnings(caplog)
    assert "generating again" in warning and "\n" not in warning
    assert same(store.generated("set", KEY, 1, make)) and make.calls == 1


def test_every_changed_byte_is_seen_or_harmless_and_values_in_a_valid_archive_are_seen(tmp_path):
    path = tmp_path / "set.npz"
    write_arrays(path, "asked", Maker()())
    good = path.read_bytes()
    seen = 0
    for at in range(0, len(good), 5):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
        try:
            assert same(read_arrays(path, "asked"))  # dates and the like
        except (DataError, OSError):
            seen += 1
    assert seen > len(good) // 5 // 2
    path.write_bytes(good)
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **{**arrays, "a": arrays["a"] + 1e-12})
    refuses(DataError, "sha256", read_arrays, path, "asked")


def test_roots_come_from_the_environment_and_may_be_unwritable(tmp_path, caplog, monkeypatch) -> None:
    (tmp_path / "file").write_text("in the way")
    make = Maker()
    assert same(Store(None, tmp_path / "file" / "cache").generated("set", KEY, 1, make)) and make.calls == 1
    (warning,) = warnings(caplog)
    assert "not cached" in warning or "not usable" in warning
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("PHYSML_DATA", str(tmp_path / "d"))
    assert Store.from_env() == Store(tmp_path / "d", tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHYSML_DATA", "d")  # a run of an engine may start in another folder
    assert Store.from_env().data == tmp_path / "d"
    assert shared_environment()["PHYSML_DATA"] == str(tmp_path / "d")
    monkeypatch.setenv("PHYSML_DATA", "")
    monkeypatch.delenv("PHYSML_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store.from_env() == Store(None, tmp_path / ".cache" / "physml")


def test_an_error_while_making_or_an_array_of_objects_leaves_nothing(store):
    def fail() -> dict[str, np.ndarray]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.generated("set", KEY, 1, fail)
    refuses(InputError, "'a'", store.generated, "set", KEY, 1, lambda: {"a": np.array([None])})
    refuses(InputError, "'file'", store.generated, "set", KEY, 1, lambda: {"file": np.ones(1)})
    assert not list(store.cache.rglob("*.npz"))
    assert same(store.generated("set", KEY, 1, Maker()))


def python(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_full_disk_costs_one_warning(tmp_path):
    """A limit on the size of files gives the process the OSError of a full disk in the middle of a write."""
    process = python(
        """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from physml.data.store import Store
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        found = Store(None, Path(sys.argv[1])).generated("set", {}, 1, lambda: {"a": np.ones(100_000)})
        print(found["a"].sum())
        """,
        tmp_path,
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert float(out) == 100_000
    assert err.count("not cached") == 1 and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("*.npz")) and not list(tmp_path.rglob("*.tmp"))


def test_of_two_processes_one_makes_and_one_waits(tmp_path):
    code = """
        import sys, time
        from pathlib import Path
        import numpy as np
        from physml.data.store import Store
        calls = Path(sys.argv[1]) / "calls"
        def make():
            with calls.open("a") as file:
                file.write("x")
            time.sleep(1)
            return {"a": np.ones(1000)}
        print(Store(None, Path(sys.argv[1])).generated("set", {}, 1, make)["a"].sum())
        """
    for process in [python(code, tmp_path) for _ in range(2)]:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, float(out), err) == (0, 1000.0, "")
    assert (tmp_path / "calls").read_text() == "x"
