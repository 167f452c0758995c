"""A file that has not changed is not hashed again; at any doubt it is."""

import hashlib
import os
from pathlib import Path

import pytest

from physml.data.files import hash_cache

LONG_AGO = 1_000_000_000


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that were really hashed."""
    seen: list[Path] = []
    for name in ("digest", "folder_digest"):
        honest = getattr(hash_cache, name)
        monkeypatch.setattr(
            hash_cache, name, lambda path, *rest, honest=honest: seen.append(path) or honest(path, *rest)
        )
    monkeypatch.setattr(
        hash_cache, "_newest", lambda path: max(p.stat().st_mtime for p in [path, *path.glob("*")])
    )
    return seen


def written(path: Path, content: bytes, when: float = LONG_AGO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (when, when))
    return path


def test_hashed_once_and_again_when_it_changes(tmp_path: Path, hashed: list[Path]) -> None:
    path = written(tmp_path / "a", b"1")
    for _ in range(3):
        assert hash_cache.known(path, "sha256", tmp_path / "cache") == hashlib.sha256(b"1").hexdigest()
    assert hash_cache.known(path, "md5", tmp_path / "cache") == hashlib.md5(b"1").hexdigest()
    assert hash_cache.known(path, "sha256", tmp_path / "cache") == hashlib.sha256(b"1").hexdigest()
    assert len(hashed) == 2
    written(tmp_path / "b", b"2").replace(path)  # another file with the same time and size
    assert hash_cache.known(path, "sha256", tmp_path / "cache") == hashlib.sha256(b"2").hexdigest()
    written(path, b"3", LONG_AGO + 1)
    assert hash_cache.known(path, "sha256", tmp_path / "cache") == hashlib.sha256(b"3").hexdigest()
    assert hash_cache.known(path, "md5", tmp_path / "cache") == hashlib.md5(b"3").hexdigest()


def test_a_folder_is_hashed_again_when_a_file_of_it_changes_and_a_name_need_not_be_utf_8(tmp_path, hashed):
    folder = tmp_path / "f"
    for name in ("a", "b"):
        written(folder / name, b"1")
    os.utime(folder, (LONG_AGO, LONG_AGO))
    first = hash_cache.known(folder, "sha256", tmp_path / "cache")
    assert hash_cache.known(folder, "sha256", tmp_path / "cache") == first and len(hashed) == 1
    written(folder / "b", b"2", LONG_AGO + 1)
    assert hash_cache.known(folder, "sha256", tmp_path / "cache") != first
    path = written(tmp_path / os.fsdecode(b"d\xe9") / "a", b"1")
    for place in (path, path.parent):
        first = hash_cache.known(place, "sha256", tmp_path / "cache")
        assert hash_cache.known(place, "sha256", tmp_path / "cache") == first
    assert hashed.count(path) == 1


def test_a_file_of_just_now_is_not_trusted_to_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    hash_cache.known(path, "sha256", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"state": 3}', ""])
def test_a_damaged_stamp_is_no_stamp(tmp_path: Path, hashed: list[Path], content: str) -> None:
    path = written(tmp_path / "a", b"1")
    hash_cache.known(path, "sha256", tmp_path / "cache")
    (stamp,) = (tmp_path / "cache/stamps").iterdir()
    stamp.write_text(content)
    assert hash_cache.known(path, "sha256", tmp_path / "cache") == hashlib.sha256(b"1").hexdigest()
    assert len(hashed) == 2


def test_where_no_stamp_can_be_written_it_is_hashed(tmp_path: Path, hashed: list[Path]) -> None:
    path = written(tmp_path / "a", b"1")
    (tmp_path / "cache").write_text("a file where a folder should be")
    for _ in range(2):
        assert hash_cache.known(path, "sha256", tmp_path / "cache") == hashlib.sha256(b"1").hexdigest()
    assert len(hashed) == 2
