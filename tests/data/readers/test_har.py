"""UCI HAR as its zip and as its folder: what is read."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from physml.data.readers.har import ARCHIVE, CHANNELS, FIXTURE_SIZES, TOP, UCI_HAR
from physml.data.store import Store
from physml.data.verify import fingerprint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    UCI_HAR.fixture(tmp_path / "data")
    return tmp_path / "data"


def read(root: Path) -> dict[str, np.ndarray]:
    return Store(root, root.parent / "cache", verify="off").read(UCI_HAR)


def test_channels_keep_their_order(root: Path) -> None:
    with zipfile.ZipFile(root / ARCHIVE) as archive:
        lines = archive.read(f"{TOP}/test/Inertial Signals/body_gyro_y_test.txt").decode().splitlines()
    x = read(root)["x_test"]
    assert np.array_equal(x[3, :, CHANNELS.index("body_gyro_y")], np.array(lines[3].split(), np.float32))


def test_the_fingerprint_does_not_see_the_order_of_windows_but_all_else(root: Path) -> None:
    arrays = read(root)
    want = fingerprint(UCI_HAR, arrays)
    order = np.random.default_rng(1).permutation(FIXTURE_SIZES["train"])
    shuffled = {k: v[order] if k.endswith("train") else v for k, v in arrays.items()}
    assert fingerprint(UCI_HAR, shuffled) == want
    for name, change in {"x_train": 1e-6, "y_test": 1, "subject_train": 1}.items():
        other = dict(arrays) | {name: arrays[name].copy()}
        other[name].flat[5] += change
        assert fingerprint(UCI_HAR, other) != want, name


def test_the_real_windows_are_the_published_ones(tmp_path: Path) -> None:
    data = os.environ.get("PHYSML_DATA")
    if not data or not (Path(data) / TOP).is_dir():
        pytest.skip(f"{TOP} is not below PHYSML_DATA")
    store = Store(Path(data), tmp_path, verify="content")
    arrays = store.read(UCI_HAR)
    assert arrays["x_train"].shape == (7352, 128, 9) and arrays["x_test"].shape == (2947, 128, 9)
    assert np.bincount(arrays["y_train"]).tolist() == [0, 1226, 1073, 986, 1286, 1374, 1407]
    assert np.bincount(arrays["y_test"]).tolist() == [0, 496, 471, 420, 491, 532, 537]
    assert store.used[ARCHIVE]["verified"] == "content"
    x = arrays["x_train"].astype(np.float64)
    # As in the code of OnlineRNN, onlinernn/datasets/har_dataset.py.
    assert (x.mean(), x.std()) == pytest.approx((0.10206605722975093, 0.4021651763839265), rel=1e-12)
