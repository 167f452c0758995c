"""`physml doctor`: what it finds on this machine, and on machines where something is missing."""

import importlib
import importlib.metadata
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from physml.base.errors import to_install
from physml.cli import doctor
from physml.cli.doctor import Row


def rows(topic: str) -> dict[str, Row]:
    return {row.name: row for row in doctor.findings(topic)}


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the person who runs the tests."""
    for name in ("PHYSML_DATA", "WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "results"))


def test_the_report_of_a_working_machine(prints) -> None:
    out = prints(0, "doctor").out
    for topic in doctor.CHECKS:
        assert f"\n{topic}\n" in f"\n{out}"
    names = re.findall(r"^  (?:  |- |! )(\S+(?: \S+)*)  ", out.partition("\npackages\n")[2], re.MULTILINE)
    others = re.findall(r"^  - (\S+)  .*; the tested version is ", out, re.MULTILINE)  # said above, once
    packages = names[: names.index("cpu")] + others
    assert len(packages) == len(set(packages)) > 10
    assert "the check failed" not in out
    assert out.startswith("Nothing is missing.\n\nworth knowing\n")


def test_packages_that_are_missing_or_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("scipy", "ruff"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    tested, every = doctor._tested(), [name for name in rows("packages") if not name.startswith("extra ")]
    assert len(every) > 20 and [name for name in every if doctor._normal(name) not in tested] == []
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(doctor, "_tested", lambda: tested | {"numpy": "0.1"})
    packages = rows("packages")
    with monkeypatch.context() as context:
        context.setattr(importlib.metadata, "requires", lambda name: version("scipy"))
        assert "not installed" in rows("packages")["physml"].value
        context.setattr("physml.base.errors.requires", lambda name: version("scipy"))
        assert to_install("search") == "make setup, or pip install '.[search]' in the checkout"
    assert (packages["numpy"].state, packages["scipy"].state) == ("note", "missing")
    assert "the tested version is 0.1" in packages["numpy"].value and "make setup" in packages["scipy"].hint
    assert packages["extra dev"].value == "not installed: ruff"
    assert "pip install pytest" in packages["extra dev"].hint
    text = doctor.text({"packages": [*packages.values()]})
    assert text.startswith("1 missing, marked with !\n\nmissing\n  ! scipy")
    monkeypatch.setattr(doctor, "_tested", {}.__getitem__)
    (row,) = doctor.findings("packages")
    assert "the check failed: TypeError" in row.value


@pytest.mark.parametrize(("name", "state"), [("torch", "missing"), ("torchvision", "note")])
def test_a_broken_package_is_one_line(monkeypatch: pytest.MonkeyPatch, name: str, state: str) -> None:
    """torchvision and torchaudio are not needed, and often break beside a newer torch."""
    real = importlib.import_module

    def import_module(module: str, package: str | None = None) -> object:
        if module == name:
            raise RuntimeError(f"operator {name}::nms does not exist\nand much more")
        return real(module, package)

    monkeypatch.setattr(importlib, "import_module", import_module)
    row = {row.name: row for row in doctor._torch()}[name]
    assert row.state == state and "\n" not in row.value
    assert "does not work" in row.value or "nms does not exist" in row.value


def test_backends_without_a_compiler_and_roots_of_data(request, monkeypatch, tmp_path: Path) -> None:
    assert rows("backends")["torch"].state == "ok"
    request.getfixturevalue("no_compiler")
    row = rows("backends")["native"]
    assert row.state == "note" and row.value.startswith("no C compiler: CC=/nonexistent is not there")
    data_rows = rows("data")
    assert data_rows["PHYSML_DATA"].state == "note"
    assert re.match(r"\d+ of \d+ data sets", data_rows["data sets"].value)
    monkeypatch.setenv("PHYSML_DATA", str(tmp_path / "none"))
    assert rows("data")["PHYSML_DATA"].state == "missing"


def test_little_disk_and_unwritable_folders_are_told_and_missing_things_code_1(monkeypatch, prints) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3 * 2**20))
    row = rows("disk")["results"]
    assert (row.state, row.value.partition(" free")[0]) == ("note", "0.0 GiB")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    row = rows("disk")["cache"]
    assert row.state == "missing" and "PHYSML_CACHE" in row.hint
    monkeypatch.setattr(doctor, "CHECKS", {"a": lambda: iter([Row("b", "c", "missing", "Get it.")])})
    assert "! b  c\n       Get it." in prints(1, "doctor").out


def test_the_tracker_is_offline_unless_someone_is_logged_in(monkeypatch, tmp_path: Path) -> None:
    def value() -> str:
        return rows("tracker")["W&B"].value

    assert value() == "later, by `physml track sync`: not logged in"
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password key\n", encoding="utf-8")
    (tmp_path / ".netrc").chmod(0o600)
    assert value().startswith("online")
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert value().startswith("later")  # logged in elsewhere
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert value().startswith("online") and "xxx" not in value()
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert value() == "offline: WANDB_MODE says so"
