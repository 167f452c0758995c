"""Files that others may have written: opened only if they are regular files, read only up to a bound.

In a shared folder a link to another file, a FIFO that never ends or a device may stand in place of a file.
Each is refused by an OSError, whose `strerror` says what is there.
"""

import contextlib
import errno
import io
import json
import os
import re
import stat
import zlib
from pathlib import Path
from typing import Any

from physml.base.errors import MissingExtra

SMALL = 64 << 10  # bytes of a lock, a lease or a note about the state of a run
LARGE = 64 << 20  # of a record, a setting or a curve
# A compressed file may hold SPARE bytes and RATIO times its own size; tables of numbers pack about 4 to 1.
SPARE, RATIO = 1 << 20, 50
MEMORY = 128 << 20  # of the decompressor of xz
LONGEST = 308  # digits of a whole number; floats end at 1.8e308
LONG = re.compile(rf"\d{{{LONGEST + 1}}}")  # may be in a text or behind a point, too
KINDS = {
    stat.S_ISLNK: "a link",
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a FIFO",
    stat.S_ISSOCK: "a socket",
    stat.S_ISBLK: "a device",
    stat.S_ISCHR: "a device",
}


def irregular(path: Path, *, links: bool = False) -> str | None:
    """The kind of what is in place of a regular file, such as "a FIFO"; None for a file, and for nothing.

    links: whether a link counts as what it points to.
    """
    try:
        mode = path.stat().st_mode if links else path.lstat().st_mode
    except FileNotFoundError:
        return "a link to nothing" if path.is_symlink() else None
    except NotADirectoryError:
        return None
    except OSError as error:
        return f"unreadable ({error.strerror})"
    return next((kind for is_kind, kind in KINDS.items() if is_kind(mode)), None)


def descriptor(path: Path, flags: int = os.O_RDONLY, *, links: bool = False) -> int:
    """A descriptor of the file, which is regular. The caller closes it."""
    flags |= os.O_NONBLOCK | os.O_NOCTTY | (0 if links else os.O_NOFOLLOW)
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        if kind := irregular(path, links=links):
            raise _refused(path, kind) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refused(path, irregular(path, links=links) or "no file")
    return file


def _refused(path: Path, kind: str) -> OSError:
    return OSError(errno.EINVAL, f"{kind}, expected a file", str(path))


def reading(path: Path, *, links: bool = False) -> io.BufferedReader:
    return open(descriptor(path, links=links), "rb")


def appending(path: Path) -> io.BufferedWriter:
    """The file, made if needed, to be written at its end."""
    return open(descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def read_bytes(path: Path, most: int = LARGE, *, links: bool = False) -> bytes:
    """The content of a file of at most `most` bytes."""
    with reading(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, more than the {most} that are read", str(path))
        return file.read(size + 1)


def read_json(path: Path, most: int = SMALL) -> Any:
    """The value in a file of JSON. Errors: OSError, ValueError."""
    return parsed(read_bytes(path, most).decode("utf-8"))


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a small file of JSON; empty where there is none."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def parsed(text: str) -> Any:
    """The value of JSON. Errors: ValueError, also for depth, NaN and whole numbers that no float holds."""
    try:
        return json.loads(text, parse_int=_whole if LONG.search(text) else None, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name}, which is no number of JSON")


def _whole(digits: str) -> int:
    if (n := len(digits.lstrip("-"))) > LONGEST:
        raise ValueError(f"a whole number of {n} digits")
    return int(digits)


def inflated(content: bytes) -> bytes:
    """The content of a gzip or xz file. Errors: ValueError for damage, and for more than it may hold."""
    most = SPARE + RATIO * len(content)
    inflater: Any
    if content.startswith(b"\x1f\x8b"):
        inflater = zlib.decompressobj(wbits=31)
    else:
        inflater = lzma_module().LZMADecompressor(memlimit=MEMORY)
    try:
        unpacked: bytes = inflater.decompress(content, most + 1)
    except Exception as error:  # zlib.error, lzma.LZMAError, EOFError
        raise ValueError(str(error)) from error
    if len(unpacked) > most:
        raise ValueError(f"it unpacks to more than {most} bytes, too many for a file of {len(content)}")
    if not inflater.eof:
        raise ValueError("it is truncated")
    return unpacked


def lzma_module() -> Any:
    try:
        import lzma
    except ImportError as error:
        raise MissingExtra(
            "packed curves need Python's lzma, which this Python was built without."
        ) from error
    return lzma


# ---------------------------------------------------------------------------- owners


def of_others(path: Path) -> str | None:
    """Why no code may come from a folder, as "it belongs to ana"; None where we and root alone may write."""
    status = path.stat()
    if not is_ours(status):
        return f"it belongs to {_user(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private(status)):
        return f"others may write it (mode {stat.S_IMODE(status.st_mode):o}); `chmod go-w` closes it"
    return None


def is_ours(status: os.stat_result) -> bool:
    return status.st_uid in (os.geteuid(), 0)


def _user(uid: int) -> str:
    with contextlib.suppress(KeyError):
        import pwd  # here: Windows has none, and models can be imported there

        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


def _is_private(status: os.stat_result) -> bool:
    """True if the group of a file is the private group of its owner; many systems give one to each user."""
    import grp

    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_name == _user(status.st_uid) and not set(group.gr_mem) - {group.gr_name}
