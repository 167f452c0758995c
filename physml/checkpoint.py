"""Checkpoints that survive a kill at any moment: two generations, each with its own checksum."""

import hashlib
import io
import logging
from pathlib import Path
from typing import Any

import torch

from physml import atomic

MAGIC = b"physml-checkpoint-1\n"
log = logging.getLogger(__name__)


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write `last.pt`; the one before stays as `previous.pt`."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    body = buffer.getvalue()
    with atomic.writing(folder / "last.pt") as temporary:
        temporary.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
        if (folder / "last.pt").exists():
            (folder / "last.pt").replace(folder / "previous.pt")


def load(folder: Path, identity: str) -> dict[str, Any] | None:
    """The newest whole checkpoint of this identity, or None. A damaged one is said in the log and passed over."""
    for name in ("last.pt", "previous.pt"):
        path = folder / name
        if not path.exists():
            continue
        state = _read(path)
        if state is None:
            log.warning("%s is damaged; trying an older checkpoint.", path)
        elif state.get("identity") != identity:
            log.warning("%s belongs to another setting and is not used.", path)
        else:
            return state
    return None


def _read(path: Path) -> dict[str, Any] | None:
    data = path.read_bytes()
    digest, body = data[len(MAGIC) : len(MAGIC) + 32], data[len(MAGIC) + 32 :]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    return torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)


def remove(folder: Path) -> None:
    for name in ("last.pt", "previous.pt"):
        (folder / name).unlink(missing_ok=True)
