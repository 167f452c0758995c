"""Find the files of data sets, by name alone, and report a missing one. No torch here."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from physml.base import opened
from physml.base.errors import DataError
from physml.data.cache import Cache
from physml.data.datasets import DataFile, ShippedFile, Upstream, upstream


def roots(store: Cache) -> Iterator[Path]:
    """Folders that may hold data: PHYSML_DATA first, then the cache, where downloads go."""
    if store.data is not None:
        yield store.data
    yield store.cache / "files"


def find(file: DataFile, store: Cache) -> Path | None:
    """The file, or the folder it was unpacked to; None if neither is there, or neither can be looked at."""
    for root in roots(store):
        for name in (file.name, *file.also):
            if _seen((root / name).is_file):
                return root / name
        if file.folder and _seen((root / file.folder).is_dir):
            return root / file.folder
    return file.copy if isinstance(file, ShippedFile) and file.copy and file.copy.is_file() else None


def _seen(looked: Callable[[], bool]) -> bool:
    """The answer of `Path.is_file` and the like; False where a folder cannot be looked into."""
    try:
        return looked()
    except OSError:  # no permission, a name that is too long, a server that does not answer
        return False


def unreadable(file: DataFile, store: Cache) -> str:
    """The first place of a file that may not be looked at, with the reason; empty if each may."""
    for path in (root / name for root in roots(store) for name in (file.name, *file.also)):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    return ""


def missing(dataset: Upstream, store: Cache) -> list[DataFile]:
    """The files that must be got before the data set can be read.

    A member is there when its archive is; an archive is not needed when all its members are there.
    """
    present = {file.name for file in dataset.files if find(file, store) is not None}
    gone = []
    for file in dataset.files:
        members = [m for m in dataset.files if m.inside == file.name and not m.optional]
        replaced = bool(members) and all(m.name in present for m in members)
        if not (file.optional or file.name in present or file.inside in present or replaced):
            gone.append(file)
    archives = {file.name for file in gone}
    return [file for file in gone if file.inside not in archives]


def blocked(datasets: Iterable[str], store: Cache) -> str | None:
    """Why runs that read these data sets cannot be made here: what is missing, and how to get it.

    Nothing is read or hashed; only names are looked at.
    """
    for name in datasets:
        for file in missing(upstream(name), store):
            return f"{file.name} missing, get it with `physml data get {name}`"
    return None


def lacking_optional(datasets: Iterable[str], store: Cache) -> str | None:
    """The data set that runs would do without, and how to get it; names of files alone are looked at."""
    for name in datasets:
        files = upstream(name).files
        if all(file.optional and find(file, store) is None for file in files):
            return f"{name} missing, get it with `physml data get {name}`"
    return None


def refuse_absent(dataset: Upstream, store: Cache) -> None:
    """DataError for the first file that is missing of a data set."""
    for file in missing(dataset, store):
        raise refuse_missing(dataset.name, file, store)


def refuse_missing(dataset: str, file: DataFile, store: Cache) -> DataError:
    looked = " and ".join(str(root / file.name) for root in roots(store))
    said = f"{file.name} is missing: looked for {looked}."
    for path in (root / file.name for root in roots(store)):
        if kind := opened.irregular(path, links=True):
            said = f"{file.name} must be a file, but {path} is {kind}."
    if part := half(file, store):
        said += f" Part of a download is at {part}."
    if store.data is not None and (hint := other_root(file, store.data)):
        said += f" {hint}"
        if "set PHYSML_DATA=" in hint:
            return DataError(said)
    get = "Resume it" if part else "Get it"
    source = f" (from {file.urls[0]})" if file.urls else ""
    root = f"PHYSML_DATA ({store.data})" if store.data else "PHYSML_DATA, which is not set,"
    checksum = file.sha256 or (f"md5 {file.md5}" if file.md5 else "not published")
    return DataError(
        f"{said} {get} with `physml data get {dataset}`. Without network, put it there{source}, or "
        f"set {root} to a folder that has it. sha256: {checksum}."
    )


def half(file: DataFile, store: Cache) -> Path | None:
    """The part on disk of a download that was stopped."""
    parts = (root / f"{file.name}.part" for root in roots(store))
    return next((part for part in parts if _seen(part.is_file)), None)


def other_root(file: DataFile, root: Path) -> str:
    """A hint about PHYSML_DATA: its fault, or a value for it; empty where nothing is known."""
    if not _seen(root.is_dir):
        return f"PHYSML_DATA={root} is {'not a folder' if _seen(root.exists) else 'not there'}."
    names = [name for name in (file.name, *file.also, file.folder) if name]
    for name in names:
        parts = PurePosixPath(name).parts
        for depth, above in enumerate([root, *root.parents][1 : len(parts) + 1], 1):
            if root.parts[-depth:] == parts[:depth] and _seen((above / name).exists):
                return f"PHYSML_DATA={root} points too deep: set PHYSML_DATA={above}."
        for above in list(root.parents)[:2]:
            if _seen((above / name).exists):
                return f"It lies at {above / name}: set PHYSML_DATA={above}."
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())[:200]
    except OSError:
        return ""
    for below in folders:
        for name in names:
            if _seen((below / name).exists):
                return f"PHYSML_DATA={root} points too high: set PHYSML_DATA={below}."
    return ""
