"""The reader of CIFAR-10, on its fixture."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from physml.data.readers import cifar10
from physml.data.readers.cifar10 import ARCHIVE, CIFAR10, TOP
from physml.data.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    CIFAR10.fixture(tmp_path / "data")
    return tmp_path / "data"


def read(root: Path) -> dict[str, np.ndarray]:
    return Store(root, root / "cache", verify="off").read(CIFAR10)


def test_images_and_labels_are_those_of_the_pickles(root):
    arrays = read(root)
    with tarfile.open(root / ARCHIVE) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    for part, names in cifar10.BATCHES.items():
        loaded = [pickle.loads(files[f"{TOP}/{name}"]) for name in names]
        flat = np.concatenate([entry["data"] for entry in loaded])
        assert arrays[f"y_{part}"].tolist() == [y for entry in loaded for y in entry["labels"]]
        x = arrays[f"x_{part}"]
        assert x.dtype == np.uint8 and x.shape == (len(flat), 3, 32, 32)
        for i, channel, row, column in ((0, 0, 0, 0), (3, 2, 31, 5), (11, 1, 7, 30)):
            assert x[i, channel, row, column] == flat[i, 1024 * channel + 32 * row + column]


def test_the_content_does_not_depend_on_the_order_of_the_images(root):
    arrays = read(root)
    order = np.random.default_rng(0).permutation(len(arrays["y_train"]))
    turned = {**arrays, "x_train": arrays["x_train"][order], "y_train": arrays["y_train"][order]}
    assert sorted(CIFAR10.items(arrays)) == sorted(CIFAR10.items(turned))
    turned["y_train"] = turned["y_train"][::-1]
    assert sorted(CIFAR10.items(arrays)) != sorted(CIFAR10.items(turned))
