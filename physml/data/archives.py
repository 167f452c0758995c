"""The members of an archive, packed or unpacked, read one by one. No torch here."""

import bz2
import fnmatch
import gzip
import lzma
import os
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from physml import files
from physml.errors import DataError, suggest

Member = tuple[str, bytes | None]


class Tree(ABC):
    """Members by their names in the archive, its top folder included, with slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """Of all files, in the order of the archive; an unpacked folder is sorted."""

    @abstractmethod
    def items(self, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
        """Name and content of the files that match the pattern; `*` matches slashes too."""

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
        return DataError(f"{self.path} has no member {name}. {hint} Get it again: `physml data get`.")


class ZipTree(Tree):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, EOFError) as error:
            raise damaged(path, "zip archive", error) from error
        self._infos = {
            safe(info.filename, path): info for info in self._archive.infolist() if not info.is_dir()
        }
        for name, info in self._infos.items():
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                raise link(path, name)

    def names(self) -> list[str]:
        return list(self._infos)

    def items(self, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
        for name in self._infos:
            if fnmatch.fnmatchcase(name, pattern):
                yield name, self.bytes(name)

    def bytes(self, name: str) -> bytes:
        if name not in self._infos:
            raise self.missing(name)
        try:
            return self._archive.read(self._infos[name])
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
        for found, content in self._members(lambda other: other == name):
            if found == name and content is not None:
                return content
        raise self.missing(name)

    def _members(self, wanted: Callable[[str], bool]) -> Iterator[Member]:
        try:
            with _decompressed(self.path) as file:
                with tarfile.open(fileobj=file, mode="r|") as archive:
                    for member in archive:
                        name = safe(member.name, self.path)
                        if member.issym() or member.islnk():
                            raise link(self.path, name)
                        if member.isfile():
                            content = archive.extractfile(member) if wanted(name) else None
                            yield name, content.read() if content else None
                while file.read(1 << 20):  # to the end, where the checksum of the compressed file stands
                    pass
        except (tarfile.TarError, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise damaged(self.path, "tar archive", error) from error
        except Exception as error:
            if isinstance(error, DataError):
                raise
            raise damaged(self.path, "tar archive", error) from error


def _decompressed(path: Path) -> IO[bytes]:
    """By what it holds. tarfile itself takes a damaged header for the end, and looks at no checksum."""
    with path.open("rb") as file:
        start = file.read(6)
    for magic, module in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
        if start.startswith(magic):
            return cast(IO[bytes], module.open(path))
    return path.open("rb")


class FolderTree(Tree):
    """A folder that an archive was unpacked to. `top`: the prefix of names in the archive."""

    def __init__(self, path: Path, top: str = "") -> None:
        super().__init__(path)
        self._prefix = f"{top}/" if top else ""

    def names(self) -> list[str]:
        found = []
        for folder, folders, inside in os.walk(self.path):
            folders.sort()
            relative = Path(folder).relative_to(self.path)
            found += [f"{self._prefix}{(relative / file).as_posix()}" for file in inside]
        return sorted(found)

    def items(self, pattern: str = "*") -> Iterator[tuple[str, bytes]]:
        for name in self.names():
            if fnmatch.fnmatchcase(name, pattern):
                yield name, self.bytes(name)

    def bytes(self, name: str) -> bytes:
        if not name.startswith(self._prefix):
            raise self.missing(name)
        try:
            return (self.path / safe(name.removeprefix(self._prefix), self.path)).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise self.missing(name) from error


def open_tree(path: Path, top: str = "") -> Tree:
    """An archive by what it holds, not by its name; DataError where it is none."""
    if path.is_dir():
        return FolderTree(path, top)
    if zipfile.is_zipfile(path):
        return ZipTree(path)
    try:
        is_tar = tarfile.is_tarfile(path)
    except Exception:  # a damaged compressed file
        is_tar = False
    if is_tar:
        return TarTree(path)
    raise damaged(path, "zip or tar archive", None)


def safe(name: str, archive: Path) -> str:
    """The name of a member without `./`; DataError where it would be written elsewhere."""
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or ":" in (pure.parts or ("",))[0]:
        raise DataError(
            f"{archive}: member {name!r} points out of the archive. It is not opened. Delete the file and "
            "run `physml data get`."
        )
    return pure.as_posix()


def link(archive: Path, name: str) -> DataError:
    return DataError(
        f"{archive}: member {name} is a link. It is not opened. Delete the file and run `physml data get`."
    )


def is_web_page(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(512).lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml"))


def damaged(path: Path, wanted: str, error: BaseException | None) -> DataError:
    """A description of the format that came in place of the wanted one."""
    with path.open("rb") as file:
        start = file.read(8)
    if not start:
        found = "it is empty"
    elif is_web_page(path):
        found = "it is a web page, as a server sends it in place of a file it no longer has"
    else:
        found = f"{type(error).__name__}: {error}" if error else f"it starts with {start[:8]!r}"
    return DataError(f"{path} is no sound {wanted}: {found}. Delete it and run `physml data get`.")
