"""Cached arrays: files that hold what they were made for and a checksum of everything in them."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from physml.base import doing, files
from physml.base.errors import DataError, InputError
from physml.base.text import brief
from physml.data.datasets import Arrays
from physml.data.files.archives import ZipTree

log = logging.getLogger(__name__)

# Two members of the archive beside the arrays: what was asked for, and the checksum of everything.
ASKED, DIGEST = "__asked__", "__sha256__"

Verify = Literal["bytes", "content", "off"]


@dataclass(frozen=True)
class Generated:
    """Arrays that a program makes: the same `key` and `version`, the same arrays (up to rounding)."""

    name: str
    key: dict[str, Any]  # every argument that moves a number; must be writable as JSON
    version: int  # raised when `make` changes what it returns
    make: Callable[[], Arrays] = field(compare=False)
    folder: str = "generated"  # of the cache

    @property
    def asked(self) -> str:
        return json.dumps({"name": self.name, "key": self.key, "version": self.version}, sort_keys=True)

    @property
    def file_name(self) -> str:
        return f"{self.name}-{hashlib.sha256(self.asked.encode()).hexdigest()[:16]}.npz"


def write_arrays(path: Path, asked: str, arrays: Arrays) -> None:
    """A reader sees the whole file or none. Raises OSError."""
    import numpy as np

    checks = {ASKED: np.array(asked), DIGEST: np.array(_digest(asked, arrays))}
    files.write(path, lambda file: np.savez(file, allow_pickle=False, **checks, **arrays))


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, Any]]:
    """The arrays of a file, by name. Raises OSError, and DataError for all else that damage makes of it."""
    import numpy as np

    try:
        path.stat()  # that nothing is there is no damage
        ZipTree(path)  # refuses what would unpack to more than it may
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except OSError:
        raise
    except Exception as error:  # zipfile and numpy raise about a dozen kinds
        raise DataError(f"damaged or foreign file: {type(error).__name__}: {brief(error)}") from error


def read_arrays(path: Path, asked: str) -> Arrays:
    """Raises FileNotFoundError, OSError, or DataError where the file is damaged or holds something else."""
    with _opened(path) as archive:
        arrays = dict(archive.items())
        if any(isinstance(array, bytes) for array in arrays.values()):
            raise ValueError("a member is no array")
        stored, digest = str(arrays.pop(ASKED)), str(arrays.pop(DIGEST))
    if stored != asked:
        raise DataError(f"made for other arguments: {stored}")
    if digest != _digest(asked, arrays):
        raise DataError("sha256 differs from the one written with it")
    return arrays


def asked_of(path: Path) -> str:
    """The key that the arrays of a file were made for. DataError where there is none."""
    with _opened(path) as archive:
        return str(archive[ASKED])


def _digest(asked: str, arrays: Arrays) -> str:
    import numpy as np

    sha = hashlib.sha256(asked.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"|{name} {array.dtype.str} {array.shape}|".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)  # no copy: arrays of gigabytes come by
    return sha.hexdigest()


@contextmanager
def cache_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file; True once held, False where none can be made (read-only disk)."""
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(path))
        except OSError as error:
            log.debug("%s: no lock (%s)", path, error)
            yield False
        else:
            yield True


@dataclass(frozen=True)
class Cache:
    """The folder of data files (`data`, may be read-only or None) and the cache (`cache`, may be deleted).

    A cache file that is damaged, or cannot be read or written, costs time and one logged warning; never a
    result.

    verify: how files of others are compared with the published ones: by their "bytes", by the "content" that
    is read from them, or not at all ("off"). fixtures: tiny sets in the upstream formats stand in for real
    files. used: what `read` has looked at: {file: {"sha256", "verified"}}, see `verify.verify`.
    """

    data: Path | None
    cache: Path
    verify: Verify = "bytes"
    fixtures: bool = False
    used: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)

    def generated(self, name: str, key: dict[str, Any], version: int, make: Callable[[], Arrays]) -> Arrays:
        """The arrays of `make()`, from the cache where it has them."""
        return self.get(Generated(name, key, version, make))

    def path(self, generated: Generated) -> Path:
        return self.cache / generated.folder / generated.file_name

    def get(self, generated: Generated) -> Arrays:
        """Arrays, cached or generated. Safe under concurrency: the second process waits for the first."""
        path = self.path(generated)
        arrays = self._cached(path, generated)
        if arrays is not None:
            return arrays
        with cache_lock(path.with_suffix(".lock")) as waited:
            if waited and (arrays := self._cached(path, generated, logging.DEBUG)) is not None:
                return arrays
            log.info("%s: made once; it is kept in %s.", generated.name, path)
            doing.say(f"making the data of {generated.name} (once)")
            arrays = generated.make()
            for name, array in arrays.items():
                if array.dtype.hasobject or name in (ASKED, DIGEST, "file", "allow_pickle"):  # of np.savez
                    raise InputError(
                        f"{generated.name}: array {name!r} of type {array.dtype} cannot be stored. "
                        "Give arrays of numbers, under another name."
                    )
            try:
                write_arrays(path, generated.asked, arrays)
            except OSError as error:
                log.warning("%s: not cached (%s); it will be generated again next time.", path, error)
        return arrays

    def _cached(self, path: Path, generated: Generated, level: int = logging.WARNING) -> Arrays | None:
        try:
            return read_arrays(path, generated.asked)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (DataError, OSError) as error:
            log.log(level, "%s: cache not usable (%s); generating again.", path, error)
            return None
