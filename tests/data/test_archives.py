"""Archives, packed and unpacked: the same members either way, and a clear refusal of what is not sound."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from refusals import refuses

from physml.base.errors import DataError
from physml.data.files.archives import FolderTree, TarTree, ZipTree, open_tree

MEMBERS = {"top/b.txt": b"2\n", "top/a.txt": b"1\n", "top/sub/c.dat": b"3\n" * 50_000}


def zipped(path: Path, members: dict[str, bytes] = MEMBERS) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, members: dict[str, bytes] = MEMBERS, *, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def unpacked(path: Path) -> Path:
    with zipfile.ZipFile(zipped(path / "x")) as archive:
        archive.extractall(path)
    return path / "top"


FORMS = {
    "zip": (lambda folder: open_tree(zipped(folder / "x")), ZipTree),
    "tar": (lambda folder: open_tree(tarred(folder / "x", mode="w")), TarTree),
    "tar.gz": (lambda folder: open_tree(tarred(folder / "x")), TarTree),
    "folder": (lambda folder: open_tree(unpacked(folder), "top"), FolderTree),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_members_packed_and_unpacked(form: str, tmp_path: Path) -> None:
    make, kind = FORMS[form]
    tree = make(tmp_path)
    assert isinstance(tree, kind)
    assert tree.names() == (sorted(MEMBERS) if form == "folder" else list(MEMBERS))
    assert dict(tree.items("top/*.txt")) == {n: c for n, c in MEMBERS.items() if n.endswith("txt")}
    assert tree.bytes("top/sub/c.dat") == MEMBERS["top/sub/c.dat"]
    assert tree.extract("top/a.txt", tmp_path / "out") == tmp_path / "out/top/a.txt"
    assert (tmp_path / "out/top/a.txt").read_bytes() == b"1\n"
    refuses(DataError, r"has no member top/aa\.txt", tree.bytes, "top/aa.txt")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:/evil", "..\\evil"])
def test_members_that_point_out_of_their_archive_and_links_are_refused(name: str, tmp_path: Path) -> None:
    for pack in (zipped, tarred):
        path = pack(tmp_path / pack.__name__, {"good": b"1", name: b"2"})
        refuses(DataError, "points out of the archive", lambda path=path: open_tree(path).names())
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        link = tarfile.TarInfo("top/passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zip_archive:
        info = zipfile.ZipInfo("top/passwd")
        info.external_attr = 0o120777 << 16
        zip_archive.writestr(info, "/etc/passwd")
    for name in ("x.tar", "x.zip"):
        refuses(
            DataError,
            rf"{name}: member top/passwd is a link",
            lambda name=name: open_tree(tmp_path / name).names(),
        )


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_truncated_archive_and_a_flipped_byte_in_a_member_are_refused(pack, tmp_path: Path) -> None:
    path = pack(tmp_path / "x.bin")
    content = path.read_bytes()
    for keep in (0.2, 0.6, 0.95):
        path.write_bytes(content[: int(keep * len(content))])
        refuses(DataError, r"x\.bin is not a valid", lambda: list(open_tree(path).items()))
    content = zipped(path := tmp_path / "x.zip").read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 0xFF]) + content[41:])
    with pytest.raises(DataError, match=r"x\.zip is not a valid zip archive at member top/b\.txt"):
        list(open_tree(path).items())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html>\n<p>Sign in</p>", "it is a web page"),
        (b"  <html><body>", "it is a web page"),
        (b"just text", "it starts with b'just tex'"),
    ],
)
def test_what_is_no_archive_is_described(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.tar\.gz is not a valid zip or tar archive: {says}"):
        open_tree(tmp_path / "x.tar.gz")
