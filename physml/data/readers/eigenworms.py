"""EigenWorms: how a worm moves, as six shapes over time; wild type or one of four mutants. No torch here.

Axes: N cases, T = 17984 steps, D = 6 shapes.
"""

from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.readers.timeseries import read_ts, write_ts

SIZES = {"train": 128, "test": 131}
LABELS = ("1", "2", "3", "4", "5")
T, T_FIXTURE = 17_984, 24
D = 6


def name(part: str) -> str:
    return f"EigenWorms_{part.upper()}.ts"


def _read(files: Files) -> Arrays:
    """x_train (128, T, 6), x_test (131, T, 6) float32; y_train, y_test int64, 0..4 for the labels 1..5."""
    arrays: Arrays = {}
    for part, n in SIZES.items():
        cases = read_ts(files.path(name(part))).expect("EigenWorms", [n], LABELS)
        arrays |= {f"x_{part}": cases.stacked(files.sizes(T, T_FIXTURE), D), f"y_{part}": cases.y}
    return arrays


def _fixture(root: Path) -> None:
    """All 259 cases, with 24 steps: slow waves, each class with its own frequency, half a turn of noise."""
    rng = np.random.RandomState(0)
    n = sum(SIZES.values())
    y = rng.choice(len(LABELS), n, p=[0.42, 0.17, 0.14, 0.17, 0.10])
    phase = rng.uniform(0, np.pi, (n, 1, D))
    angle = 2 * np.pi * (y[:, None, None] + 1) * np.arange(T_FIXTURE)[:, None] / T_FIXTURE
    x = 3 * np.sin(angle + phase) + 0.3 * rng.standard_normal((n, T_FIXTURE, D))
    first = 0
    for part, size in SIZES.items():
        those = slice(first, first + size)
        write_ts(root / name(part), "EigenWorms", x[those], y[those] + 1, LABELS)
        first += size


EIGENWORMS = DataSet("eigenworms", 1, _read, _fixture)
