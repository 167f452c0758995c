"""CIFAR-10, from its archive of pickles. Axes: N images, 3 x 32 x 32 pixels."""

import pickle
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile
from physml.data.files.safe_pickle import arrays, shown, unpickle
from physml.data.readers.fixtures import write_tar

ARCHIVE = "cifar-10-python.tar.gz"
TOP = "cifar-10-batches-py"
BATCHES = {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)}
META = "batches.meta"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# Images of one batch file, as published; of a fixture.
IMAGES = 10_000
FIXTURE_IMAGES = {"train": 12, "test": 20}


def _read(files: Files) -> Arrays:
    """x_train, x_test (N, 3, 32, 32) uint8, channels red, green, blue; y_train, y_test (N,) int64, 0..9."""
    tree = files.tree(ARCHIVE)
    members = {f"{TOP}/{name}" for name in (*BATCHES["train"], *BATCHES["test"], META)}
    contents = {name: content for name, content in tree.items(f"{TOP}/*") if name in members}
    for name in sorted(members - set(contents)):
        raise tree.missing(name)
    entries = {
        PurePosixPath(name).name: _entry(files, f"{tree.path}: {name}", PurePosixPath(name).name, content)
        for name, content in contents.items()
    }
    arrays: Arrays = {}
    for part, names in BATCHES.items():
        arrays[f"x_{part}"] = np.concatenate([entries[name]["data"] for name in names]).reshape(-1, 3, 32, 32)
        arrays[f"y_{part}"] = np.concatenate([np.array(entries[name]["labels"], np.int64) for name in names])
    return arrays


def _entry(files: Files, where: str, name: str, content: bytes) -> dict[str, Any]:
    """Content of a batch file; DataError unless it is whole and has images and labels of the right kind."""
    entry = unpickle(content, arrays, where)
    if not isinstance(entry, dict):
        raise WrongFile(f"{where}: expected a dictionary; got {type(entry).__name__}.")
    if name == META:
        if entry.get("label_names") != list(CLASSES):
            raise WrongFile(f"{where}: the classes are not those of CIFAR-10.")
        return entry
    data, labels = entry.get("data"), entry.get("labels")
    sizes = files.sizes(IMAGES, FIXTURE_IMAGES["test" if name in BATCHES["test"] else "train"])
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2):
        raise WrongFile(f"{where}: there are no images in it.")
    if data.shape[1] != 3072 or len(data) not in sizes:
        raise WrongFile(f"{where}: expected {IMAGES} images of 3072 bytes; got {data.shape}.")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise WrongFile(f"{where}: expected a list of {len(data)} labels.")
    for i, y in enumerate(labels):
        if not isinstance(y, int) or not 0 <= y < len(CLASSES):
            raise WrongFile(f"{where}: labels must be 0..9; that of image {i} is {shown(y)}.")
    return {**entry, "data": np.asarray(data)}


def _items(read: Arrays) -> Iterable[bytes]:
    """Each image with its part and label."""
    for part in BATCHES:
        for x, y in zip(read[f"x_{part}"], read[f"y_{part}"].tolist(), strict=True):
            yield f"{part} {y} ".encode() + x.tobytes()


def _fixture(root: Path) -> None:
    """Noise whose mean colour tells the class, in a tar.gz of pickles as upstream."""
    rng = np.random.default_rng(0)
    entries: dict[str, Any] = {}
    entries[META] = {"num_cases_per_batch": 12, "label_names": list(CLASSES), "num_vis": 3072}
    for part, names in BATCHES.items():
        n = FIXTURE_IMAGES[part]
        for k, name in enumerate(names):
            y = (np.arange(n) + k) % len(CLASSES)
            level = np.stack([25 * y, 255 - 25 * y, (60 * y) % 256], 1).repeat(1024, 1)
            x = np.clip(level + rng.normal(0, 20, level.shape), 0, 255).astype(np.uint8)
            entry = {"batch_label": name, "labels": y.tolist(), "data": x}
            entries[name] = entry | {"filenames": [f"{name}_{i}.png" for i in range(n)]}
    pickles = {f"{TOP}/{name}": pickle.dumps(entry, protocol=2) for name, entry in entries.items()}
    write_tar(root / ARCHIVE, pickles)


CIFAR10 = DataSet("cifar10", 1, _read, _fixture, _items)
