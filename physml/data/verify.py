"""Verify that files are those that their publisher serves: hash, compare, read once. No torch here."""

import hashlib
import logging
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from physml.base import files
from physml.base.errors import DataError, PhysmlError
from physml.base.paths import unwritable
from physml.base.text import brief
from physml.data.cache import Cache, Generated, cache_lock
from physml.data.datasets import Arrays, DataFile, DataSet, Upstream
from physml.data.files import hash_cache
from physml.data.files.archives import FolderTree, Tree, is_web_page, open_tree
from physml.data.files.limits import WrongFile
from physml.data.locate import find, refuse_absent, refuse_missing

log = logging.getLogger(__name__)


class Unverifiable(DataError):
    """A file that may be right, but whose bytes cannot be compared with anything published."""


# ---------------------------------------------------------------------------- bytes


def verify(
    dataset: Upstream, file: DataFile, path: Path, store: Cache, *, fresh: bool = False
) -> dict[str, str]:
    """{"sha256", "verified"} of a file that is there; DataError where it may not be used.

    verified: "bytes" where the published checksum agrees; "content" where none is published, or it differs
    under data.verify=content, and the true content is known: it is compared when it is read; "first seen"
    where nothing is known: the file is pinned, and must stay as it is; "off" under data.verify=off. fresh:
    hash it, whatever was found before.
    """
    if path.is_dir():
        return _verify_folder(dataset, file, path, store)
    size = path.stat().st_size
    if not size:
        raise _refused(dataset, path, "the file is empty")
    if store.verify == "bytes" and path.suffix != PurePosixPath(file.name).suffix:
        raise Unverifiable(
            f"{path} stands in for {file.name} in another form, of which no checksum is "
            f"published. Put the file itself in place (`physml data get {dataset.name}`), or have what "
            f"is read compared: {content_hint(dataset)}."
        )
    if store.verify == "bytes" and file.size not in (None, size):
        raise _refused(dataset, path, f"{size} bytes, expected {file.size}")

    def hashed(kind: str) -> str:
        return hash_cache.digest(path, kind) if fresh else hash_cache.known(path, kind, store.cache)

    sha256 = hashed("sha256")
    if file.checksum:
        kind, want = file.checksum
        got = sha256 if kind == "sha256" else hashed(kind)
        if got == want:
            return {"sha256": sha256, "verified": "bytes"}
        if store.verify == "bytes":
            page = "it is a web page; " if is_web_page(path) else ""
            raise _refused(dataset, path, f"{page}{kind} is {got[:8]}, expected {want[:8]}")
    elif store.verify != "off" and not dataset.content.sha256:
        _compare_with_pin(dataset, file, path, sha256, store)
        return {"sha256": sha256, "verified": "first seen"}
    return {"sha256": sha256, "verified": "off" if store.verify == "off" else "content"}


def _verify_folder(dataset: Upstream, file: DataFile, path: Path, store: Cache) -> dict[str, str]:
    """An unpacked archive: only members that conf/dataset lists with a checksum can be compared, and read."""
    top = file.top_folder
    if store.verify != "bytes":
        return {"sha256": hash_cache.known(path, "sha256", store.cache, top), "verified": store.verify}
    listed = {member.name: member.checksum for member in dataset.members(file)}
    tree = FolderTree(path, top, dataset.listed(file))
    if not listed or not all(listed.values()):
        raise Unverifiable(
            f"{path} is an unpacked {file.name}, whose members have no published checksums. Put the archive "
            f"itself in place (`physml data get {dataset.name}`), or have what is read from it compared: "
            f"{content_hint(dataset)}."
        )
    names = tree.names()
    for name in listed:
        if name not in names:
            raise tree.missing(name)
    for name, content in tree.items():
        kind, want = listed[name] or ("sha256", "")
        if hashlib.new(kind, content).hexdigest() != want:
            raise _refused(dataset, path.parent / name, f"another {kind} than published")
    return {"sha256": hash_cache.folder_digest(tree), "verified": "bytes"}


def content_hint(dataset: Upstream) -> str:
    return "--verify content" if dataset.content.sha256 else "--verify off, which the record then says"


def _refused(dataset: Upstream, path: Path, what: str) -> DataError:
    own = "" if dataset.get is None else "correct it if it is your own; else "
    act = f"{own}delete the file and run `physml data get {dataset.name}`."
    return DataError(f"{path}: {what}. {act[0].upper()}{act[1:]}")


def pin_path(dataset: Upstream, file: DataFile, store: Cache) -> Path:
    return store.cache / "pins" / dataset.name / f"{file.name}.sha256"


def pin(dataset: Upstream, hashes: Mapping[str, str], store: Cache) -> None:
    """No checksums are published: the first files seen count, and any others are refused from then on.

    hashes: the sha256 of each file, by name.
    """
    paths = {name: pin_path(dataset, dataset.file(name), store) for name in hashes}
    new = [name for name, path in paths.items() if not path.is_file()]
    if not new:
        return
    named = f"{new[0]} (sha256 {hashes[new[0]]})" if len(new) == 1 else f"{len(new)} files, {new[0]} first"
    log.warning("%s: no checksum is published of %s; pinned as seen, unverified.", dataset.name, named)
    for name in new:
        try:
            files.write_text(paths[name], hashes[name] + "\n")
        except OSError as error:
            log.warning("%s: not pinned (%s).", paths[name], error)
            return


def _compare_with_pin(dataset: Upstream, file: DataFile, path: Path, sha256: str, store: Cache) -> None:
    pinned = pin_path(dataset, file, store)
    if pinned.is_file() and (want := pinned.read_text(encoding="utf-8", errors="replace").strip()) != sha256:
        raise DataError(
            f"{path}: sha256 is {sha256[:8]}, but the file that was first seen here had {want[:8]} "
            f"(no checksum is published). Put that one back, or delete {pinned} to trust this one."
        )


# ---------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class FoundFiles:
    """The files of a data set that are there: what a reader gets."""

    dataset: Upstream
    store: Cache

    def path(self, name: str) -> Path:
        file = self.dataset.file(name)
        path = find(file, self.store)
        if path is not None:
            return path
        if file.inside and find(self.dataset.file(file.inside), self.store):
            tree = self.tree(file.inside)
            return tree.extract(_member(tree, name), self.store.cache / "unpacked" / self.dataset.name)
        raise refuse_missing(self.dataset.name, file, self.store)

    def has(self, name: str) -> bool:
        file = self.dataset.file(name)
        archive = self.dataset.file(file.inside) if file.inside else None
        return any(candidate is not None and find(candidate, self.store) for candidate in (file, archive))

    @property
    def small(self) -> bool:
        return self.store.fixtures or self.store.verify == "off"

    def sizes(self, published: int, fixture: int) -> tuple[int, ...]:
        return (published, fixture) if self.small else (published,)

    def tree(self, name: str) -> Tree:
        file = self.dataset.file(name)
        only = self.dataset.listed(file) if self.store.verify == "bytes" else None
        return open_tree(self.path(name), file.top_folder, only)


def _member(tree: Tree, name: str) -> str:
    """The one member of that name, in whatever folder of the archive it stands."""
    names = tree.names()
    last = PurePosixPath(name).name
    matching = [n for n in names if n == name] or [n for n in names if PurePosixPath(n).name == last]
    if len(matching) != 1:
        raise tree.missing(name)
    return matching[0]


def verified(dataset: Upstream, store: Cache) -> dict[str, dict[str, str]]:
    """Result of `verify` for every file that is present. DataError for the first that may not be used."""
    refuse_absent(dataset, store)
    paths = {file: find(file, store) for file in dataset.files}
    return {file.name: verify(dataset, file, path, store) for file, path in paths.items() if path is not None}


def read(dataset: DataSet, store: Cache) -> Arrays:
    """The arrays of a data set, from verified files; read once, then cached.

    Errors: DataError for files that are missing, damaged, foreign or have another content; nothing is cached
    and nothing is pinned then.
    """
    try:
        return _read_fixture(dataset, store) if store.fixtures else _read(dataset, store)
    except DataError as error:  # a file does not know whose it is, but what gets it has a name
        said = f"{error} {dataset.remedy}" if isinstance(error, WrongFile) else str(error)
        said = said.replace("`physml data get NAME`", f"`physml data get {dataset.name}`")
        if command := dataset.upstream.get:
            said = said.replace(f"physml data get {dataset.name}", command)
        raise type(error)(said) from error
    except OSError as error:  # of a file, or of the disk
        raise DataError(
            f"{error.filename or dataset.name} cannot be read: {error.strerror or error}. "
            "Fix that, or put the files elsewhere and set PHYSML_DATA."
        ) from error


def _read(dataset: DataSet, store: Cache) -> Arrays:
    about = dataset.upstream
    used = verified(about, store)
    compares = any(facts["verified"] == "content" for facts in used.values())
    if compares and not about.content.sha256:
        names = [name for name, facts in used.items() if facts["verified"] == "content"]
        raise DataError(
            f"{', '.join(names)} has other bytes than published, and no fingerprint of the content of "
            f"{dataset.name} is known. Get the published files, or use --verify off: the record then says so."
        )
    hashes = {name: facts["sha256"] for name, facts in sorted(used.items())}
    key = {"files": hashes, "checked": store.verify != "off"}
    if compares:  # a fingerprint that became known later than the cache is compared, too
        key["content"] = about.content.sha256
    if dataset.options:
        key["options"] = dict(dataset.options)

    def checked(arrays: Arrays) -> Arrays:
        if store.verify != "off":
            from physml.data.statistics import check

            check(about, arrays)
        return arrays

    def make() -> Arrays:
        arrays = parse(dataset, FoundFiles(about, store))
        if compares:
            compare_content(dataset, arrays)
        return checked(arrays)  # before they are cached

    arrays = checked(store.get(Generated(dataset.name, key, dataset.version, make, folder="processed")))
    first_seen = {name: facts["sha256"] for name, facts in used.items() if facts["verified"] == "first seen"}
    pin(about, first_seen, store)
    store.used.update(used)
    return arrays


def parse(dataset: DataSet, found_files: FoundFiles) -> Arrays:
    """The arrays that the reader makes of its files.

    A reader checks what it reads. Whatever it has not foreseen is an error of the files all the same, in one
    line; the traceback is logged for debugging.
    """
    try:
        return dataset.read(found_files)
    except (PhysmlError, OSError):
        raise
    except Exception as error:
        log.debug("%s", traceback.format_exc())
        raise DataError(
            f"the files of {dataset.name} cannot be read: {type(error).__name__}: {brief(error)}. Correct "
            f"them if they are your own; else get them again: `physml data get {dataset.name}`."
        ) from error


def fingerprint(dataset: DataSet, arrays: Arrays) -> str:
    """sha256 over the sorted sha256 of the items: the same for the same content in any order."""
    if dataset.items is None:
        raise TypeError(f"data set {dataset.name} has a fingerprint in conf/dataset but no `items`")
    digests = sorted(hashlib.sha256(item).digest() for item in dataset.items(arrays))
    return hashlib.sha256(b"".join(digests)).hexdigest()


def compare_content(dataset: DataSet, arrays: Arrays) -> None:
    got, want = fingerprint(dataset, arrays), dataset.upstream.content.sha256
    if got != want:
        raise DataError(
            f"the content of {dataset.name} is not the published one: its fingerprint is {got[:8]}, not "
            f"{str(want)[:8]}. Get the files again (`physml data get {dataset.name}`), or use "
            "--verify off: the record then says so."
        )


def _read_fixture(dataset: DataSet, store: Cache) -> Arrays:
    """A tiny set in the upstream format, through the same reader; real files are not looked at."""
    written_by = getattr(dataset.fixture, "func", dataset.fixture)  # of a partial
    source = Path(written_by.__code__.co_filename).read_bytes()
    root = store.cache / "fixtures" / f"{dataset.name}-{hashlib.sha256(source).hexdigest()[:12]}"
    try:
        with cache_lock(root.with_suffix(".lock")):
            if not (root / "whole").exists():
                shutil.rmtree(root, ignore_errors=True)  # left by a process that was killed
                dataset.fixture(root)
                (root / "whole").touch()
    except OSError as error:
        raise unwritable(root, error, "PHYSML_CACHE") from error
    own = replace(store, data=root, cache=store.cache / "fixtures", used={})  # a fixture may be small
    refuse_absent(dataset.upstream, own)
    names = [file.name for file in dataset.upstream.files if find(file, own)]
    store.used.update((name, {"sha256": "fixture", "verified": "fixture"}) for name in names)
    return dataset.read(FoundFiles(dataset.upstream, own))
