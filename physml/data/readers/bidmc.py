"""BIDMC of PhysioNet: 8 minutes of PPG and ECG of intensive-care patients, and their rates. No torch here.

Axes: P subjects, T = 60,001 samples at 125 Hz, S = 481 seconds.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.archives import Tree, damaged
from physml.data.files.array_files import npz
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import write_zip

ARCHIVE = "bidmc-ppg-and-respiration-dataset-1.0.0.zip"
TOP = "bidmc-ppg-and-respiration-dataset-1.0.0"
RATE = 125  # samples per second

# The subjects that count, 31 of 53: those of the repacked file, so that its owner and the archive's get the
# same numbers.
SUBJECTS = (
    *(1, 2, 5, 11, 13, 15, 16, 17, 18, 19, 20, 21, 25, 26, 27, 30),
    *(32, 33, 35, 38, 39, 40, 42, 43, 45, 46, 48, 49, 50, 52, 53),
)
SIGNALS = ("PLETH", "II")
NUMERICS = ("Time [s]", "HR", "RESP")
SHAPE = (60_001, 481)
FIXTURE_SHAPE = (376, 4)

REPACKED = ("signals", "subject", "signal_names", "fs", "numerics", "numerics_subject", "numerics_names")


def _read(files: Files) -> Arrays:
    """signals (31, T, 2) float32: PPG and ECG lead II, as in the CSV files; numerics (31, S, 3) float32:
    second, heart rate and respiratory rate per minute, NaN where the monitor gave none; subject (31,).
    """
    path = files.path(ARCHIVE)
    if path.is_file() and path.suffix == ".npz":
        signals, numerics = _repacked(path)
    else:
        tree = files.tree(ARCHIVE)
        signals = np.stack([_table(tree, subject, "Signals", SIGNALS) for subject in SUBJECTS])
        numerics = np.stack([_table(tree, subject, "Numerics", NUMERICS) for subject in SUBJECTS])
    if (signals.shape[1], numerics.shape[1]) not in (SHAPE, FIXTURE_SHAPE)[: 1 + files.small]:
        raise WrongFile(
            f"{path}: expected {SHAPE[0]} samples and {SHAPE[1]} seconds of each subject; got "
            f"{signals.shape[1]} and {numerics.shape[1]}."
        )
    for subject, signal in zip(SUBJECTS, signals, strict=True):
        if not np.isfinite(signal).all():
            raise WrongFile(f"{path}: subject {subject} has signals that are not finite.")
    if not (np.diff(numerics[..., 0]) == 1).all():
        raise WrongFile(f"{path}: the numerics must be one second apart.")
    return {"signals": signals, "numerics": numerics, "subject": np.array(SUBJECTS, np.int64)}


def _csv_name(subject: int, kind: str) -> str:
    return f"{TOP}/bidmc_csv/bidmc_{subject:02d}_{kind}.csv"


def _table(tree: Tree, subject: int, kind: str, columns: tuple[str, ...]) -> np.ndarray:
    """Some columns of a subject's CSV file, (rows, columns) float32; their order in the file differs."""
    name = _csv_name(subject, kind)
    text = tree.bytes(name).decode("utf-8", "replace")
    try:
        header, *rows = [*csv.reader(io.StringIO(text, newline=""))] or [[]]
    except csv.Error as error:
        raise WrongFile(f"{tree.path}: {name}: {error}.") from error
    header = [column.strip() for column in header]
    absent = [column for column in columns if column not in header]
    if absent:
        raise WrongFile(f"{tree.path}: {name} has no column {absent[0]}; it has {header}.")
    where = [header.index(column) for column in columns]
    values = []
    for i, row in enumerate(rows, 2):
        try:
            values.append([float(row[k]) for k in where])
        except (ValueError, IndexError) as error:
            raise WrongFile(f"{tree.path}: {name}, line {i}: {error}.") from error
    expected = {shape[kind == "Numerics"] for shape in (SHAPE, FIXTURE_SHAPE)}
    if len(values) not in expected:
        raise WrongFile(f"{tree.path}: {name} has {len(values)} rows, expected {max(expected)}.")
    return np.array(values, np.float32)


def _repacked(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The same from one .npz file: signals (31, T, 2), numerics of all 53, and what their axes are."""
    arrays = npz(path, REPACKED, text=("signal_names", "numerics_names"))
    try:
        names = [str(n) for n in arrays["numerics_names"]]
        rows = [arrays["numerics_subject"].tolist().index(subject) for subject in SUBJECTS]
        numerics = arrays["numerics"][rows][..., [names.index(n) for n in NUMERICS]]
        fits = (
            tuple(arrays["subject"].tolist()) == SUBJECTS
            and tuple(str(n) for n in arrays["signal_names"]) == SIGNALS
            and int(arrays["fs"]) == RATE
        )
    except (ValueError, LookupError, TypeError) as error:
        raise damaged(path, ".npz file of repacked records", error) from error
    if not fits or arrays["signals"].ndim != 3 or numerics.ndim != 3:
        raise WrongFile(f"{path}: expected the signals {SIGNALS} of the subjects {SUBJECTS} at {RATE} Hz.")
    return arrays["signals"].astype(np.float32), numerics.astype(np.float32)


def _items(arrays: Arrays) -> Iterable[bytes]:
    """One subject each."""
    for subject, signals, numerics in zip(
        *(arrays[k] for k in ("subject", "signals", "numerics")), strict=True
    ):
        missing = np.isnan(numerics)  # a NaN has many forms
        yield b" ".join(
            [
                str(int(subject)).encode(),
                signals.astype("<f4").tobytes(),
                missing.tobytes(),
                np.where(missing, 0, numerics).astype("<f4").tobytes(),
            ]
        )


def _fixture(root: Path) -> None:
    """Three seconds of each subject: sines, and rates of which one is missing; in a zip as upstream."""
    rng = np.random.default_rng(0)
    members = {}
    t = np.arange(FIXTURE_SHAPE[0]) / RATE
    for subject in SUBJECTS:
        heart, breath = rng.integers(60, 110), rng.integers(10, 25)
        ppg = 0.5 + 0.3 * np.sin(2 * np.pi * heart / 60 * t)
        ecg = 0.3 + 0.2 * np.sin(2 * np.pi * heart / 60 * t + 1)
        signals = [f"{a:g},{0.1:g},{b:.5g},{c:.5g}" for a, b, c in zip(t, ppg, ecg, strict=True)]
        seconds = range(FIXTURE_SHAPE[1])
        numerics = [f"{s},{heart},{heart + 1},{'NaN' if s == 0 else breath},97" for s in seconds]
        for kind, rows in (
            ("Signals", ["Time [s], RESP, PLETH, II", *signals]),
            ("Numerics", ["Time [s], HR, PULSE, RESP, SpO2", *numerics]),
        ):
            members[_csv_name(subject, kind)] = "\n".join(rows) + "\n"
    write_zip(root / ARCHIVE, members)


BIDMC = DataSet("bidmc", 1, _read, _fixture, _items)
