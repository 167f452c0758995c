"""PhysioNet's BIDMC as its zip and repacked; BIDMC32HR and RR of the archive."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from physml.base.errors import DataError
from physml.data.datasets import DataSet
from physml.data.readers.bidmc import ARCHIVE, BIDMC, SUBJECTS, TOP
from physml.data.readers.bidmc_tsr import HEART
from physml.data.store import Store
from physml.data.verify import fingerprint

REPACKED = "bidmc_pleth_ii_31subj.npz"


def read(root: Path, dataset: DataSet) -> dict[str, np.ndarray]:
    return Store(root, root.parent / "cache", verify="off").read(dataset)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The CSV files of the archive, unpacked."""
    root = tmp_path / "data"
    BIDMC.fixture(root)
    with zipfile.ZipFile(root / ARCHIVE) as archive:
        archive.extractall(root)
    (root / ARCHIVE).unlink()
    return root / TOP / "bidmc_csv"


def repack(arrays: dict[str, np.ndarray], path: Path, **change: np.ndarray) -> None:
    """As a person would: all 53 subjects' numerics with more columns, the signals of 31."""
    numerics = np.full((53, arrays["numerics"].shape[1], 5), -1, np.float32)
    numerics[np.array(SUBJECTS) - 1] = np.insert(np.insert(arrays["numerics"], 2, 0, -1), 4, 0, -1)
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


def test_columns_are_found_by_name(folder: Path, tmp_path: Path) -> None:
    want = read(tmp_path / "data", BIDMC)
    path = folder / "bidmc_05_Signals.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("".join(",".join([r[0], r[3], r[1], r[2]]) + "\n" for r in rows))
    again = Store(tmp_path / "data", tmp_path / "second", verify="off").read(BIDMC)
    assert np.array_equal(want["signals"], again["signals"])


def test_a_foreign_npz_is_refused(folder: Path, tmp_path: Path) -> None:
    arrays = read(tmp_path / "data", BIDMC)
    path = tmp_path / "other" / REPACKED
    repack(arrays, path, fs=np.int64(250))
    with pytest.raises(DataError, match="at 125 Hz"):
        read(tmp_path / "other", BIDMC)
    np.savez(path, signals=arrays["signals"])
    with pytest.raises(DataError, match="has no array subject; it has signals"):
        read(tmp_path / "other", BIDMC)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="is not a valid zip archive"):
        read(tmp_path / "other", BIDMC)


def test_windows_of_train_come_before_those_of_test(tmp_path: Path) -> None:
    HEART.fixture(tmp_path / "data")
    arrays = read(tmp_path / "data", HEART)
    assert arrays["x"].shape == (40, 40, 2) and arrays["x"].dtype == np.float32
    last = (tmp_path / "data/BIDMC32HR_TEST.ts").read_text().splitlines()[-1].split(":")
    assert float(last[-1]) == arrays["y"][-1]
    assert np.array_equal(arrays["x"][-1, :, 1], np.array(last[1].split(","), np.float32))
