"""The reader of CIFAR-10, on its fixture and on files that are wrong."""

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from physml.base.errors import DataError
from physml.data.readers import cifar10
from physml.data.readers.cifar10 import ARCHIVE, CIFAR10, TOP
from physml.data.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    CIFAR10.fixture(tmp_path / "data")
    return tmp_path / "data"


def read(root: Path) -> dict[str, np.ndarray]:
    return Store(root, root / "cache", verify="off").read(CIFAR10)


def entries(root: Path) -> dict[str, bytes]:
    with tarfile.open(root / ARCHIVE) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}


def write(root: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(root / ARCHIVE, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_images_and_labels_are_those_of_the_pickles(root):
    arrays, files = read(root), entries(root)
    for part, names in cifar10.BATCHES.items():
        loaded = [pickle.loads(files[f"{TOP}/{name}"]) for name in names]
        flat = np.concatenate([entry["data"] for entry in loaded])
        assert arrays[f"y_{part}"].tolist() == [y for entry in loaded for y in entry["labels"]]
        x = arrays[f"x_{part}"]
        assert x.dtype == np.uint8 and x.shape == (len(flat), 3, 32, 32)
        for i, channel, row, column in ((0, 0, 0, 0), (3, 2, 31, 5), (11, 1, 7, 30)):
            assert x[i, channel, row, column] == flat[i, 1024 * channel + 32 * row + column]


def test_the_fixture_is_always_the_same(root, tmp_path):
    CIFAR10.fixture(tmp_path / "again")
    assert (tmp_path / "again" / ARCHIVE).read_bytes() == (root / ARCHIVE).read_bytes()
    assert (root / ARCHIVE).stat().st_size < 1_000_000


def test_an_unpacked_folder_is_read_too(root):
    want = read(root)
    with tarfile.open(root / ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    (root / ARCHIVE).unlink()
    found = read(root)
    assert all(np.array_equal(found[name], want[name]) for name in want)


def test_the_content_does_not_depend_on_the_order_of_the_images(root):
    arrays = read(root)
    order = np.random.default_rng(0).permutation(len(arrays["y_train"]))
    turned = {**arrays, "x_train": arrays["x_train"][order], "y_train": arrays["y_train"][order]}
    assert sorted(CIFAR10.items(arrays)) == sorted(CIFAR10.items(turned))
    turned["y_train"] = turned["y_train"][::-1]
    assert sorted(CIFAR10.items(arrays)) != sorted(CIFAR10.items(turned))


class Foreign:
    """Opening a pickle of it would run code."""

    def __reduce__(self) -> tuple:
        return Path.touch, (Path("opened"),)


def changed(**values: object) -> Callable[[bytes], bytes]:
    return lambda content: pickle.dumps({**pickle.loads(content), **values}, protocol=2)


@pytest.mark.parametrize(
    ("member", "change", "says"),
    [
        ("data_batch_3", lambda c: pickle.dumps({"data": Foreign()}), "it names"),
        ("data_batch_3", lambda c: c[: len(c) // 2], "cannot be read"),
        ("data_batch_3", lambda c: b"", "cannot be read"),
        ("data_batch_3", lambda c: b"<html>404</html>", "cannot be read"),
        ("data_batch_3", lambda c: pickle.dumps([1]), "expected a dictionary; got list"),
        ("test_batch", changed(labels=[10] * 20), "labels must be 0..9; got 10"),
        ("test_batch", changed(labels=[1] * 19), "expected a list of 20 labels"),
        ("test_batch", changed(data=np.zeros((20, 3071), np.uint8)), "images of 3072 bytes"),
        ("test_batch", changed(data=np.zeros((19, 3072), np.uint8)), "expected 10000 images"),
        ("test_batch", changed(data=np.zeros((20, 3072))), "there are no images"),
        ("batches.meta", changed(label_names=["apple", "aquarium_fish"]), "classes are not those"),
    ],
)
def test_a_wrong_batch_is_refused_by_name(root, monkeypatch, tmp_path, member, change, says):
    monkeypatch.chdir(tmp_path)
    files = entries(root)
    files[f"{TOP}/{member}"] = change(files[f"{TOP}/{member}"])
    write(root, files)
    with pytest.raises(DataError, match=says) as refusal:
        read(root)
    assert f"{TOP}/{member}" in str(refusal.value) and "physml data get cifar10" in str(refusal.value)
    assert not (tmp_path / "opened").exists()
    assert not list((root / "cache").rglob("*.npz"))


def test_a_missing_batch_is_refused_by_name(root):
    files = entries(root)
    del files[f"{TOP}/data_batch_4"]
    write(root, files)
    with pytest.raises(DataError, match="data_batch_4"):
        read(root)


def test_another_archive_is_refused_by_its_checksum(root):
    content = (root / ARCHIVE).read_bytes()
    with pytest.raises(DataError, match="170498071"):
        Store(root, root / "cache").read(CIFAR10)
    (root / ARCHIVE).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=ARCHIVE):
        read(root)
    (root / ARCHIVE).write_bytes(gzip.compress(b"<html>404</html>"))
    with pytest.raises(DataError, match=ARCHIVE):
        read(root)
