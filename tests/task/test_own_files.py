"""Tasks of plugins that read files of their own: hashed into the setting, or said to be unverified."""

import sys
from pathlib import Path

import pytest
from refusals import refuses

from physml.base.errors import ConfigError, DataError, InputError
from physml.config.identity import identity, payload
from physml.config.resolve import load_plugins, resolve
from physml.data.store import Store

TASK = '''
import numpy as np
import torch
from physml.task.sequences import Labelled

class Waves(Labelled):
    """Waves of a file."""
    {files}

    def __init__(self, *, protocol):
        self.protocol, self.d_in, self.d_out, self.n_classes = protocol, 1, 2, 2

    def load(self, store, split):
        rows = np.loadtxt({opened}, delimiter=",", ndmin=2)
        x, y = torch.tensor(rows[:, :-1, None]).float(), torch.tensor(rows[:, -1]).long()
        self.place({{part: (x, y) for part in ("train", "valid", "test")}}, store)
'''
NAMED, BY_NAME = 'files = ("waves.csv",)', 'self.file("waves.csv")'
BY_HAND = '__file__.replace(".py", ".csv")'


@pytest.fixture
def waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a plugin and its file; the config of its task."""

    def write(files: str = NAMED, opened: str = BY_NAME, csv: str = "waves.csv", **keys) -> dict:
        name = f"waves_of_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text(TASK.format(files=files, opened=opened))
        (tmp_path / csv).write_text("0.1,0.2,0\n0.3,0.4,1\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
        plain = {"model": {}, "net": {}, "trainer": {}, "optim": {}, "precision": "fp32", "profile": None}
        task = {"_target_": f"{name}.Waves", "protocol": "clean", **keys}
        return {**plain, "plugins": [str(tmp_path / f"{name}.py")], "task": task}

    yield write
    sys.modules.pop(f"waves_of_{tmp_path.name}", None)


def recorded(config: dict, folder: Path, hashed: dict | None = None) -> dict:
    load_plugins(config["plugins"])
    task = resolve(config["task"]["_target_"], [*config["plugins"]])(protocol="clean")
    task.load(Store(None, folder / "cache"), 0)
    return task.recorded_data(payload(config).get("files", {}) if hashed is None else hashed)


def test_an_own_file_is_part_of_setting_and_record(waves, tmp_path: Path) -> None:
    config = waves()
    before, data = identity(config), recorded(config, tmp_path)
    assert data["verified"] == {"waves.csv": "own file"} and data["kind"] == "own files"
    assert data["sha256"] == payload(config)["files"] and len(data["sha256"]["waves.csv"]) == 64
    (tmp_path / "waves.csv").write_text("0.1,0.2,0\n0.3,0.5,1\n")
    assert identity(config) != before, "an edited file is another setting"


def test_files_may_be_an_argument(waves, tmp_path: Path) -> None:
    config = waves(files="", csv="other.csv")
    assert "files" not in payload(config)
    config["task"]["files"] = ["other.csv"]
    assert set(payload(config)["files"]) == {"other.csv"}
    config["task"]["files"] = "other.csv"
    refuses(ConfigError, "files must be a list of names", payload, config)


@pytest.mark.parametrize(("files", "kind"), [("", "undeclared data"), ("files = ()", "verified")])
def test_what_nobody_names_is_unverified_unless_the_task_says_it_reads_nothing(
    waves, tmp_path: Path, files: str, kind: str
) -> None:
    (tmp_path / f"waves_of_{tmp_path.name}.csv").write_text("0.1,0.2,0\n0.3,0.4,1\n")
    data = recorded(waves(files=files, opened=BY_HAND), tmp_path)
    assert data["verified"] == ({} if files else {f"waves_of_{tmp_path.name}.py": "unverified"})
    assert data["kind"] == kind and data["sha256"] == {}


def test_a_file_that_changes_before_it_is_read_is_unverified(waves, tmp_path: Path) -> None:
    config = waves()
    hashed = payload(config)["files"]
    (tmp_path / "waves.csv").write_text("0.1,0.2,0\n0.3,0.5,1\n")
    assert recorded(config, tmp_path, hashed)["verified"] == {"waves.csv": "unverified"}


def test_a_file_that_is_not_named_or_not_there_is_refused(waves, tmp_path: Path) -> None:
    config = waves(opened='self.file("others.csv")')
    refuses(InputError, r'reads others\.csv, .*files = \("others\.csv",\)', recorded, config, tmp_path)
    (tmp_path / "waves.csv").unlink()
    refuses(DataError, r"names the file waves\.csv, but .*waves\.csv is missing", identity, config)
    with pytest.raises(ConfigError, match=r"`files` must name the files of Waves literally"):
        identity(waves(files='files = tuple(["waves.csv"])'))
