"""Records to a store and back: nothing is overwritten, nothing strange is taken."""

import json
import shutil

import fsspec
import pytest

from physml.base.errors import DataError
from physml.base.paths import OWN_RESULTS
from physml.cli import main
from physml.records import record, remote

FOLDER = "lem/fitzhugh_nagumo-lem"


@pytest.fixture
def runs(tmp_path):
    """The records of one experiment of the repository."""
    folder = tmp_path / "here" / "runs"
    shutil.copytree(OWN_RESULTS / "runs" / FOLDER, folder / FOLDER)
    (folder / "adhoc" / "mine").mkdir(parents=True)
    (folder / "adhoc" / "mine" / "0-split0-seed0.json").write_text("{}")
    return folder


@pytest.fixture
def store():
    """A store in memory."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def test_there_and_back(runs, store, tmp_path):
    made = remote.push(runs, "memory://bucket/physml")
    count = sum(path.is_file() for path in (runs / FOLDER).rglob("*"))
    assert len(made.new) == count and not made.same and not made.kept
    assert not [name for name in store.find("/bucket") if "adhoc" in name or name.endswith(".part")]
    again = remote.push(runs, "memory://bucket/physml")
    assert not again.new and len(again.same) == count
    other = tmp_path / "there" / "runs"
    back = remote.pull("memory://bucket/physml", other)
    assert sorted(back.new) == sorted(made.new) and not back.refused
    for path in (runs / FOLDER).iterdir():
        assert (other / FOLDER / path.name).read_bytes() == path.read_bytes()
    assert all(record.read(path) for path in (other / FOLDER).glob(record.RUNS))
    assert [path.name for path in other.parent.iterdir()] == ["runs"]


def test_what_is_there_already_stays(runs, store):
    remote.push(runs, "memory://bucket")
    path = next((runs / FOLDER).glob(record.RUNS))
    name = path.relative_to(runs).as_posix()
    before = path.read_bytes()
    store.pipe_file(f"/bucket/{name}", before + b" ")
    assert remote.pull("memory://bucket", runs).kept == [name] and path.read_bytes() == before
    assert remote.push(runs, "memory://bucket").kept == [name]


def test_strange_files_of_a_store_are_refused(runs, store, tmp_path, monkeypatch, capsys):
    remote.push(runs, "memory://bucket")
    names = [path.name for path in (runs / FOLDER).glob(record.RUNS)]
    store.pipe_file(f"/bucket/{FOLDER}/{names[0]}", b"{")
    store.pipe_file("/bucket/x/run.sh", b"rm -rf /")
    store.pipe_file("/bucket/top.json", b"{}")
    store.pipe_file("/bucket/x/large.npz", b"x" * 100)
    monkeypatch.setattr(remote, "LARGEST", 99_999_999)
    foreign = {**json.loads((runs / FOLDER / names[1]).read_text()), "schema": 99}
    store.pipe_file(f"/bucket/{FOLDER}/{names[1]}", json.dumps(foreign).encode())
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "there"))
    assert main.main(["records", "pull", "memory://bucket"]) == 1
    out = capsys.readouterr().out
    there = tmp_path / "there" / "runs"
    for name in (f"{FOLDER}/{names[0]}", f"{FOLDER}/{names[1]}", "x/run.sh", "top.json"):
        assert f"{name}: refused: " in out and not (there / name).exists()
    assert len(list((there / FOLDER).glob(record.RUNS))) == len(names) - 2
    assert remote._strange("a/../../b.json", 1) and remote._strange("/a/b.json", 1)
    assert remote._strange("a/b.json", 10**9) and remote._strange("a/b.json", 1) is None


def test_mistakes_are_told(runs, capsys, tmp_path):
    with pytest.raises(DataError, match="is no store"):
        remote.push(runs, "nowhere://bucket")
    assert main.main(["records", "push"]) == 2
    assert main.main(["records", "pusch", "x"]) == 2
    err = capsys.readouterr().err
    assert "records push takes one URL" in err and "Did you mean push" in err
    folder = tmp_path / "disk"
    assert len(remote.push(runs, str(folder)).new) == len(list(folder.rglob("*.*")))
