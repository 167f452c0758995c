"""Files that are whole or not there (temporary name, sync, rename), locks and fingerprints of files."""

import contextlib
import errno
import functools
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from physml.base import opened

T = TypeVar("T")
SETTLED_S = 2.0  # a file that has just been changed may change again within one tick of its clock


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is synced and renamed, on failure removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        sync(temporary)
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # a folder that is read-only refuses this too
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename, error.filename2 = str(path), None
        raise


def sweep(path: Path) -> None:
    """Remove what killed writers of `path` left beside it; only for the one who may write it."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        left.unlink(missing_ok=True)


def write(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all. A writer that is killed leaves nothing (on NFS a temporary file)."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _nameless(path.parent)
    if handle is None:
        with writing(path) as temporary, os.fdopen(opened.descriptor(temporary, os.O_WRONLY), "wb") as file:
            fill(file)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(handle)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            # With a descriptor Python follows the link of /proc to the file, else it does not.
            os.link(f"/proc/self/fd/{handle}", temporary, src_dir_fd=handle)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _nameless(folder: Path) -> int | None:
    """The descriptor of a new file without a name; None where there are none, as on NFS and macOS."""
    if not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except (AttributeError, OSError):
        return None


def write_text(path: Path, text: str) -> None:
    write(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Strict JSON: NaN and infinity are refused, for other readers refuse them too."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sync(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, patience_s: float | None = None) -> Iterator[int]:
    """Hold the lock of a file, which is made if needed; yields its descriptor.

    The kernel frees the lock when its holder dies, by whatever signal.
    Errors: BlockingIOError where another process holds it for longer than `patience_s`, None: for ever;
    another OSError where the file cannot be made or locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = opened.descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(file, patience_s)
        yield file
    finally:
        os.close(file)


def _lock(file: int, patience_s: float | None) -> None:
    fcntl = _fcntl()
    if patience_s is None:
        return fcntl.flock(file, fcntl.LOCK_EX)
    until = time.monotonic() + patience_s
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _fcntl() -> Any:
    """The module of locks, imported here, so that models can be imported where it is not: on Windows.

    Errors: OSError there.
    """
    try:
        import fcntl
    except ImportError as error:
        raise OSError(errno.ENOTSUP, "this system has no flock; run physml in WSL") from error
    return fcntl


def is_locked(path: Path) -> bool:
    """True if a process holds the lock of a file now; False if the file cannot be opened."""
    try:
        file = opened.descriptor(path)
    except OSError:
        return False
    fcntl = _fcntl()
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def fingerprint(path: Path | os.DirEntry[str]) -> str:
    """Changes when a file is edited or replaced: size, times, inode and device; empty if there is none.

    The time of the last change of its inode shows an edit whose time was set back.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev}"


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where it is not there. OSError where it cannot be read."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk`, which is silent about a folder that cannot be read; here it is an OSError."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    return os.walk(folder, onerror=refuse)


def cached_by_file(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """`read(path)`, called again only once the file has changed. The result is shared: not to be altered."""
    kept: dict[Path, tuple[str, T]] = {}

    @functools.wraps(read)
    def cached(path: Path) -> T:
        state = fingerprint(path)
        if not state:
            return read(path)
        if path not in kept or kept[path][0] != state:
            kept[path] = state, read(path)
        return kept[path][1]

    return cached
