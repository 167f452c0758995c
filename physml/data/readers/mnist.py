"""MNIST, from the four gzipped idx files."""

import gzip
import math
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from physml.base.errors import DataError, working
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile, gunzip, read_bytes

PARTS = {"train": "train", "test": "t10k"}
SIZES = {"train": 60_000, "test": 10_000}
N_FIXTURE = {"train": 60, "test": 20}


def name(part: str, kind: str) -> str:
    """Name of the file with the "images" or "labels" of a part."""
    return f"MNIST/raw/{PARTS[part]}-{'images-idx3' if kind == 'images' else 'labels-idx1'}-ubyte.gz"


def read(files: Files) -> Arrays:
    """Images <part>_x (N, 28, 28) uint8 and labels <part>_y (N,) uint8, for train and test."""
    arrays: Arrays = {}
    for part in PARTS:
        images, labels = (files.path(name(part, kind)) for kind in ("images", "labels"))
        x, y = read_idx(images, dimensions=3), read_idx(labels, dimensions=1)
        if x.shape[1:] != (28, 28):
            raise WrongFile(f"{images}: images must be 28 x 28; got {x.shape[1:]}.")
        if len(x) not in files.sizes(SIZES[part], N_FIXTURE[part]):
            raise WrongFile(f"{images}: {len(x)} images, expected {SIZES[part]}.")
        if len(x) != len(y):
            raise DataError(
                f"{labels}: {len(y)} labels for {len(x)} images. Get both again: `physml data get mnist`."
            )
        if y.max(initial=0) > 9:
            raise WrongFile(f"{labels}: label {y.max()} at position {y.argmax()} is no digit.")
        arrays |= {f"{part}_x": x, f"{part}_y": y}
    return arrays


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The bytes of a gzipped idx file as an array, by torchvision where it works; DataError if it is none."""
    content = gunzip(read_bytes(path), path)
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise WrongFile(f"{path} is no idx file of bytes with {dimensions} dimension(s).")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) != header + math.prod(shape) or max(shape) > len(content):
        raise WrongFile(f"{path} must hold {shape} bytes; got {len(content) - header} in all.")
    if (vision := working("torchvision.datasets.mnist")) is None:
        return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return vision.read_sn3_pascalvincent_tensor(file.name).numpy()


def fixture(root: Path) -> None:
    """60 + 20 images of noise in the shape of a bar, whose position is the digit."""
    rng = np.random.RandomState(0)
    for part, n in N_FIXTURE.items():
        y = (np.arange(n) % 10).astype(np.uint8)
        x = rng.randint(0, 60, (n, 28, 28)).astype(np.uint8)
        for image, digit in zip(x, y, strict=True):
            image[:, 2 * digit + 3 : 2 * digit + 6] += 150
        for kind, array in (("images", x), ("labels", y)):
            write_idx(root / name(part, kind), array)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.tobytes(), mtime=0))


def items(arrays: Arrays) -> Iterable[bytes]:
    """Each image with its part, place and label: the held-out images are named by their places."""
    for part in PARTS:
        for i, (x, y) in enumerate(zip(arrays[f"{part}_x"], arrays[f"{part}_y"].tolist(), strict=True)):
            yield f"{part} {i} {y} ".encode() + x.tobytes()


MNIST = DataSet("mnist", 1, read, fixture, items, remedy="Delete it and run `physml data get NAME`.")
