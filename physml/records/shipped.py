"""The runs that a wheel ships: the packs of all folders in one compressed file, read as a results folder.

A line with the name of a folder, then the lines of its pack. scripts/build_wheel.py writes the file.
"""

from functools import cache
from pathlib import Path

from physml.base.paths import SHIPPED
from physml.records.schema import Record


def lines(folder: Path) -> list[bytes]:
    """The lines of the pack of a folder; none for a folder that is not of the shipped ones."""
    return _packs().get(folder, []) if SHIPPED in folder.parents else []


def folders_below(folder: Path) -> list[Path]:
    """The shipped folders that are `folder` or below it."""
    inside = SHIPPED in folder.parents
    return [path for path in _packs() if folder in (path, *path.parents)] if inside else []


def is_shipped(record: Record) -> bool:
    return SHIPPED in Path(record.get("path", "")).parents


@cache
def _packs() -> dict[Path, list[bytes]]:
    try:
        import lzma
    except ImportError:  # a Python that was built without it makes its own runs
        return {}
    packs: dict[Path, list[bytes]] = {}
    pack: list[bytes] = []
    for line in lzma.decompress(SHIPPED.read_bytes()).splitlines():
        if line.startswith(b"{"):
            pack.append(line)
        else:
            pack = packs.setdefault(SHIPPED / "runs" / line.decode(), [])
    return packs
