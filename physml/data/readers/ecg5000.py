"""ECG5000: single heart beats of one patient with severe congestive heart failure. No torch here.

Axes: N beats, T = 140 steps, D = 1.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.readers.timeseries import read_ts, write_ts

SIZES = {"train": 500, "test": 4500}
LABELS = ("1", "2", "3", "4", "5")
T, T_FIXTURE = 140, 12


def name(part: str) -> str:
    return f"ECG5000_{part.upper()}.ts"


def _read(files: Files) -> Arrays:
    """x_train (500, T, 1), x_test (4500, T, 1) float32; y_train, y_test int64, 0..4 for the labels 1..5."""
    arrays: Arrays = {}
    for part, n in SIZES.items():
        cases = read_ts(files.path(name(part))).expect("ECG5000", [n], LABELS)
        arrays |= {f"x_{part}": cases.stacked(files.sizes(T, T_FIXTURE), 1), f"y_{part}": cases.y}
    return arrays


def _items(arrays: Arrays) -> Iterable[bytes]:
    """Each beat with its part and label: beats may come in any order."""
    for part in SIZES:
        for x, y in zip(arrays[f"x_{part}"], arrays[f"y_{part}"].tolist(), strict=True):
            yield f"{part} {y} ".encode() + x.astype("<f4").tobytes()


def _fixture(root: Path) -> None:
    """All 5000 beats, with 12 steps: a dip whose place tells the class; most are of the first class."""
    rng = np.random.RandomState(0)
    for part, n in SIZES.items():
        y = rng.choice(len(LABELS), n, p=[0.58, 0.35, 0.02, 0.04, 0.01])
        dip = -3 * np.exp(-((np.arange(T_FIXTURE) - 2 * y[:, None] - 1) ** 2))
        x = (dip + 0.3 * rng.standard_normal((n, T_FIXTURE))).round(3)
        write_ts(root / name(part), "ECG5000", x[:, :, None], y + 1, LABELS)


ECG5000 = DataSet("ecg5000", 1, _read, _fixture, _items)
