"""BIDMC32HR and BIDMC32RR of the TSR archive: windows of 32 s of PPG and ECG, a rate to predict. No torch.

Axes: N windows, T = 4000 steps at 125 Hz, D = 2: PPG, ECG.
"""

from functools import partial
from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile
from physml.data.readers.timeseries import read_ts, write_ts

NAMES = ("BIDMC32HR", "BIDMC32RR")
N = 7949  # windows of both files together, as the papers say
T, T_FIXTURE = 4000, 40
D = 2
FIXTURE_SIZES = {"TRAIN": 28, "TEST": 12}


def _read(files: Files, name: str) -> Arrays:
    """x (N, T, 2) float32, y (N,) float64: the windows of TRAIN, then those of TEST."""
    both = [read_ts(files.path(f"{name}_{part}.ts")) for part in FIXTURE_SIZES]
    for cases in both:
        if cases.name.upper() in set(NAMES) - {name}:
            raise WrongFile(f"{cases.path} is the problem {cases.name}; expected {name}.")
        cases.expect(cases.name, [len(cases.x)], None)
    x = np.concatenate([cases.stacked(files.sizes(T, T_FIXTURE), D) for cases in both])
    y = np.concatenate([cases.y for cases in both])
    n_windows = sum(FIXTURE_SIZES.values()) if x.shape[1] == T_FIXTURE else N
    if len(x) != n_windows:
        sizes = " and ".join(str(len(cases.x)) for cases in both)
        raise WrongFile(
            f"{both[0].path} and {both[1].path.name} have {sizes} windows, together {n_windows} were "
            "expected: half a file, or another one."
        )
    if y.min() <= 0 or y.max() >= 300:
        raise WrongFile(
            f"{both[0].path}: rates must lie between 0 and 300 per minute; got {y.min():g} to {y.max():g}."
        )
    return {"x": x, "y": y}


def _fixture(root: Path, name: str) -> None:
    """Two sines of the rate that is to be predicted, with noise."""
    rng = np.random.RandomState(0)
    for part, n in FIXTURE_SIZES.items():
        rate = rng.uniform(50, 120, n).round(2)
        angle = rate[:, None] * np.arange(T_FIXTURE) / 400 + rng.uniform(0, 6, (n, 1))
        x = np.stack([np.sin(angle), np.cos(angle)], -1) + 0.1 * rng.standard_normal((n, T_FIXTURE, D))
        write_ts(root / f"{name}_{part}.ts", name, x, rate.tolist(), ())


HEART, RESPIRATORY = (
    DataSet(name.lower(), 1, partial(_read, name=name), partial(_fixture, name=name)) for name in NAMES
)
