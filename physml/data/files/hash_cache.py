"""Hashes of files that have not changed since they were hashed. No torch here."""

import contextlib
import hashlib
import os
import time
from pathlib import Path

from physml.base import files, opened
from physml.data.files.archives import FolderTree
from physml.data.files.limits import open_regular

ANY = "surrogateescape"  # names of files need not be UTF-8


def digest(path: Path, kind: str = "sha256") -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, kind).hexdigest()


def folder_digest(tree: FolderTree) -> str:
    """sha256 over the sorted names and sha256 of the files of an unpacked archive."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in tree.items()}
    lines = [f"{sha256}  {name}\n" for name, sha256 in hashes.items()]
    return hashlib.sha256("".join(sorted(lines)).encode(errors=ANY)).hexdigest()


def known(path: Path, kind: str, cache: Path, top: str = "") -> str:
    """The digest of a file or folder, hashed anew unless path, size, time and inode are those of before.

    Where there is any doubt, and where no stamp can be written, it is hashed.
    """
    name = hashlib.sha256(f"{path.absolute()} {top}".encode(errors=ANY)).hexdigest()[:24]
    stamp = cache / "stamps" / f"{name}.json"
    state = _state(path)
    record = opened.read_mapping(stamp)
    if record.get("state") == state and isinstance(record.get(kind), str):
        return str(record[kind])
    begun = time.time()
    got = folder_digest(FolderTree(path, top)) if path.is_dir() else digest(path, kind)
    if _state(path) == state and _newest(path) < begun - files.SETTLED_S:
        kept = record if record.get("state") == state else {}
        with contextlib.suppress(OSError):  # it will be hashed again next time
            files.write_json(stamp, {**kept, "path": ascii(str(path)), "state": state, kind: got})
    return got


def _state(path: Path) -> str:
    """A fingerprint that changes when a file does; of a folder, one hash over all its files."""
    if not path.is_dir():
        return files.fingerprint(path)
    lines = [f"{name} {files.fingerprint(path / name)}\n" for name in FolderTree(path).names()]
    return hashlib.sha256("".join(lines).encode(errors=ANY)).hexdigest()


def _newest(path: Path) -> float:
    """The last change, of content or of the entry itself: a file may be given an old time."""
    paths = [path / name for name in FolderTree(path).names()] if path.is_dir() else [path]
    return max((max(status.st_mtime, status.st_ctime) for status in map(os.stat, paths)), default=0.0)
