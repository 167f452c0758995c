"""Questions to git: they leave no lock, and no answer is not the answer `nothing changed`."""

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from physml.records import provenance


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    for arguments in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    (folder / "physml").mkdir()
    (folder / "physml" / "a.py").write_text("1\n")
    for arguments in (["add", "."], ["commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return folder


def test_status_writes_nothing_into_the_clone(clone: Path) -> None:
    """From promptoglyph issue 9: a plain `git status` refreshes the index, under a lock."""
    index = clone / ".git" / "index"
    os.utime(clone / "physml" / "a.py", (1, 1))  # git would write down the new time
    before = index.read_bytes()
    assert provenance.asked(clone, "status", "--porcelain") == ""
    assert index.read_bytes() == before
    (clone / "physml" / "a.py").write_text("2\n")
    assert provenance.asked(clone, "status", "--porcelain") == "M physml/a.py"
    assert provenance.asked(clone.parent, "rev-parse", "HEAD") is None


def test_a_slow_git_ends_itself_and_takes_its_lock_along(clone: Path, tmp_path: Path, monkeypatch) -> None:
    """From shadow-rs issue 221: a status that is killed leaves index.lock in the clone of the user."""
    lock = clone / ".git" / "index.lock"
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\ntrap 'rm {lock}; exit 1' TERM\n: > {lock}\nwhile :; do sleep 0.05; done\n")
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(provenance, "ANSWER_S", 1.0)
    begun = time.monotonic()
    assert provenance.asked(clone, "status") is None
    assert time.monotonic() - begun < 5 and not lock.exists()
    slow.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.05; done\n")
    monkeypatch.setattr(provenance, "END_S", 0.2)
    assert provenance.asked(clone, "status") is None


def test_what_a_search_writes_is_no_change_of_the_code(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "INSTALLED", False)
    monkeypatch.setattr(provenance, "ROOT", clone)
    searched = clone / "conf" / "study" / "small" / "words.searched.yaml"
    searched.parent.mkdir(parents=True)
    for path, dirty in ((searched, False), (searched.with_name("words.yaml"), True)):
        path.write_text("a: 1\n")
        provenance.code.cache_clear()
        assert provenance.code()["dirty"] is dirty
    provenance.code.cache_clear()


def test_unknown_changes_are_recorded_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(folder: Path, *arguments: str) -> str | None:
        return "c0ffee" if arguments[0] == "rev-parse" else None

    monkeypatch.setattr(provenance, "INSTALLED", False)
    monkeypatch.setattr(provenance, "asked", answers)
    provenance.code.cache_clear()
    try:
        assert provenance.code() | {"version": ""} == {"commit": "c0ffee", "dirty": None, "version": ""}
    finally:
        provenance.code.cache_clear()
