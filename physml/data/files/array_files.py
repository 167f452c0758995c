"""Arrays in .npy, .npz and .mat files of others, and JSON; what they declare is checked first. No torch.

`names` are those of the arrays that must be there. A DataError names the file, `where`.
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from physml.base import opened
from physml.base.errors import DataError
from physml.base.text import brief
from physml.data.files.archives import ZipTree
from physml.data.files.limits import WrongFile, most, read_bytes, refuse_bomb

NUMBERS, TEXT = "biuf", "SU"  # kinds of dtypes: real numbers, and text


def npy(content: bytes, where: object) -> np.ndarray:
    """The array of an .npy file: of numbers or text, with as many bytes as its header says."""
    file = io.BytesIO(content)
    try:
        shape, dtype = npy_header(file)
        if dtype.kind not in NUMBERS + TEXT or not dtype.itemsize:
            raise ValueError(f"an array of {dtype}, expected real numbers or text")
        held = len(content) - file.tell()
        if math.prod(shape) * dtype.itemsize != held or max(shape, default=0) > len(content):
            raise ValueError(f"shape {shape} of {dtype} in {held} bytes")
        file.seek(0)
        return np.load(file, allow_pickle=False)
    except Exception as error:
        raise WrongFile(f"{where} is not a valid .npy file: {brief(error)}.") from error


def npy_header(file: io.BytesIO) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype, after which the file stands. numpy parses them as Python, and raises as that does."""
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in read_header:
        raise ValueError(f"version {version} of the format")
    shape, _, dtype = read_header[version](file)
    return shape, dtype


def npz(path: Path, names: Sequence[str], text: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """These arrays of an .npz file, and no others: numbers, but for those of `text`, which may be text."""
    tree = ZipTree(path)
    known = tree.names()
    if absent := [name for name in names if f"{name}.npy" not in known]:
        has = ", ".join(name.removesuffix(".npy") for name in known[:20])
        raise WrongFile(f"{path} has no array {absent[0]}; it has {has}.")
    arrays = {name: npy(tree.bytes(f"{name}.npy"), f"{path}: {name}") for name in names}
    for name, array in arrays.items():
        if array.dtype.kind in TEXT and name not in text:
            raise WrongFile(f"{path}: {name} must be numbers; it is {array.dtype}.")
    return arrays


def json_value(content: bytes, where: object) -> Any:
    """The value of a JSON file."""
    try:
        return opened.parsed(content.decode())
    except ValueError as error:
        raise WrongFile(f"{where} is not valid JSON: {brief(error)}.") from error


# ---------------------------------------------------------------------------- MATLAB


# Types of the elements of a .mat file: of numbers, by numpy's name; a matrix; an element packed by zlib.
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, PACKED = 14, 15
SPARSE, COMPLEX = 5, 0x800  # the class of a matrix, and a bit beside it
NO_NUMBERS = {1: "cell", 2: "struct", 3: "object", 4: "char", 16: "function", 17: "opaque"}
Element = tuple[int, memoryview]


def mat(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """These matrices of real numbers, full or sparse, of a .mat file of version 5, in their own types.

    scipy's loadmat follows what a file declares without a look: a damaged one ends the process.
    """
    content = read_bytes(path)
    try:
        order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
        if order is None:
            raise ValueError("no header of version 5")
        parts = {bytes(rest[2][1]).decode("latin1"): rest for rest in _matrices(path, content, order)}
        if absent := [name for name in names if name not in parts]:
            raise WrongFile(f"{path} has no {absent[0]}; it has {', '.join(parts)[:200]}.")
        for name in names:
            kind = int(_numbers(parts[name][0], order)[0])
            if kind & COMPLEX or kind & 0xFF in NO_NUMBERS:
                what = NO_NUMBERS.get(kind & 0xFF, "complex")
                raise WrongFile(f"{path}: {name} must be a matrix of numbers; it is {what}.")
        return {name: _matrix(parts[name], order) for name in names}
    except DataError:
        raise
    except Exception as error:  # zlib, struct, numpy and scipy raise about a dozen kinds for damaged files
        raise WrongFile(f"{path} is not a valid MATLAB file: {brief(error)}.") from error


def _matrices(path: Path, content: bytes, order: str) -> Iterator[list[Element]]:
    """The parts of each matrix. DataError where the packed ones unpack to more than they may."""
    total = 0
    for kind, element in _elements(memoryview(content)[128:], order):
        if kind == PACKED:
            unpack = zlib.decompressobj()
            unpacked = unpack.decompress(element, most(len(content)) - total + 1)
            total += len(unpacked)
            refuse_bomb(path, total, len(content))
            if not unpack.eof:
                raise ValueError("a packed element is cut off")
            ((kind, element),) = _elements(memoryview(unpacked), order)
        if kind == MATRIX:
            yield list(_elements(element, order))


def _elements(data: memoryview, order: str) -> Iterator[Element]:
    """The type and the bytes of each element; one of up to 4 bytes may have its size beside its type."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        small = kind >> 16
        begin, end = (at + 4, at + 4 + small) if small else (at + 8, at + 8 + size)
        if small > 4 or end > len(data):
            raise ValueError(f"an element of {small or size} bytes, where {len(data) - begin} are left")
        yield kind & 0xFFFF, data[begin:end]
        at = at + 8 if small else end if kind == PACKED else end + -size % 8


def _numbers(element: Element, order: str) -> np.ndarray:
    kind, values = element
    if kind not in TYPES:
        raise ValueError(f"numbers of type {kind}")
    return np.frombuffer(values, f"{order}{TYPES[kind]}").astype(TYPES[kind])


def _matrix(parts: list[Element], order: str) -> Any:
    """A matrix of its parts: class, sizes, name; the values, of a sparse one behind its rows and columns."""
    kind, sizes, *values = [_numbers(part, order) for part in (*parts[:2], *parts[3:])]
    if (sizes < 0).any():
        raise ValueError(f"sizes {sizes.tolist()}")
    if kind[0] & 0xFF != SPARSE:
        return values[0].reshape(sizes, order="F")
    from scipy.sparse import csc_array

    rows, ends, stored = values
    return csc_array((stored[: ends[-1]], rows[: ends[-1]], ends), shape=tuple(sizes.tolist()))
