"""Absent data block a run and nothing else: said without torch, before anything is built, with what helps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refuses

from physml.base.errors import DataError
from physml.base.paths import ROOT, own_folders
from physml.cli import main
from physml.config.compose import compose
from physml.data import catalogue
from physml.data.datasets import upstream
from physml.data.locate import refuse_absent
from physml.data.readers.har import UCI_HAR
from physml.data.readers.mnist import MNIST
from physml.data.store import Store
from physml.queue import planning
from physml.records import record
from physml.records.schema import Record
from physml.run.spec import spec_of

HAR = "experiment=cornn/har2-cornn"
SHORT = ("trainer.max_steps=1", "trainer.epochs=1", "model.d_hidden=4", "tracker=none")


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PHYSML_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path


def records(roots: Path) -> list[Record]:
    return [record.read(path) for path in sorted(roots.rglob("runs/**/*-seed*.json"))]


def test_a_run_without_its_data_is_blocked_and_a_smoke_run_is_not(roots: Path) -> None:
    full, smoke = (spec_of(compose([HAR, "seed=99", f"profile={p}"])) for p in ("full", "smoke"))
    (planned,) = planning.plan([full], probe=True)
    assert planned.said == "blocked: UCI HAR Dataset.zip missing, get it with `physml data get uci_har`"
    assert not planned.todo and planning.plan([smoke])[0].state == "missing"
    (roots / "data/UCI HAR Dataset").mkdir()
    assert planning.plan([full])[0].state == "missing"


def test_what_a_plan_says_of_data_needs_no_torch(roots: Path) -> None:
    code = (
        "import sys\nfrom physml.queue.requested import RequestedRuns, RunOptions\n"
        "requested = RequestedRuns([('cornn/har2-cornn', 0, 0)], RunOptions(), 'x')\n"
        "print(requested.blocked, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "UCI HAR Dataset.zip missing" in done.stdout and done.stdout.endswith("False\n"), done.stderr


def test_runs_that_lack_data_are_refused_before_anything_is_built(roots: Path, prints) -> None:
    said = prints(2, "run", HAR, *SHORT).err
    assert said.startswith("error: UCI HAR Dataset.zip is missing") and said.count("\n") == 1
    assert not records(roots) and not (roots / "runs").exists()
    lines = prints(2, "run", "-m", HAR, "seed=0,1", *SHORT, "--jobs", "1").out.splitlines()
    assert lines.pop() == "0 of 2 runs have a score"
    assert len(lines) == 2 and all("blocked: UCI HAR Dataset.zip missing" in line for line in lines)
    assert not records(roots)


@pytest.mark.parametrize("how", [["--long"], ["--no-run", "--long"], ["--plan"]])
def test_a_table_says_which_data_are_missing(roots: Path, prints, monkeypatch, how: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    said = prints(0, "table", "lem-11", "--seeds", "0", *how).out
    assert "blocked" in said
    assert "EigenWorms_TRAIN.ts missing, get it with `physml data get eigenworms`" in said
    assert not records(roots)


@pytest.mark.usefixtures("small_data")
def test_a_record_says_how_far_its_data_are_known(roots: Path, prints) -> None:
    UCI_HAR.fixture(roots / "data")
    for how in ("bytes", "content"):
        said = prints(2, "run", HAR, *SHORT, "--verify", how).err.splitlines()
        assert "content of uci_har is not the published one" in said[-1]
        assert "failed" not in said and not records(roots), "nothing had begun"
    assert main.main(["run", HAR, *SHORT, "--verify", "off"]) == 0
    (content,) = records(roots)
    assert content["status"] == "finished" and content["data"]["kind"] == "unverified data"
    assert [file["name"] for file in content["data"]["files"]] == ["UCI HAR Dataset.zip"]
    assert content["config"]["data"] == {"verify": "off"}


# ---------------------------------------------------------------------------- another root, half a file


def refusal(store: Store) -> str:
    return refuses(DataError, "train-images", refuse_absent, upstream("mnist"), store)


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, refused: Path) -> None:
    """The function of os may do nothing in that place."""
    real = getattr(os, name)

    def looking(path, *arguments, **keys):
        if isinstance(path, str | Path) and Path(path).is_relative_to(refused):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **keys)

    monkeypatch.setattr(os, name, looking)


def test_where_the_right_root_is_known_nothing_else_is_advised(roots) -> None:
    MNIST.fixture(roots / "data")
    assert "data get" not in refusal(Store(roots / "data/MNIST", roots / "cache"))
    assert "data get mnist" in refusal(Store(roots / "nowhere", roots / "cache"))


def test_half_a_download_is_told(roots: Path) -> None:
    part = roots / "cache/files/MNIST/raw/train-images-idx3-ubyte.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"half")
    store = Store(roots / "data", roots / "cache")
    assert f"Part of a download is at {part}. Resume it with `physml data get mnist`." in refusal(store)
    rows = catalogue.list_data(catalogue.choose(["mnist"]), store)
    assert "0.0 KiB of it downloaded" in rows[0].note and "downloaded" not in rows[1].note


def test_a_folder_or_a_file_that_may_not_be_read_is_told_of_its_data_set_alone(roots, monkeypatch) -> None:
    MNIST.fixture(roots / "data")
    folder, store = roots / "data/MNIST", Store(roots / "data", roots / "cache", "off")

    def rows(work, *names: str) -> dict[str, list]:
        listed: dict[str, list] = {}
        for row in work(catalogue.choose(names), store):
            listed.setdefault(row.dataset, []).append(row)
        return listed

    refuse(monkeypatch, "open", image := folder / "raw/train-images-idx3-ubyte.gz")
    row, *others = rows(catalogue.check_data, "mnist")["mnist"]
    assert (row.state, row.note) == ("unreadable", f"{image} cannot be read: Permission denied")
    assert not {"damaged", "unreadable"} & {other.state for other in others}
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: path != image)
        assert catalogue.incomplete(["mnist"], catalogue.choose(["mnist"]), store) == ["mnist"]
    refuses(DataError, f"{image} cannot be read", catalogue.get_data, catalogue.choose(["mnist"]), store)
    refuse(monkeypatch, "stat", folder / "raw")
    listed = rows(catalogue.list_data)
    assert {row.state for row in listed["mnist"]} == {"unreadable"} and len(listed) > 30
    assert f"{image} cannot be read: Permission denied" in listed["mnist"][0].note
    assert listed["ptb"][0].state == "absent"
    assert catalogue.incomplete(["mnist"], catalogue.choose(["mnist"]), store) == ["mnist"]
    assert f"{image} is unreadable (Permission denied)" in refusal(store)


def test_a_fixture_that_cannot_be_written_is_told_of_the_cache(roots: Path) -> None:
    (roots / "cache/fixtures").touch()
    with pytest.raises(DataError, match=r"cache/fixtures/mnist-\w+ cannot be written: .*set PHYSML_CACHE"):
        Store(None, roots / "cache", fixtures=True).read(MNIST)


def test_a_file_that_is_empty_or_may_not_be_read_is_told(roots: Path, monkeypatch) -> None:
    MNIST.fixture(roots / "data")
    path = roots / "data/MNIST/raw/train-images-idx3-ubyte.gz"
    bytes_alone, any_content = (Store(roots / "data", roots / "cache", how) for how in ("bytes", "off"))
    with monkeypatch.context() as patched:
        refuse(patched, "open", path)
        refuses(DataError, f"{path} cannot be read: Permission denied", any_content.read, MNIST)
    path.write_bytes(b"")
    for store in (bytes_alone, any_content):
        refuses(DataError, f"{path}: the file is empty", store.read, MNIST)
