"""The members of an archive, packed or unpacked, read one by one. No torch here."""

import bz2
import fnmatch
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from physml.base import files
from physml.base.errors import DataError, suggest
from physml.base.text import brief
from physml.data.files.limits import (
    CHUNK,
    LARGEST,
    Bounded,
    most,
    open_regular,
    read_bytes,
    refuse_bomb,
    size_of,
)

Member = tuple[str, bytes | None]

MEMBERS = 1_000_000  # of one archive; each takes memory, even an empty one
TOO_MANY = f" has more than {MEMBERS} members."
LINK = ": member {} is a link. It is not opened."


class Tree(ABC):
    """Members by their names in the archive, its top folder included, with slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """Names of all files, in the order of the archive; sorted if it is an unpacked folder."""

    def items(self, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
        """Name and content of the files that match the pattern; `*` matches slashes too."""
        for name in self.names():
            if fnmatch.fnmatchcase(name, pattern):
                yield name, self.bytes(name)

    @abstractmethod
    def bytes(self, name: str) -> bytes:
        """The content of one member; DataError where there is none of that name."""

    def extract(self, name: str, folder: Path) -> Path:
        """Write one member below a folder, under its own name; the path."""
        target = folder / safe(name, self.path)
        content = self.bytes(name)
        files.write(target, lambda file: file.write(content))
        return target

    def missing(self, name: str) -> DataError:
        known = [n for n in self.names() if PurePosixPath(n).name == PurePosixPath(name).name] or self.names()
        hint = suggest(name, known[:1000]) if len(known) <= 1000 else ""
        return DataError(f"{self.path} has no member {name}. {hint} Get it again: `physml data get NAME`.")


class ZipTree(Tree):
    """A zip, as a file or as its content. What its directory declares is checked before a member is read."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        super().__init__(path)
        packed = size_of(path) if content is None else len(content)
        try:
            self._archive = zipfile.ZipFile(path if content is None else io.BytesIO(content))
        except Exception as error:  # zipfile raises about a dozen kinds for a damaged directory
            raise damaged(path, "zip archive", error) from error
        infos = self._archive.infolist()
        if len(infos) > MEMBERS:
            raise refused(path, TOO_MANY)
        refuse_bomb(path, sum(info.file_size for info in infos), packed)
        self._infos: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = safe(info.filename, path)
            if info.is_dir():
                continue
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                raise refused(path, LINK.format(name))
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise damaged(path, "zip archive", ValueError(f"method {info.compress_type} of {name}"))
            refuse_large(path, name, info.file_size)
            self._infos[name] = info

    def names(self) -> list[str]:
        return list(self._infos)

    def bytes(self, name: str) -> bytes:
        if name not in self._infos:
            raise self.missing(name)
        try:  # by chunks: asked for all at once, zipfile unpacks more than a member declares
            with self._archive.open(self._infos[name]) as file:
                return b"".join(iter(lambda: file.read(CHUNK), b""))
        except Exception as error:  # zipfile and zlib raise about a dozen kinds for damaged members
            raise damaged(self.path, f"zip archive at member {name}", error) from error


class TarTree(Tree):
    """A tar, plain or compressed. A compressed one is read from its start for each single member."""

    def names(self) -> list[str]:
        return [name for name, _ in self._members(lambda _: False)]

    def items(self, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
        for name, content in self._members(lambda name: fnmatch.fnmatchcase(name, pattern)):
            if content is not None:
                yield name, content

    def bytes(self, name: str) -> bytes:
        for member, content in self._members(lambda other: other == name):
            if member == name and content is not None:
                return content
        raise self.missing(name)

    def _members(self, selected: Callable[[str], bool]) -> Iterator[Member]:
        try:
            with _decompressed(self.path) as file:
                with tarfile.open(fileobj=cast(IO[bytes], file), mode="r|") as archive:
                    for i, member in enumerate(archive):
                        if i >= MEMBERS:
                            raise refused(self.path, TOO_MANY)
                        name = safe(member.name, self.path)
                        if member.issym() or member.islnk():
                            raise refused(self.path, LINK.format(name))
                        if member.isfile():
                            refuse_large(self.path, name, member.size)
                            if member.sparse is not None:  # holes take no bytes, whatever size they declare
                                refuse_bomb(self.path, member.size, size_of(self.path))
                            content = archive.extractfile(member) if selected(name) else None
                            yield name, content.read() if content else None
                while file.read(CHUNK):  # to the end, where the checksum of the compressed file stands
                    pass
        except DataError:
            raise
        except Exception as error:  # tarfile, zlib, bz2 and lzma raise about a dozen kinds
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise damaged(self.path, "tar archive", error) from error


def _decompressed(path: Path) -> Bounded:
    """By what it holds. tarfile itself takes a damaged header for the end, and looks at no checksum."""
    with open_regular(path) as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(6)
    for magic, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
        if start.startswith(magic):
            return Bounded(cast(IO[bytes], module.open(path)), most(size), path)
    return Bounded(open_regular(path), size, path)


def _is_tar(path: Path) -> bool:
    """By its first header; tarfile.is_tarfile would unpack as much as that declares."""
    try:
        with _decompressed(path) as file:
            tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # zeros: an archive without members
        return True
    except Exception:  # no header, or a damaged compressed file
        return False
    return True


class FolderTree(Tree):
    """The folder that an archive was unpacked to.

    top: what stands before the names in the archive. only: the members that count, by their names in the
    archive; None: all files.
    """

    def __init__(self, path: Path, top: str = "", only: Collection[str] | None = None) -> None:
        super().__init__(path)
        self._prefix = f"{top}/" if top else ""
        self._only = only

    def names(self) -> list[str]:
        names = []
        for folder, folders, inside in files.walk(self.path):
            folders.sort()
            relative = Path(folder).relative_to(self.path)
            names += [f"{self._prefix}{(relative / file).as_posix()}" for file in inside]
        return sorted(name for name in names if self._only is None or name in self._only)

    def bytes(self, name: str) -> bytes:
        if not name.startswith(self._prefix) or (self._only is not None and name not in self._only):
            raise self.missing(name)
        try:
            return read_bytes(self.path / safe(name.removeprefix(self._prefix), self.path))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise self.missing(name) from error


def open_tree(path: Path, top: str = "", only: Collection[str] | None = None) -> Tree:
    """An archive by what it holds, not by its name; DataError where it is none.

    path: of the archive, or of the folder that it was unpacked to; `top` and `only` as in `FolderTree`.
    """
    if path.is_dir():
        return FolderTree(path, top, only)
    size_of(path)
    if zipfile.is_zipfile(path):
        return ZipTree(path)
    if _is_tar(path):
        return TarTree(path)
    raise damaged(path, "zip or tar archive", None)


def safe(name: str, archive: Path) -> str:
    """The name of a member without `./`; DataError where it has none, or would be written elsewhere."""
    if not name:
        raise refused(archive, ": a member has no name.")
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or ":" in (pure.parts or ("",))[0]:
        raise refused(archive, f": member {name!r} points out of the archive. It is not opened.")
    return pure.as_posix()


def refuse_large(archive: Path, name: str, size: int) -> None:
    if size > LARGEST:
        raise DataError(
            f"{archive}: member {name} has {size} bytes, more than the {LARGEST} that are read at once."
        )


def refused(archive: Path, why: str) -> DataError:
    return DataError(f"{archive}{why} Delete the file and run `physml data get NAME`.")


def is_web_page(path: Path) -> bool:
    with open_regular(path) as file:
        start = file.read(512).lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml"))


def damaged(path: Path, expected: str, error: BaseException | None) -> DataError:
    """A description of the format that came in place of the expected one."""
    with open_regular(path) as file:
        start = file.read(8)
    if not start:
        got = "it is empty"
    elif is_web_page(path):
        got = "it is a web page, as a server sends it in place of a file it no longer has"
    else:
        got = f"{type(error).__name__}: {brief(error)}" if error else f"it starts with {start[:8]!r}"
    return DataError(
        f"{path} is not a valid {expected}: {got}. Correct it if it is your own; else delete it and run "
        "`physml data get NAME`."
    )
