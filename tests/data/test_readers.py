"""Readers of single sets, on their fixtures: CIFAR-10, UCI HAR, PhysioNet's BIDMC and its windows."""

import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import DataError
from physml.data.datasets import Arrays, DataSet
from physml.data.readers import bidmc, cifar10, har
from physml.data.readers.bidmc import BIDMC
from physml.data.readers.bidmc_tsr import HEART
from physml.data.readers.cifar10 import CIFAR10
from physml.data.readers.har import TOP, UCI_HAR
from physml.data.store import Store
from physml.data.verify import fingerprint

NEEDED, VERIFY = TOP, "content"  # of the real files
REPACKED = "bidmc_pleth_ii_31subj.npz"


def read(root: Path, data: DataSet, cache: str = "cache") -> Arrays:
    return Store(root, root.parent / cache, verify="off").read(data)


def fixture(data: DataSet, folder: Path) -> Path:
    data.fixture(folder / "data")
    return folder / "data"


CHANGES = {UCI_HAR: {"x_train": 1e-6, "y_test": 1, "subject_train": 1}, CIFAR10: {"x_train": 1, "y_train": 1}}


@pytest.mark.parametrize("data", CHANGES, ids=lambda data: data.name)
def test_the_fingerprint_does_not_see_the_order_of_items_but_all_else(data: DataSet, tmp_path: Path) -> None:
    arrays = read(fixture(data, tmp_path), data)
    want = fingerprint(data, arrays)
    order = np.random.default_rng(1).permutation(len(arrays["y_train"]))
    assert fingerprint(data, {k: v[order] if k.endswith("train") else v for k, v in arrays.items()}) == want
    for name, change in CHANGES[data].items():
        other = dict(arrays) | {name: arrays[name].copy()}
        other[name].flat[5] += change
        assert fingerprint(data, other) != want, name


def test_images_and_labels_of_cifar_are_those_of_the_pickles(tmp_path: Path) -> None:
    root = fixture(CIFAR10, tmp_path)
    arrays = read(root, CIFAR10)
    with tarfile.open(root / cifar10.ARCHIVE) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
    for part, names in cifar10.BATCHES.items():
        loaded = [pickle.loads(files[f"{cifar10.TOP}/{name}"]) for name in names]
        flat = np.concatenate([entry["data"] for entry in loaded])
        assert arrays[f"y_{part}"].tolist() == [y for entry in loaded for y in entry["labels"]]
        x = arrays[f"x_{part}"]
        assert x.dtype == np.uint8 and x.shape == (len(flat), 3, 32, 32)
        for i, channel, row, column in ((0, 0, 0, 0), (3, 2, 31, 5), (11, 1, 7, 30)):
            assert x[i, channel, row, column] == flat[i, 1024 * channel + 32 * row + column]


def test_channels_of_har_keep_their_order(tmp_path: Path) -> None:
    root = fixture(UCI_HAR, tmp_path)
    with zipfile.ZipFile(root / har.ARCHIVE) as archive:
        lines = archive.read(f"{TOP}/test/Inertial Signals/body_gyro_y_test.txt").decode().splitlines()
    x = read(root, UCI_HAR)["x_test"]
    assert np.array_equal(x[3, :, har.CHANNELS.index("body_gyro_y")], np.array(lines[3].split(), np.float32))


def test_the_real_windows_of_har_are_the_published_ones(real: Store) -> None:
    arrays = real.read(UCI_HAR)
    assert arrays["x_train"].shape == (7352, 128, 9) and arrays["x_test"].shape == (2947, 128, 9)
    assert np.bincount(arrays["y_train"]).tolist() == [0, 1226, 1073, 986, 1286, 1374, 1407]
    assert np.bincount(arrays["y_test"]).tolist() == [0, 496, 471, 420, 491, 532, 537]
    assert real.used[har.ARCHIVE]["verified"] == "content"
    x = arrays["x_train"].astype(np.float64)
    # As in the code of OnlineRNN, onlinernn/datasets/har_dataset.py.
    assert (x.mean(), x.std()) == pytest.approx((0.10206605722975093, 0.4021651763839265), rel=1e-12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The CSV files of BIDMC's archive, unpacked."""
    root = fixture(BIDMC, tmp_path)
    with zipfile.ZipFile(root / bidmc.ARCHIVE) as archive:
        archive.extractall(root)
    (root / bidmc.ARCHIVE).unlink()
    return root / bidmc.TOP / "bidmc_csv"


def repack(arrays: Arrays, path: Path, **change: np.ndarray) -> None:
    """As a person would: all 53 subjects' numerics with more columns, the signals of 31."""
    numerics = np.full((53, arrays["numerics"].shape[1], 5), -1, np.float32)
    numerics[np.array(bidmc.SUBJECTS) - 1] = np.insert(np.insert(arrays["numerics"], 2, 0, -1), 4, 0, -1)
    content = {
        **arrays,
        **{"signal_names": np.array(["PLETH", "II"]), "fs": np.int64(125)},
        **{"numerics": numerics, "numerics_subject": np.arange(1, 54)},
        "numerics_names": np.array(["Time [s]", "HR", "PULSE", "RESP", "SpO2"]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{**content, **change})


def test_repacked_records_give_the_same_arrays_as_the_archive(folder: Path, tmp_path: Path) -> None:
    from_csv = read(tmp_path / "data", BIDMC)
    assert from_csv["signals"].shape == (31, 376, 2) and from_csv["numerics"].shape == (31, 4, 3)
    assert np.isnan(from_csv["numerics"][:, 0, 2]).all()
    repack(from_csv, tmp_path / "other" / REPACKED)
    repacked = read(tmp_path / "other", BIDMC)
    assert all(np.array_equal(from_csv[k], repacked[k], equal_nan=True) for k in from_csv)
    assert fingerprint(BIDMC, from_csv) == fingerprint(BIDMC, repacked)
    changed = dict(from_csv) | {"numerics": from_csv["numerics"].copy()}
    changed["numerics"][3, 2, 1] += 1
    assert fingerprint(BIDMC, changed) != fingerprint(BIDMC, from_csv)


def test_columns_are_found_by_name_and_a_foreign_npz_is_refused(folder: Path, tmp_path: Path) -> None:
    want = read(tmp_path / "data", BIDMC)
    path = folder / "bidmc_05_Signals.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("".join(",".join([r[0], r[3], r[1], r[2]]) + "\n" for r in rows))
    assert np.array_equal(want["signals"], read(tmp_path / "data", BIDMC, "second")["signals"])
    path = tmp_path / "other" / REPACKED
    repack(want, path, fs=np.int64(250))
    refuses(DataError, "at 125 Hz", read, tmp_path / "other", BIDMC)
    np.savez(path, signals=want["signals"])
    refuses(DataError, "has no array subject; it has signals", read, tmp_path / "other", BIDMC)
    path.write_bytes(path.read_bytes()[:100])
    refuses(DataError, "is not a valid zip archive", read, tmp_path / "other", BIDMC)


def test_windows_of_train_come_before_those_of_test(tmp_path: Path) -> None:
    arrays = read(fixture(HEART, tmp_path), HEART)
    assert arrays["x"].shape == (40, 40, 2) and arrays["x"].dtype == np.float32
    last = (tmp_path / "data/BIDMC32HR_TEST.ts").read_text().splitlines()[-1].split(":")
    assert float(last[-1]) == arrays["y"][-1]
    assert np.array_equal(arrays["x"][-1, :, 1], np.array(last[1].split(","), np.float32))
