"""Runs and costs that a wheel ships: parts of results/ in one compressed file, read as a results folder.

A line with the place below results/, then the lines there. scripts/build_wheel.py writes the file.
"""

from functools import cache
from pathlib import Path

from physml.base.paths import SHIPPED
from physml.records.schema import Record


def lines(place: Path) -> list[bytes]:
    """The lines of the pack of a folder, or of a file; none for a place that is not of the shipped ones."""
    return _packs().get(place, []) if SHIPPED in place.parents else []


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
            pack = packs.setdefault(SHIPPED / line.decode(), [])
    return packs
