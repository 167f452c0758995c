"""Arrays in .npy, .npz and .mat files of others, and JSON; what they declare is checked first. No torch.

`names` are those of the arrays that must be there. A DataError names the file, `where`.
"""

import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from physml.base import opened
from physml.base.errors import DataError
from physml.base.text import brief
from physml.data.files.archives import ZipTree
from physml.data.files.limits import CHUNK, WrongFile, most, read_bytes, refuse_bomb

NUMBERS, TEXT = "biufc", "SU"  # kinds of dtypes


def npy(content: bytes, where: object) -> np.ndarray:
    """The array of an .npy file: of numbers or text, with as many bytes as its header says."""
    file = io.BytesIO(content)
    try:
        shape, dtype = npy_header(file)
        if dtype.kind not in NUMBERS + TEXT or not dtype.itemsize:
            raise ValueError(f"an array of {dtype}, expected numbers or text")
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


COMPRESSED = 15  # the type of an element of a .mat file that holds another one, packed by zlib
CLASSES = (
    "double",
    "single",
    "logical",
    "sparse",
    *(f"{u}int{8 * 2**k}" for u in ("", "u") for k in range(4)),
)


def mat(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """These matrices of numbers, full or sparse, of a .mat file of version 5."""
    from scipy.io import loadmat, whosmat

    content = read_bytes(path)
    try:
        _refuse_large_elements(path, content)
        kinds = {name: kind for name, _, kind in whosmat(io.BytesIO(content))}
        if absent := [name for name in names if name not in kinds]:
            raise WrongFile(f"{path} has no {absent[0]}; it has {', '.join(kinds)[:200]}.")
        for name in names:
            if kinds[name] not in CLASSES:
                raise WrongFile(f"{path}: {name} must be a matrix of numbers; it is {kinds[name]}.")
        matrices = loadmat(io.BytesIO(content), variable_names=list(names), struct_as_record=False)
    except DataError:
        raise
    except Exception as error:  # scipy raises about a dozen kinds for damaged files
        raise WrongFile(f"{path} is not a valid MATLAB file: {brief(error)}.") from error
    return {name: matrices[name] for name in names}


def _refuse_large_elements(path: Path, content: bytes) -> None:
    """DataError where the packed elements of a .mat file unpack to more than they may."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("no header of version 5")
    at, total = 128, 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        at += 8
        if kind == COMPRESSED:
            unpack, rest = zlib.decompressobj(), content[at : at + size]
            while rest and not unpack.eof:
                total += len(unpack.decompress(rest, CHUNK))
                rest = unpack.unconsumed_tail
                if total > most(len(content)):
                    refuse_bomb(path, total, len(content))
        at += size
