"""Data files of others: addresses, size and sha256 in one place, downloaded once, verified before use."""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from physml import atomic
from physml.data.store import Store
from physml.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataFile:
    """One file. `sha256` is None where no published source gives it: it is then pinned at first download."""

    name: str  # path below the data root
    urls: tuple[str, ...]  # tried in this order
    size: int | None  # bytes
    sha256: str | None
    licence: str
    purpose: str


def places(file: DataFile, store: Store) -> Iterator[Path]:
    """Where the file may lie: PHYSML_DATA first, then the cache."""
    if store.data is not None:
        yield store.data / file.name
    yield store.cache / "files" / file.name


def find(file: DataFile, store: Store) -> Path | None:
    return next((path for path in places(file, store) if path.is_file()), None)


def verified(file: DataFile, store: Store) -> Path:
    """The path of the file, after its size and sha256 were compared.

    Raises DataError where it is missing, has another size or another checksum.
    """
    path = find(file, store)
    if path is None:
        looked = " or ".join(map(str, places(file, store)))
        raise DataError(
            f"{file.name} is missing: looked for {looked}. Run `physml data get`; without network, put it "
            f"there or set PHYSML_DATA to a folder that has it "
            f"(from {file.urls[0]}, sha256 {file.sha256 or 'not published'})."
        )
    if file.size is not None and path.stat().st_size != file.size:
        raise DataError(
            f"{path}: {path.stat().st_size} bytes, expected {file.size}. "
            "Delete the file and run `physml data get`."
        )
    want, got = file.sha256 or _pinned(file, store), sha256(path)
    if want is not None and got != want:
        raise DataError(
            f"{path}: sha256 is {got[:8]}, expected {want[:8]}. Delete the file and run `physml data get`."
        )
    return path


def get(file: DataFile, store: Store) -> Path:
    """The verified file, downloaded into the cache where it is missing."""
    if find(file, store) is None:
        _download(file, store)
    return verified(file, store)


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(file: DataFile, store: Store) -> None:
    import pooch
    import requests  # what pooch downloads with

    path = store.cache / "files" / file.name
    failures = []
    for url in file.urls:
        try:
            pooch.retrieve(url, known_hash=file.sha256, fname=path.name, path=path.parent)
        except (requests.RequestException, OSError, ValueError) as error:  # ValueError: another checksum
            failures.append(f"{url}: {error}")
            continue
        if file.sha256 is None:
            got = sha256(path)
            log.warning("%s: no published sha256; pinned to %s, unverified.", path, got)
            atomic.write_text(_pin(file, store), got + "\n")
        return
    raise DataError(
        f"{path}: could not be downloaded ({'; '.join(failures)}). Without network, put the file "
        f"(sha256 {file.sha256 or 'not published'}) at this path, or below PHYSML_DATA "
        f"({store.data or 'not set'}) as {file.name}."
    )


def _pin(file: DataFile, store: Store) -> Path:
    return store.cache / "files" / f"{file.name}.sha256"


def _pinned(file: DataFile, store: Store) -> str | None:
    pin = _pin(file, store)
    return pin.read_text().strip() if pin.is_file() else None
