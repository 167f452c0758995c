"""Checkpoints that survive a kill at any moment: two generations, each with its own checksum."""

import hashlib
import io
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.errors import DataError
from physml.base.paths import display_path

MAGIC = b"physml-checkpoint-1\n"
NAMES = ("last.pt", "previous.pt")
LARGEST = 64 << 30  # bytes of a checkpoint
log = logging.getLogger(__name__)


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write `last.pt`; the one before stays as `previous.pt`."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    body = buffer.getvalue()
    with files.writing(folder / "last.pt") as temporary:
        temporary.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
        if (folder / "last.pt").exists():
            (folder / "last.pt").replace(folder / "previous.pt")


def load(folder: Path, identity: str) -> dict[str, Any] | None:
    """The newest whole checkpoint of this identity, or None. The log names those that are passed over.

    Errors: DataError where something that is not a readable file has the name of a checkpoint.
    """
    for path in _files(folder):
        state = _read(path)
        if state is None:
            log.warning("%s is damaged and is not used.", path)
        elif state.get("identity") != identity:
            log.warning("%s belongs to another setting and is not used.", path)
        else:
            return state
    if exists(folder):
        log.warning("no checkpoint in %s can be used: the run starts from scratch.", folder)
    return None


def _read(path: Path) -> dict[str, Any] | None:
    import torch

    try:
        data = opened.read_bytes(path, LARGEST)
    except OSError as error:
        raise DataError(
            f"{display_path(path)} cannot be read: {error.strerror}. Remove it and start again."
        ) from error
    digest, body = data[len(MAGIC) : len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # written by another torch, or by no torch: about a dozen kinds
        first_line = str(error).partition("\n")[0]
        log.warning("%s cannot be read: %s: %s", path, type(error).__name__, first_line)
        return None
    return state if isinstance(state, dict) else None


def exists(folder: Path) -> bool:
    return any((folder / name).exists() for name in NAMES)


def remove(folder: Path) -> None:
    for path in _files(folder):
        path.unlink()


def _files(folder: Path) -> Iterator[Path]:
    """The checkpoints that are there, newest first; DataError where one of them is not a file."""
    for path in [folder / name for name in NAMES]:
        try:
            mode = path.lstat().st_mode  # one look: a run that goes on moves its checkpoints
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISREG(mode):
            yield path
        else:
            raise DataError(f"{display_path(path)} must be a file, a checkpoint. Remove it and start again.")
