"""Reading files of others within limits: regular files alone, and no more bytes than were declared. No torch.

A few bytes can unpack to gigabytes, and a FIFO in place of a file never ends. Both are refused by one line,
before anything is read.
"""

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import IO

from physml.base import opened
from physml.base.errors import DataError
from physml.base.text import brief

# A packed file may unpack to SPARE bytes and RATIO times its own size; repetitive text packs about 50 to 1.
SPARE, RATIO = 64 << 20, 200
LARGEST = 8 << 30  # bytes that are ever held at once: the largest member, the largest file
CHUNK = 1 << 20  # bytes that are unpacked at once


class WrongFile(DataError):
    """A file of a data set that cannot be right. Who reads the set adds how to get it again."""


def most(packed: int) -> int:
    """The bytes that a packed file of this size may unpack to."""
    return SPARE + RATIO * packed


def open_regular(path: Path) -> io.BufferedReader:
    """The file, opened for reading. Errors: DataError unless it is a regular file; OSError."""
    if kind := opened.irregular(path, links=True):
        raise DataError(f"{path} is {kind}, expected a file. Put the file there.")
    return opened.reading(path, links=True)


def size_of(path: Path) -> int:
    """The bytes of a regular file. Errors: DataError where it is none; OSError."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of at most LARGEST bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST:
            raise DataError(f"{path} has {size} bytes, more than the {LARGEST} that are read at once.")
        return file.read(size + 1)


def read_text(path: Path) -> str:
    """The content of a file of UTF-8."""
    return decoded(read_bytes(path), path)


def decoded(content: bytes, where: object) -> str:
    """The text in UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongFile(f"{where} is no text in UTF-8: {error}.") from error


def refuse_bomb(where: object, declared: int, packed: int) -> None:
    """DataError where a packed file declares to unpack to more than it may."""
    if declared > most(packed):
        raise DataError(
            f"{where} would unpack to {declared} bytes out of {packed}; at most {most(packed)} are read. "
            "It is not opened. Delete the file and run `physml data get NAME`."
        )


def gunzip(content: bytes, where: object) -> bytes:
    """The content of a gzip file. Errors: DataError for damage, and for more bytes than it may unpack to."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(most(len(content)) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise WrongFile(f"{where} is not a valid gzip file: {brief(error)}.") from error
    refuse_bomb(where, len(unpacked), len(content))
    return unpacked


class Bounded(io.RawIOBase):
    """A stream of which no more than `limit` bytes can be read. where: named by the DataError behind them."""

    def __init__(self, file: IO[bytes], limit: int, where: object) -> None:
        self._file, self._left, self._limit, self._where = file, limit, limit, where

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        n_bytes = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        content = self._file.read(n_bytes)
        self._left -= len(content)
        if self._left < 0:
            raise DataError(
                f"{self._where} unpacks to more than {self._limit} bytes; no more are read. Delete the file "
                "and run `physml data get NAME`."
            )
        return content

    def close(self) -> None:
        self._file.close()
        super().close()
