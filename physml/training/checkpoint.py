"""Checkpoints that survive a kill at any moment: two generations, each with its own checksum."""

import hashlib
import io
import logging
import pickle
from pathlib import Path
from typing import Any

from physml import files

MAGIC = b"physml-checkpoint-1\n"
NAMES = ("last.pt", "previous.pt")
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
    """The newest whole checkpoint of this identity, or None. What is passed over is said in the log."""
    for name in NAMES:
        path = folder / name
        if not path.exists():
            continue
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

    data = path.read_bytes()
    digest, body = data[len(MAGIC) : len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    try:
        return torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:  # written by another torch
        log.warning("%s: %s", path, error)
        return None


def exists(folder: Path) -> bool:
    return any((folder / name).exists() for name in NAMES)


def remove(folder: Path) -> None:
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
