"""Whether files are what their publisher serves: found, hashed, compared; then read, once. No torch here."""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from physml import atomic
from physml.data.dataset import Arrays, DataFile, DataSet, Upstream
from physml.data.tree import FolderTree, Tree, open_tree
from physml.errors import DataError

if TYPE_CHECKING:
    from physml.data.store import Store

log = logging.getLogger(__name__)


# ---------------------------------------------------------------------------- where files lie


def roots(store: "Store") -> Iterator[Path]:
    """Where data may lie: PHYSML_DATA first, then the cache, where downloads go."""
    if store.data is not None:
        yield store.data
    yield store.cache / "files"


def find(file: DataFile, store: "Store") -> Path | None:
    """The file, or the folder it was unpacked to; None if neither is there."""
    for root in roots(store):
        for name in (file.name, *file.also):
            if (root / name).is_file():
                return root / name
        if file.folder and (root / file.folder).is_dir():
            return root / file.folder
    return None


def missing(upstream: Upstream, store: "Store") -> list[DataFile]:
    """The files that must be got before the data set can be read.

    A member is there when its archive is; an archive is not needed when all its members are there.
    """
    there = {file.name for file in upstream.files if find(file, store) is not None}
    gone = []
    for file in upstream.files:
        members = [m for m in upstream.files if m.inside == file.name and not m.optional]
        replaced = bool(members) and all(m.name in there for m in members)
        if not (file.optional or file.name in there or file.inside in there or replaced):
            gone.append(file)
    archives = {file.name for file in gone}
    return [file for file in gone if file.inside not in archives]


def refuse_missing(dataset: str, file: DataFile, store: "Store") -> DataError:
    looked = " and ".join(str(root / file.name) for root in roots(store))
    checksum = file.sha256 or (f"md5 {file.md5}" if file.md5 else "not published")
    source = f" (from {file.urls[0]})" if file.urls else ""
    root = str(store.data) if store.data else "not set"
    return DataError(
        f"{file.name} is missing: looked for {looked}. Get it with `physml data get {dataset}`. "
        f"Without network, put it there{source}, or set PHYSML_DATA ({root}) to a folder that has it. "
        f"sha256: {checksum}."
    )


# ---------------------------------------------------------------------------- hashes


def digest(path: Path, kind: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def folder_digest(path: Path, top: str) -> str:
    """sha256 over the sorted names and sha256 of all files of an unpacked archive."""
    lines = [
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in FolderTree(path, top).items()
    ]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def verify(dataset: Upstream, file: DataFile, path: Path, store: "Store") -> dict[str, str]:
    """{"sha256", "verified"} of a file that is there; DataError where it may not be used.

    verified: "bytes" where the published checksum agrees; "first seen" where none is published (the file is
    pinned, and must stay as it is); under data.verify=content and off: "content" (still to be compared, by
    what the reader returns) and "off".
    """
    if path.is_dir():
        return _verify_folder(dataset, file, path, store)
    size = path.stat().st_size
    if store.verify == "bytes" and file.size not in (None, size):
        raise _refused(dataset, path, f"{size} bytes, expected {file.size}")
    sha256 = digest(path)
    if file.sha256:
        fits, said = sha256 == file.sha256, f"sha256 is {sha256[:8]}, expected {file.sha256[:8]}"
    elif file.md5:
        md5 = digest(path, "md5")
        fits, said = md5 == file.md5, f"md5 is {md5[:8]}, expected {file.md5[:8]}"
    elif store.verify == "bytes" or (store.verify == "content" and not dataset.content.sha256):
        return {"sha256": sha256, "verified": _pinned(dataset, file, path, sha256, store)}
    else:
        fits, said = False, "no checksum is published"
    if fits:
        return {"sha256": sha256, "verified": "bytes"}
    if store.verify == "bytes":
        raise _refused(dataset, path, said)
    return {"sha256": sha256, "verified": store.verify}


def _verify_folder(dataset: Upstream, file: DataFile, path: Path, store: "Store") -> dict[str, str]:
    """An unpacked archive: its members have no checksums, unless conf/dataset lists them all."""
    tree = FolderTree(path, file.top_folder)
    if store.verify == "bytes":
        known = {m.name: m.sha256 for m in dataset.files if m.inside == file.name and m.sha256}
        unknown = next((name for name in tree.names() if name not in known), None)
        if unknown is not None or not known:
            raise DataError(
                f"{path} is an unpacked {file.name}, whose members have no published checksums. Put the "
                f"archive itself in place (`physml data get {dataset.name}`), or compare what is read from it: add "
                "data.verify=content."
            )
        for name, content in tree.items():
            if hashlib.sha256(content).hexdigest() != known[name]:
                raise _refused(dataset, path / name, "another sha256 than published")
        return {"sha256": folder_digest(path, file.top_folder), "verified": "bytes"}
    return {"sha256": folder_digest(path, file.top_folder), "verified": store.verify}


def _refused(dataset: Upstream, path: Path, what: str) -> DataError:
    return DataError(f"{path}: {what}. Delete the file and run `physml data get {dataset.name}`.")


def pin_path(dataset: Upstream, file: DataFile, store: "Store") -> Path:
    return store.cache / "pins" / dataset.name / f"{file.name}.sha256"


def _pinned(dataset: Upstream, file: DataFile, path: Path, sha256: str, store: "Store") -> str:
    """No checksum is published: the first file seen counts, and any other is refused from then on."""
    pin = pin_path(dataset, file, store)
    if pin.is_file():
        want = pin.read_text(encoding="utf-8").strip()
        if sha256 != want:
            raise DataError(
                f"{path}: sha256 is {sha256[:8]}, but the file that was first seen here had {want[:8]} "
                f"(no checksum is published). Put that one back, or delete {pin} to trust this one."
            )
        return "first seen"
    log.warning("%s: no checksum is published; pinned to sha256 %s, unverified.", path, sha256)
    try:
        atomic.write_text(pin, sha256 + "\n")
    except OSError as error:
        log.warning("%s: not pinned (%s).", pin, error)
    return "first seen"


# ---------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class FoundFiles:
    """The files of a data set that are there and verified: what a reader gets."""

    dataset: Upstream
    store: "Store"

    def path(self, name: str) -> Path:
        file = self.dataset.file(name)
        path = find(file, self.store)
        if path is not None:
            return path
        if file.inside and find(self.dataset.file(file.inside), self.store):
            tree = self.tree(file.inside)
            return tree.extract(name, self.store.cache / "unpacked" / self.dataset.name)
        raise refuse_missing(self.dataset.name, file, self.store)

    def has(self, name: str) -> bool:
        file = self.dataset.file(name)
        archive = self.dataset.file(file.inside) if file.inside else None
        return any(one is not None and find(one, self.store) for one in (file, archive))

    def tree(self, name: str) -> Tree:
        return open_tree(self.path(name), self.dataset.file(name).top_folder)


def verified(dataset: Upstream, store: "Store") -> dict[str, dict[str, str]]:
    """Of every file that is there, what `verify` says. DataError for the first that may not be used."""
    for file in missing(dataset, store):
        raise refuse_missing(dataset.name, file, store)
    found = {file: find(file, store) for file in dataset.files}
    return {file.name: verify(dataset, file, path, store) for file, path in found.items() if path is not None}


def read(dataset: DataSet, store: "Store") -> Arrays:
    """The arrays of a data set, from verified files; read once, then cached.

    Errors: DataError for files that are missing, damaged, foreign or have another content; nothing is cached
    then.
    """
    from physml.data.store import Generated

    if store.fixtures:
        return _read_fixture(dataset, store)
    upstream = dataset.upstream
    used = verified(upstream, store)
    compares = any(one["verified"] == "content" for one in used.values())
    if compares and not upstream.content.sha256:
        names = [name for name, one in used.items() if one["verified"] == "content"]
        raise DataError(
            f"{', '.join(names)} has other bytes than published, and no fingerprint of the content of "
            f"{dataset.name} is known. Get the published files, or use data.verify=off: the record then says "
            "so."
        )
    hashes = {name: one["sha256"] for name, one in sorted(used.items())}
    key = {"files": hashes, "checked": store.verify != "off"}

    def make() -> Arrays:
        arrays = dataset.read(FoundFiles(upstream, store))
        if compares:
            compare_content(dataset, arrays)
        return arrays

    arrays = store.get(Generated(dataset.name, key, dataset.version, make, folder="processed"))
    store.used.update(used)
    return arrays


def fingerprint(dataset: DataSet, arrays: Arrays) -> str:
    """sha256 over the sorted sha256 of the items: the same for the same content in any order."""
    if dataset.items is None:
        raise TypeError(f"data set {dataset.name} has a fingerprint in conf/dataset but no `items`")
    return hashlib.sha256(
        b"".join(sorted(hashlib.sha256(item).digest() for item in dataset.items(arrays)))
    ).hexdigest()


def compare_content(dataset: DataSet, arrays: Arrays) -> None:
    got, want = fingerprint(dataset, arrays), dataset.upstream.content.sha256
    if got != want:
        raise DataError(
            f"the content of {dataset.name} is not the published one: its fingerprint is {got[:8]}, expected "
            f"{str(want)[:8]}. Get the files again (`physml data get {dataset.name}`), or use "
            "data.verify=off: the record then says so."
        )


def _read_fixture(dataset: DataSet, store: "Store") -> Arrays:
    """A tiny set in the upstream format, through the same reader; real files are not looked at."""
    from physml.data.store import Store, lock

    source = Path(dataset.fixture.__code__.co_filename).read_bytes()
    root = store.cache / "fixtures" / f"{dataset.name}-{hashlib.sha256(source).hexdigest()[:12]}"
    with lock(root.with_suffix(".lock")):
        if not (root / "whole").exists():
            dataset.fixture(root)
            (root / "whole").touch()
    own = Store(root, store.cache / "fixtures", fixtures=True)
    for file in missing(dataset.upstream, own):
        raise refuse_missing(dataset.name, file, own)
    found = {file.name: find(file, own) for file in dataset.upstream.files}
    store.used.update(
        {name: {"sha256": "fixture", "verified": "fixture"} for name, path in found.items() if path}
    )
    return dataset.read(FoundFiles(dataset.upstream, own))
