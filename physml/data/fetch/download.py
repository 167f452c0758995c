"""Downloads: resumed where they stopped, and compared before they get their name. No torch here."""

import contextlib
import errno
import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from physml.base import files, opened
from physml.base.errors import DataError
from physml.base.text import shown, terminal
from physml.data.cache import cache_lock as lock
from physml.data.datasets import DataFile, Upstream
from physml.data.files.archives import is_web_page
from physml.data.files.hash_cache import digest
from physml.data.locate import find, missing
from physml.data.store import Store
from physml.data.verify import pin

if TYPE_CHECKING:
    import requests

log = logging.getLogger(__name__)

REDIRECTS = 10
LARGEST = 256 << 30  # bytes of a file whose size is not known
CHUNK = 1 << 16  # bytes; a cut connection loses less than one
CONNECT_S, READ_S = 15, 60
TRIES = 4  # of one address, as long as each brings more, or throws away what was wrong


def get(dataset: Upstream, store: Store) -> list[Path]:
    """Download what is missing of a data set into the cache; the new files.

    Optional files stay where they are, except of a data set that is optional as a whole, such as GloVe.

    DataError names the first file that could not be had, with its checksum and what each address said. What
    was downloaded of it is kept, and the next call goes on there.
    """
    downloaded = []
    files_missing = missing(dataset, store)
    if all(file.optional and find(file, store) is None for file in dataset.files):
        files_missing = [file for file in dataset.files if file.urls]
    for file in files_missing:
        archive = dataset.file(file.inside) if file.inside else None
        sources = [source for source in (file, archive) if source is not None and source.urls]
        failures: list[str] = []
        for source in sources:
            try:
                downloaded.append(_download(dataset, source, store))
                break
            except Failed as error:
                failures += error.lines
        else:
            raise _unreachable(dataset, file, store, failures)
    return downloaded


class Failed(Exception):
    """No address of a file gave it: a line for each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class Refused(Exception):
    """The response of an address is not the file."""


def _unreachable(dataset: Upstream, file: DataFile, store: Store, failures: list[str]) -> DataError:
    target = store.cache / "files" / file.name
    root = str(store.data) if store.data else "not set"
    answers = "".join(f"\n  {line}" for line in failures or ["no address is known"])
    return DataError(
        f"{file.name} of data set {dataset.name} could not be downloaded. Without network, put it at "
        f"{target}, or as {file.name} below PHYSML_DATA ({root}). sha256: {file.sha256 or 'not published'}"
        f"{f', md5: {file.md5}' if file.md5 else ''}. What each address said:{answers}"
    )


def _download(dataset: Upstream, file: DataFile, store: Store) -> Path:
    """One file, from its addresses in turn. Two processes at once: one downloads, the other waits for it."""
    target = store.cache / "files" / file.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{target.parent} cannot be made: {error.strerror}. Set PHYSML_CACHE to a folder that can be "
            "written."
        ) from error
    with lock(target.with_name(f".{target.name}.lock")):
        if target.is_file():
            return target  # by another process, meanwhile
        failures = []
        for url in file.urls:
            try:
                _from(url, file, target)
            except (Refused, OSError, ValueError) as error:  # the last of an address that is none
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise DataError(
                        f"{target}: the disk is full ({error.strerror}). Free space, or set PHYSML_CACHE "
                        f"to another disk, and run `physml data get {dataset.name}` again: it goes on there."
                    ) from error
                failures.append(f"{url}: {_reason(error)}")
                continue
            if not file.checksum:
                pin(dataset, {file.name: digest(target)}, store)
            return target
    raise Failed(failures)


def _from(url: str, file: DataFile, target: Path) -> None:
    """The file from one address; what is downloaded stays in `<name>.part` until it is whole and compared."""
    part = Part(target.with_name(f"{target.name}.part"))
    resumed = part.size > 0
    for attempt in range(TRIES):
        before = part.size
        try:
            _fetch(url, file, part)
            break
        except OSError as error:  # every error of requests is one
            if error.errno == errno.ENOSPC or attempt == TRIES - 1 or part.size == before:
                raise
            log.info("%s: %s; going on at %d bytes.", url, _reason(error), part.size)
            resumed = part.size > 0
    try:
        _compare(file, part)
    except Refused:
        if not resumed:
            raise
        _fetch(url, file, part)  # the two halves may be of different files
        _compare(file, part)
    files.sync(part.path)
    part.path.replace(target)
    part.about.unlink(missing_ok=True)


@dataclass(frozen=True)
class Part:
    """A file that is being downloaded, and beside it which version of which address it is half of."""

    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    @property
    def about(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def origin(self) -> dict[str, str | None]:
        return opened.read_mapping(self.about)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.about.unlink(missing_ok=True)


def _fetch(url: str, file: DataFile, part: Part) -> None:
    """Bring the part to its full size. Errors: OSError, which includes all of requests'."""
    import requests

    have = part.size
    headers = {"Accept-Encoding": "identity", **_range(url, file, part)}
    with _answer(url, headers) as answer:
        if (packed := answer.headers.get("Content-Encoding", "identity")) != "identity":
            raise Refused(f"it sent the file packed by {packed}, which was not asked for")
        start, whole = _content_range(answer)
        if answer.status_code == 416:  # nothing lies behind what we have, or the file has become shorter
            if have and have == (file.size or whole):
                return
            part.remove()
            raise requests.ConnectionError("the server's file is shorter than what was downloaded before")
        answer.raise_for_status()
        goes_on = answer.status_code == 206 and start == have and have > 0
        if not goes_on:  # what we have is of another version, or of another place than this answer
            part.remove()
            if answer.status_code == 206:
                raise requests.ConnectionError("the server sent another part of the file than was asked for")
            have = 0
            tag = answer.headers.get("ETag", "")
            version = tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")
            files.write_json(part.about, {"url": url, "version": version})
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdecimal() else file.size
        if file.size is not None and total is not None and total > file.size:
            part.remove()
            raise Refused(f"it sent {total} bytes, expected {file.size}")
        _room(part.path, (total or 0) - have)
        left = (file.size or LARGEST) - have
        with part.path.open("ab" if goes_on else "wb") as out, _progress(file.name, have, total) as advance:
            for chunk in answer.iter_content(CHUNK):
                if (left := left - len(chunk)) < 0:
                    part.remove()
                    raise Refused(f"it sent more than {file.size or LARGEST} bytes")
                out.write(chunk)
                advance(len(chunk))
    if total is not None and part.size < total:
        raise requests.ConnectionError(f"the connection ended after {part.size} of {total} bytes")


def _answer(url: str, headers: dict[str, str]) -> "requests.Response":
    """The answer of an address, which may lead to others, though never from https to http."""
    import requests

    for _ in range(REDIRECTS):
        answer = requests.get(
            url, headers=headers, stream=True, timeout=(CONNECT_S, READ_S), allow_redirects=False
        )
        if not answer.is_redirect:
            return answer
        answer.close()
        target, scheme = urljoin(url, answer.headers["Location"]), urlsplit(url).scheme
        if urlsplit(target).scheme not in ("https", scheme):
            raise Refused(f"it leads from {scheme} to {shown(target)[:80]}")
        url = target
    raise Refused(f"it leads on more than {REDIRECTS} times")


def _range(url: str, file: DataFile, part: Part) -> dict[str, str]:
    """Ask for the rest, where the server or a checksum can tell that it belongs to what we have."""
    if not part.size:
        return {}
    origin = part.origin()
    if origin.get("url") == url and origin.get("version"):
        return {"Range": f"bytes={part.size}-", "If-Range": str(origin["version"])}
    return {"Range": f"bytes={part.size}-"} if file.checksum else {}


def _content_range(answer: "requests.Response") -> tuple[int | None, int | None]:
    """The 100 and the 200 of `Content-Range: bytes 100-199/200`; None in place of a missing number."""
    value = answer.headers.get("Content-Range", "")
    ends = value.removeprefix("bytes ").partition("-")[0], value.rpartition("/")[2]
    first, total = (int(end) if end.isdecimal() else None for end in ends)
    return first, total


def _room(path: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if n_bytes > free:
        raise OSError(errno.ENOSPC, f"{n_bytes / 2**20:.0f} MiB are to come, {free / 2**20:.0f} MiB are free")


def _compare(file: DataFile, part: Part) -> None:
    """Refused, and the part is removed, where a whole download is not the file."""
    if wrong := _difference(file, part.path):
        part.remove()
        raise Refused(wrong)


def _difference(file: DataFile, path: Path) -> str | None:
    size = path.stat().st_size
    if is_web_page(path):
        return "it sent a web page"
    if file.size not in (None, size):
        return f"it sent {size} bytes, expected {file.size}"
    for kind, want in (("sha256", file.sha256), ("md5", file.md5)):
        if want is not None and (got := digest(path, kind)) != want:
            return f"{kind} is {got[:8]}, expected {want[:8]}"
    return None if size else "it sent an empty file"


REASONS = {
    **dict.fromkeys(
        ("Name or service not known", "Temporary failure in name resolution", "nodename nor servname"),
        "the name of the server cannot be looked up",
    ),
    "Connection refused": "connection refused",
    "Network is unreachable": "the network is unreachable",
    "CERTIFICATE_VERIFY_FAILED": "its certificate cannot be trusted",
    "ProxyError": "the proxy gives no connection",
}


def _reason(error: Exception) -> str:
    """One short line; what requests says is a tower of causes."""
    import requests

    text = str(error)
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP {error.response.status_code} {error.response.reason}".strip()
    if isinstance(error, requests.ReadTimeout):
        return f"no answer within {READ_S} s"
    if isinstance(error, requests.Timeout):
        return "no connection in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection ended too early"
    known = REASONS if isinstance(error, requests.ConnectionError) else {}
    return next((reason for sign, reason in known.items() if sign in text), text.partition("\n")[0][:200])


# ---------------------------------------------------------------------------- progress


@contextlib.contextmanager
def _progress(name: str, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Takes the bytes that have come, and shows a bar on a terminal; in pipes and files nothing."""
    if not sys.stderr.isatty():
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=terminal(sys.stderr)), transient=True) as bars:
        yield partial(bars.advance, bars.add_task(name, total=total, completed=done))
