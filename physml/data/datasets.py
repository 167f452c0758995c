"""Data sets of others: what conf/dataset says of their files, and how they are read. No torch here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from physml.base.errors import ConfigError, suggest
from physml.base.files import cached_by_file
from physml.config import conf_files
from physml.config.load import load

if TYPE_CHECKING:
    import numpy as np

    from physml.data.files.archives import Tree

Arrays = dict[str, "np.ndarray"]


@dataclass(frozen=True)
class DataFile:
    """One file of a data set, as its publisher serves it.

    name: path below PHYSML_DATA, or below `files` in the cache. urls: tried in this order. size: bytes.
    sha256, md5: as published, read in `hash_source`; where neither is, the file is pinned when first seen.
    folder: of an archive, the folder that it unpacks to, accepted in the archive's place. top: the folder in
    the archive that all its members stand in; null: the last part of `folder`, "": none. inside: the archive
    that this file is a member of, under the same name. also: other paths where it may lie. optional: the
    reader does without it.
    """

    name: str
    purpose: str
    urls: tuple[str, ...] = ()
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None
    hash_source: str | None = None
    folder: str | None = None
    top: str | None = None
    inside: str | None = None
    also: tuple[str, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        for path in (self.name, *self.also, *filter(None, (self.folder, self.inside))):
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or not pure.parts:
                raise ConfigError(f"{path!r} must be a path below the data root, without `..`.")
        for kind, value, digits in (("sha256", self.sha256, 64), ("md5", self.md5, 32)):
            if value is not None and (len(value) != digits or set(value) - set("0123456789abcdef")):
                raise ConfigError(f"{self.name}: {kind} must be {digits} hex digits or null; got {value!r}.")
        if (self.sha256 or self.md5) and not self.hash_source:
            raise ConfigError(f"{self.name}: hash_source must say where the hash was read.")

    @property
    def checksum(self) -> tuple[str, str] | None:
        """The kind and the value of the published checksum that counts; None where there is none."""
        if self.sha256:
            return "sha256", self.sha256
        return ("md5", self.md5) if self.md5 else None

    @property
    def top_folder(self) -> str:
        """The folder in the archive that all its members stand in; "" for none."""
        return PurePosixPath(self.folder).name if self.top is None and self.folder else self.top or ""


@dataclass(frozen=True)
class ShippedFile(DataFile):
    """A file of which an installed package has a copy, used where no root of data has it."""

    copy: Path | None = None


@dataclass(frozen=True)
class Content:
    """The fingerprint of what the reader returns for the true files; null: not known.

    source: the copy that it was computed from. agrees: an independent source of the same content, without
    which runs on other bytes are compared with a paper under a doubt. copies: sha256 of files that have it.
    """

    sha256: str | None = None
    source: str | None = None
    agrees: str | None = None
    copies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Statistic:
    """Known facts of an array that the reader returns, whatever file it comes from; null: not known.

    shape: its sizes. counts: how often each value stands in it. low, high: bounds of its values. mean, sd:
    over all values. first: its first values. has: values that stand in it. homophily: of edges, the share
    that join equal labels `y`. The last five hold to the digits that are written. source: where that was
    read.
    """

    source: str
    shape: tuple[int, ...] | None = None
    counts: Mapping[int, int] | None = None
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    sd: float | None = None
    first: tuple[float, ...] | None = None
    has: tuple[float, ...] | None = None
    homophily: float | None = None


@dataclass(frozen=True)
class Upstream:
    """A file conf/dataset/<name>.yaml: where a data set comes from, under what licence, and its files.

    get: the command that downloads it, for one that has no such file and is described by its task.
    """

    title: str
    source: str
    licence: str
    files: tuple[DataFile, ...]
    content: Content = Content()
    name: str = ""
    get: str | None = None
    statistics: Mapping[str, Statistic] = field(default_factory=dict)  # of the arrays, by name

    def file(self, name: str) -> DataFile:
        for file in self.files:
            if file.name == name:
                return file
        raise ConfigError(
            f"data set {self.name} has no file {name}. {suggest(name, [f.name for f in self.files])}"
        )

    def members(self, archive: DataFile) -> list[DataFile]:
        """The files that are members of an archive."""
        return [file for file in self.files if file.inside == archive.name]

    def listed(self, archive: DataFile) -> frozenset[str] | None:
        """The members of an archive whose checksums are published; None where there are none."""
        return frozenset(member.name for member in self.members(archive) if member.checksum) or None


def dataset_names() -> list[str]:
    return sorted(conf_files.files("dataset"))


def upstream(name: str) -> Upstream:
    """The contents of conf/dataset/<name>.yaml. ConfigError, with near names, where there is no such file."""
    path = conf_files.find("dataset", name)
    if path is None:
        raise ConfigError(f"there is no data set {name}. {suggest(name, dataset_names())}")
    return replace(_upstream(path), name=name)


@cached_by_file
def _upstream(path: Path) -> Upstream:
    upstream = load(Upstream, path, name=path.stem)
    names = [file.name for file in upstream.files]
    for file in upstream.files:
        if names.count(file.name) > 1:
            raise ConfigError(f"{path}: the file {file.name} appears twice.")
        if file.inside is not None and file.inside not in names:
            raise ConfigError(f"{path}: {file.inside}, which {file.name} is inside of, is no file of it.")
    return upstream


class Files(Protocol):
    """The input of a reader: the verified files of its data set, by the names of conf/dataset."""

    def path(self, name: str) -> Path:
        """The file, or the folder that an archive was unpacked to."""

    def has(self, name: str) -> bool:
        """True if an optional file is present."""

    def tree(self, name: str) -> "Tree":
        """The members of an archive, packed or unpacked."""

    @property
    def small(self) -> bool:
        """True if the sizes of a fixture are accepted: in smoke runs, and where data.verify is off."""

    def sizes(self, published: int, fixture: int) -> tuple[int, ...]:
        """The sizes that will do: the published one; that of a fixture too where `small`."""


@dataclass(frozen=True)
class DataSet:
    """How a data set is read.

    Args:
        name: of conf/dataset/<name>.yaml.
        version: raised when `read` returns other arrays for the same files.
        read: parses and validates; DataError, naming file and line, for anything that cannot be right. What
            it returns is cached, so it may be slow.
        fixture: writes a tiny set in the upstream format below a folder, always the same one, in less than a
            second.
        items: the parts of the content, for a fingerprint that does not depend on their order; needed where
            conf/dataset has one.
        about: in place of conf/dataset/<name>.yaml, for one set of a family, whose name the user gives.
        remedy: the last sentence of the error for a file that cannot be right.
        options: arguments of `read`, where these and not the files alone decide about the arrays.
    """

    name: str
    version: int
    read: Callable[[Files], Arrays]
    fixture: Callable[[Path], None]
    items: Callable[[Arrays], Iterable[bytes]] | None = None
    about: Upstream | None = None
    remedy: str = "Get it again: `physml data get NAME`."
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def upstream(self) -> Upstream:
        return self.about or upstream(self.name)


def family(
    prefix: str,
    names: Iterable[str],
    read: Callable[..., Arrays],
    fixture: Callable[..., None],
    items: Callable[[Arrays], Iterable[bytes]] | None = None,
) -> list[DataSet]:
    """A data set for each name, which `read` and `fixture` get too, as `graph`."""
    return [
        DataSet(f"{prefix}_{name}", 1, partial(read, graph=name), partial(fixture, graph=name), items)
        for name in names
    ]


def kind_of(used: Iterable[Mapping[str, str]]) -> str:
    """In one word, how far files are known to be the published ones: what is said of the weakest counts.

    `verified`; `pinned`: no checksum is published, and the file is the one that was first seen here;
    `content-verified`; `unverified data`; `undeclared data`: a task of a plugin does not say what it reads;
    `own files`, which are part of the setting; `fixture`.
    """
    states = {file["verified"] for file in used}
    words = {
        "fixture": "fixture",
        "off": UNVERIFIED,
        UNDECLARED: "undeclared data",
        "content": "content-verified",
        OWN_FILE: "own files",
        "first seen": "pinned",
    }
    return next((word for state, word in words.items() if state in states), "verified")


UNVERIFIED = "unverified data"  # a record's data.kind after data.verify=off
UNDECLARED, OWN_FILE = "unverified", "own file"  # how files that a plugin's task reads are known
