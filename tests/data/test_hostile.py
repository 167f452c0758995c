"""Hostile data files: pickles that crash, archives that explode, files that never end, fixtures that pose."""

import bz2
import functools
import gzip
import io
import os
import pickle
import socket
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from refusals import refuses
from scipy.io import savemat

from physml.base.errors import DataError
from physml.base.paths import ROOT
from physml.data.cache import read_arrays
from physml.data.files import limits
from physml.data.files.archives import FolderTree, open_tree
from physml.data.files.array_files import json_value, mat, npy, npz
from physml.data.files.limits import gunzip, read_bytes
from physml.data.files.safe_pickle import arrays, lists, no_code, sparse, tensors, unpickle
from physml.data.readers import zinc
from physml.data.readers.large_graphs import GENIUS_GRAPH, PATENTS, SNAP_PATENTS
from physml.data.store import Store


def refused(content: bytes, allowed, says: str) -> None:
    refuses(DataError, f"file cannot be read: .*{says}", unpickle, content, allowed, "file")


# ---------------------------------------------------------------------------- pickles


class Call:
    """Pickled as a call of a function with arguments, and a state."""

    def __init__(self, function, arguments: tuple, state: object = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple:
        return self.parts


NESTED = functools.reduce(lambda inner, _: [inner, inner], range(60), [])  # to print it takes 2^60 steps
FIELDS = (3, "<", None, ("a", "b"), {"a": (np.dtype("O"), 0), "b": (np.dtype("O"), 1 << 40)}, 8, 8, 16)
DTYPES = {
    "fields far away": Call(np.dtype, ("V8", False, True), FIELDS),
    "a subarray": Call(np.dtype, ("V8",), (3, "<", (np.dtype("f8"), (1 << 40,)), None, None, 8, 1, 0)),
    "objects by another name": Call(np.dtype, ("O8",), (3, "|", None, ("a",), {"a": 1}, 8, 8, 63)),
    "no state": Call(np.dtype, ("f8",), 17),
    "metadata": Call(np.dtype, ("f8",), (4, "<", None, None, None, -1, -1, 0, {"a": 1})),
    "long strings": Call(np.dtype, ("U8",), (3, "<", None, None, None, 1 << 40, 4, 8)),
    "lists that hold each other": Call(np.dtype, (NESTED,)),
    "dates": np.dtype("M8[s]"),
    "records": np.dtype([("a", "f8"), ("b", "i4")]),
}


PLAIN = (
    *(np.arange(6, dtype=">i2").reshape(2, 3).T, np.array(["a", "bcd"]), np.array([b"ab", b"c"])),
    *(np.array(2.5), np.ones((0, 3)), np.array([True, False]), np.float32(1.5)),
)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_arrays_are_read(protocol: int) -> None:
    content = pickle.dumps(PLAIN, protocol)
    for array, want in zip(unpickle(content, arrays, "file"), pickle.loads(content), strict=True):
        assert array.dtype.newbyteorder("=") == want.dtype.newbyteorder("=") and np.array_equal(array, want)
    objects = np.empty(2, object)
    objects[:] = [{"a": np.arange(2)}, None]
    mapping, nothing = unpickle(pickle.dumps(objects, protocol), arrays, "file")
    assert mapping["a"].tolist() == [0, 1] and nothing is None


RECONSTRUCT, F8 = np.ndarray(0).__reduce__()[0], np.dtype("f8")


def array(shape=(2,), dtype=F8, content=b"\0" * 16, cls=np.ndarray, begun=(0,)) -> Call:
    return Call(RECONSTRUCT, (cls, begun, b"b"), (1, shape, dtype, False, content))


ARRAYS = {
    "a command": Call(os.system, ("touch opened",)),
    "huge before its state": array(begun=(1 << 40,)),
    "of a class of its own": array(cls=np.dtype),
    "larger than its bytes": array((1 << 40,)),
    "of negative length": array((-2, -1)),
    "as long as lists that hold each other": array((NESTED,)),
    "endless and empty": array((1 << 50, 0), content=b""),
    "of objects in bytes": array(dtype=np.dtype("O")),
    "called as a class": Call(np.ndarray, ((1 << 40,),)),
    "a scalar of too few bytes": Call(np.float64(1).__reduce__()[0], (np.dtype("f8"), b"\0")),
    "a scalar of an object": Call(np.float64(1).__reduce__()[0], (np.dtype("O"), b"\0" * 8)),
}


@pytest.mark.parametrize("name", [*DTYPES, *ARRAYS])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_dtype_of_no_plain_kind_and_an_array_whose_parts_do_not_fit_are_refused(name, protocol) -> None:
    content, says = ([DTYPES[name]], "(dtype|strings of)") if name in DTYPES else (ARRAYS[name], "")
    refused(pickle.dumps(content, protocol), arrays, says)
    assert not Path("opened").exists()


BOMBS = {
    "a memo of 2^32 places": b"\x80\x02Nr\xff\xff\xff\xff0",
    "an array of bytes to come": b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b".",
    "a long string to come": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 100_000,
    "text again and again": b"\x80\x02c_codecs\nencode\nq\0X" + struct.pack("<I", 1 << 16) + b"a" * (1 << 16)
    + b"q\1X\x06\0\0\0latin1q\2" + b"h\0h\1h\2\x86R0" * 10_000 + b"N.",
}  # fmt: skip


@pytest.mark.parametrize("form", [b"}%bNs.", b"}(%bNu.", b"(%bNd.", b"\x8f(%b\x90.", b"(%b\x91."])
def test_keys_that_take_ages_to_hash_are_refused(form: bytes) -> None:
    """In a dict, one by one or several, and in a set: sixty tuples, each of the one before twice."""
    refused(b"\x80\x04" + form % (b")" + 60 * b"2\x86"), arrays, "a key of tuples inside a tuple")
    assert len(unpickle(b"\x80\x04" + form % b"K\x01K\x02\x86", arrays, "f")) == 1


def test_a_pickle_takes_no_more_memory_than_it_has() -> None:
    """In a process of its own: the unpickler written in C would be killed by some of them."""
    code = (
        "import pickle, resource, sys\n"
        "from physml.data.files.safe_pickle import arrays, unpickle\n"
        "from physml.base.errors import DataError\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "for name, content in pickle.load(sys.stdin.buffer).items():\n"
        "    before = peak()\n"
        "    try: unpickle(content, arrays, 'file')\n"
        "    except DataError: pass\n"
        "    print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(BOMBS), capture_output=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == len(BOMBS) and max(grown) < 100, "MiB"


def test_a_state_is_given_to_arrays_alone_and_lists_of_neighbours_cannot_be_copied() -> None:
    refused(pickle.dumps(Call(RECONSTRUCT, (np.ndarray, (0,), b"b")), 2)[:-1] + b"}b.", arrays, "")
    refused(b"\x80\x02c_codecs\nencode\n}X\1\0\0\0aK\1sb.", arrays, "gives a state")
    assert unpickle(pickle.dumps(defaultdict(list, {0: [1]}), 2), lists, "f") == {0: [1]}
    refused(pickle.dumps(Call(list, ([1] * 9,)), 2), lists, "")


def test_a_sparse_matrix_and_a_tensor_are_built_from_checked_parts() -> None:
    want = sp.csr_matrix(np.eye(3)[[0, 2]])
    assert (unpickle(pickle.dumps(want, 2), sparse, "f").matrix() != want).nnz == 0
    for part, value in (("indptr", np.array([0, 1 << 40, 2])), ("data", "text"), ("_shape", (2, -1))):
        wrong = sp.csr_matrix(want)
        wrong.__dict__[part] = value
        with pytest.raises(ValueError):
            unpickle(pickle.dumps(wrong, 2), sparse, "f").matrix().check_format()
    want = torch.arange(6).reshape(2, 3)
    assert (unpickle(pickle.dumps(want), tensors, "f") == want).all()
    refused(pickle.dumps(want[:1, :1].expand(1 << 20, 1 << 20)), tensors, "out of")
    function, arguments = want.__reduce_ex__(2)
    for size, stride in (((2, 4), (3, 1)), ((-2, -3), (3, 1)), ((2,), (1, 1))):
        refused(pickle.dumps(Call(function, (arguments[0], 0, size, stride, *arguments[4:]))), tensors, "")
    refused(pickle.dumps(Call(function, (arguments[0], 3, *arguments[2:]))), tensors, "")


@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("way", ["csr", "csc", "bsr", "pickle", "npz"])
def test_other_libraries_follow_no_index_unseen(way: str, part: str, tmp_path: Path) -> None:
    """scipy does not look: a wrong index reads, or writes, outside of memory."""
    whole = sp.csr_matrix(np.eye(3))
    cls = getattr(sp, f"{'csr' if way in ('pickle', 'npz') else way}_matrix")
    matrix = cls(whole)
    parts = {"data": matrix.data, "indices": matrix.indices.copy(), "indptr": matrix.indptr.copy()}
    parts[part][1] = 1 << 20
    wrong = tuple(parts.values())
    matrix.__dict__[part] = parts[part]
    if way == "pickle":
        (tmp_path / "x").write_bytes(pickle.dumps(matrix))
    sp.save_npz(tmp_path / "x.npz", matrix)

    def read() -> Any:
        with (tmp_path / ("x" if way == "pickle" else "x.npz")).open("rb") as file:
            read_by = {"pickle": pickle.load, "npz": sp.load_npz}
            return read_by[way](file) if way in read_by else cls(wrong, shape=(3, 3))

    with no_code(), pytest.raises(ValueError, match=r"ind(ices|ptr|ex)"):
        read().toarray()
    assert whole.toarray().trace() == 3


# ---------------------------------------------------------------------------- bombs


ZEROS = 120 << 20  # bytes, out of less than 1 MiB
FEWER = 12 << 20  # where less may be unpacked: `spare`


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARE", 1 << 20)


def zipped(path: Path, size: int = ZEROS, name: str = "a.npy", method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive, archive.open(name, "w", force_zip64=True) as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return path


def test_a_zip_is_refused_by_its_declared_sizes_and_other_ways_to_pack_and_unpacks_no_more(tmp_path) -> None:
    path = zipped(tmp_path / "x.zip")
    assert path.stat().st_size < 1 << 20
    for read in (open_tree, lambda p: npz(p, ["a"]), lambda p: read_arrays(p, "asked")):
        refuses(DataError, f"would unpack to {ZEROS} bytes", read, path)
    with pytest.raises(DataError, match="method 12 of a"):
        open_tree(zipped(tmp_path / "x.zip", 1 << 20, "a", zipfile.ZIP_BZIP2))
    path = zipped(tmp_path / "x.zip", FEWER)
    with zipfile.ZipFile(path) as archive:
        packed = archive.getinfo("a.npy").compress_size
    content = path.read_bytes().replace(struct.pack("<Q", FEWER), struct.pack("<Q", 1000))
    content = content.replace(struct.pack("<II", packed, FEWER), struct.pack("<II", packed, 1000))
    path.write_bytes(content)
    tracemalloc.start()
    refuses(DataError, "not a valid zip archive at member", open_tree(path).bytes, "a.npy")
    assert tracemalloc.get_traced_memory()[1] < 6 << 20
    tracemalloc.stop()


@pytest.mark.usefixtures("spare")
def test_a_tar_and_a_gzip_file_are_read_up_to_their_limits(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.size = FEWER
    for module in (gzip, bz2):
        (tmp_path / "x.tar").write_bytes(module.compress(info.tobuf() + bytes(FEWER + 1024)))
        refuses(DataError, "unpacks to more than", open_tree(tmp_path / "x.tar").names)
    assert gunzip(gzip.compress(b"abc"), "f") == b"abc"
    refuses(DataError, "f would unpack to", gunzip, gzip.compress(bytes(FEWER)), "f")
    refuses(DataError, "f is not a valid gzip file", gunzip, gzip.compress(b"abc")[:10] + b"\xff" * 20, "f")


def test_a_sparse_member_of_a_tar_is_refused_by_its_size(tmp_path: Path) -> None:
    sparse_file = {"major": "0", "minor": "1", "map": "0,0", "size": str(1 << 40)}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a")
        info.pax_headers = {f"GNU.sparse.{key}": value for key, value in sparse_file.items()}
        archive.addfile(info, io.BytesIO())
    refuses(DataError, rf"a has {1 << 40} bytes", open_tree(tmp_path / "x.tar").bytes, "a")


@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("value", [-1, 1 << 30])
def test_a_sparse_matrix_that_points_outside_is_refused_before_scipy_follows(part, value, tmp_path) -> None:
    SNAP_PATENTS.fixture(tmp_path)
    path = tmp_path / PATENTS
    matrix = mat(path, ("node_feat",))["node_feat"]
    stored = getattr(matrix, part).astype("<i4")
    changed = np.r_[stored[:1], np.int32(value), stored[2:]]
    content = path.read_bytes()
    assert content.count(stored.tobytes()) == 1
    path.write_bytes(content.replace(stored.tobytes(), changed.tobytes()))
    files = SimpleNamespace(path=lambda name: tmp_path / name, sizes=lambda *sizes: sizes)
    refuses(DataError, r"matrix names row|do not fit its values|not a valid MATLAB", SNAP_PATENTS.read, files)


@pytest.mark.usefixtures("spare")
def test_a_mat_file_is_refused_by_what_it_unpacks_to(tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"a": np.eye(3), "s": {"deep": 1}, "t": "text"}, do_compression=True)
    assert (mat(tmp_path / "x.mat", ["a"])["a"] == np.eye(3)).all()
    for name, says in (("b", "has no b; it has a, s, t"), ("s", "it is struct"), ("t", "it is char")):
        refuses(DataError, says, mat, tmp_path / "x.mat", [name])
    head = (tmp_path / "x.mat").read_bytes()[:128]
    packed = zlib.compress(struct.pack("<II", 14, FEWER) + bytes(FEWER))
    (tmp_path / "x.mat").write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)
    refuses(DataError, "would unpack to", mat, tmp_path / "x.mat", ["a"])


@pytest.mark.parametrize("packed", [False, True])
def test_no_changed_byte_of_a_mat_file_ends_the_process(tmp_path: Path, packed: bool) -> None:
    """scipy's reader, which was used before, died of each tenth change."""
    path = tmp_path / "x.mat"
    matrices = {"a": np.array([[0, 1], [1, 0]]), "s": sp.csc_array(np.eye(3)), "f": np.float32([[1, 2]])}
    savemat(path, matrices, do_compression=packed)
    content, read, refusals = path.read_bytes(), mat(path, [*matrices]), 0
    assert all(read[name].dtype == value.dtype for name, value in matrices.items())
    assert (read["a"] == matrices["a"]).all() and (read["s"] != matrices["s"]).nnz == 0
    for i in range(128, len(content)):
        for value in (0, 5, 14, 255):
            path.write_bytes(content[:i] + bytes([value]) + content[i + 1 :])
            try:
                mat(path, [*matrices])
            except DataError as error:
                refusals += 1
                assert "x.mat" in str(error) and "\n" not in str(error)
    assert refusals > 200
    savemat(path, {"z": np.array([[1j]])}, do_compression=packed)
    refuses(DataError, "z must be a matrix of numbers; it is complex", mat, path, ["z"])


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        *(b"no magic", b"", npy_bytes(np.arange(3))[:-1], npy_bytes(np.array([{"a": 1}], object))),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}\n"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 0)}\n"),
        header("{'descr': '<U0', 'fortran_order': False, 'shape': (1099511627776,)}\n"),
        header("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (0,)}\n"),
        header("(" * 9000),
    ],
)
def test_an_npy_must_hold_what_its_header_declares(content: bytes, tmp_path: Path) -> None:
    refuses(DataError, r"f is not a valid \.npy file", npy, content, "f")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    refuses(DataError, r"x\.npz: a is not a valid \.npy file", npz, tmp_path / "x.npz", ["a"])
    refuses(DataError, "damaged or foreign", read_arrays, tmp_path / "x.npz", "asked")


def test_json_may_not_be_deeper_than_python_reads() -> None:
    for content in (b"[" * 100_000, b"\xff", b""):
        refuses(DataError, "f is not valid JSON", json_value, content, "f")


def test_a_member_without_a_name_or_with_a_wrong_length_of_it_is_refused_in_a_short_line(tmp_path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"1 2\n" * 2000)
    whole = path.read_bytes()
    content = whole.replace(b"\x01\0\0\0a1", b"\0\0\0\0a1")
    at = content.index(b"PK\x01\x02")
    # its one letter is an extra field
    path.write_bytes(content[: at + 28] + b"\0\0\1\0" + content[at + 32 :])
    refuses(DataError, r"no name|not a valid zip", open_tree, path)
    # the message of zipfile quotes a thousand bytes of the file
    path.write_bytes(whole[:26] + struct.pack("<H", 5000) + whole[28:])
    said = refuses(DataError, "File name in directory", open_tree(path).bytes, "a")
    assert "\n" not in said and len(said) < 700


# ---------------------------------------------------------------------------- what is no file


def sock(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix_socket:
        unix_socket.bind(str(path))


IN_PLACE = {
    "a FIFO": os.mkfifo,
    "a socket": sock,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "unreadable": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_what_is_no_file_is_refused_at_once(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    GENIUS_GRAPH.fixture(tmp_path)
    path = Path("linkx/genius.mat")
    path.unlink()
    IN_PLACE[kind](path)
    with pytest.raises(DataError, match=rf"genius\.mat must be a file, but .*genius\.mat is {kind}"):
        Store(tmp_path, tmp_path / "cache", "off").read(GENIUS_GRAPH)
    refuses(DataError, f"is {kind}.*expected a file", read_bytes, path)


def test_a_fifo_in_an_unpacked_folder_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    os.mkfifo(tmp_path / "top/a")
    refuses(DataError, r"top/a is a FIFO, expected a file", list, FolderTree(tmp_path / "top").items())


# ---------------------------------------------------------------------------- fixtures


@pytest.mark.parametrize("data", [zinc.ZINC, zinc.ZINC_SUBSTITUTE, GENIUS_GRAPH], ids=lambda data: data.name)
def test_a_fixture_is_not_taken_for_published_files(data, tmp_path: Path) -> None:
    data.fixture(tmp_path)
    refuses(DataError, "expected", Store(tmp_path, tmp_path / "cache").read, data)
    assert not (tmp_path / "cache/pins").exists()
    assert Store(None, tmp_path / "cache", fixtures=True).read(data)


def test_what_a_reader_has_not_foreseen_is_one_line(tmp_path: Path) -> None:
    data = replace(GENIUS_GRAPH, read=lambda files: {"x": {}["nothing"]})
    GENIUS_GRAPH.fixture(tmp_path)
    with pytest.raises(DataError, match=r"files of genius cannot be read: KeyError.*physml data get genius"):
        Store(tmp_path, tmp_path / "cache").read(data)
