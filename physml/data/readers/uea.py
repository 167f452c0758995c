"""Any set of the UCR and UEA archives of time series, by its name. Axes: N cases, T steps, D dimensions."""

import importlib.util
import re
from functools import partial
from pathlib import Path

import numpy as np

from physml.base.errors import DataError, InputError
from physml.data.datasets import Arrays, DataSet, Files, ShippedFile, Upstream
from physml.data.files.labels import coded
from physml.data.files.limits import WrongFile
from physml.data.readers.timeseries import Cases, read_ts, write_ts

PARTS = ("train", "test")
ARCHIVE = "https://www.timeseriesclassification.com/aeon-toolkit"
REMEDY = "Correct the file, or get that of the archive again: `physml data get NAME`."
FOLDERS = ("ucr_uea/{name}", "Univariate_ts/{name}", "Multivariate_ts/{name}", "{name}")  # below PHYSML_DATA


def data_set(name: str) -> DataSet:
    """The set `name`, such as BasicMotions: its two .ts files below PHYSML_DATA, else those in sktime.

    Errors: InputError for a name that no set of the archives can have.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
        raise InputError(f"name must be that of a set of the archives, such as BasicMotions; got {name!r}.")
    read, fixture = partial(_read, name), partial(_fixture, name)
    return DataSet(f"uea_{name}", 3, read, fixture, about=_about(name), remedy=REMEDY)


def _file(name: str, part: str) -> str:
    return f"ucr_uea/{name}_{part.upper()}.ts"


def _about(name: str) -> Upstream:
    files = []
    for part in PARTS:
        own = f"{name}_{part.upper()}.ts"
        also = tuple(f"{folder.format(name=name)}/{own}" for folder in FOLDERS)
        about = f"series of {part} with labels"
        files.append(ShippedFile(_file(name, part), about, also=(*also, own), copy=_shipped(name, own)))
    url = f"{ARCHIVE}/{name}.zip"
    return Upstream(
        title=name,
        source=f"https://www.timeseriesclassification.com/description.php?Dataset={name}",
        licence="none stated; cite Dau et al. (arXiv 1810.07758) or Bagnall et al. (arXiv 1811.00075)",
        files=tuple(files),
        name=f"uea_{name}",
        get=f"curl -LO {url} && unzip {name}.zip",
    )


def _shipped(name: str, file: str) -> Path | None:
    """The place of a file in sktime, which comes with a few sets, JapaneseVowels among them."""
    spec = importlib.util.find_spec("sktime")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "datasets" / "data" / name / file


def _read(name: str, files: Files) -> Arrays:
    """x_<part> (N, T, D) float32, NaN where a value is missing, padded at the end with 0; n_<part> (N,), true
    lengths; line_<part> (N,), of the file; y_<part> (N,) int64, positions in `labels`; labels, the classes of
    train in the order of the header.
    """
    cases = {}
    for part in PARTS:
        path = files.path(_file(name, part))
        cases[part] = read_ts(path, gaps=True)
        _check(name, path, cases[part], cases["train"])
    labels = {part: [part_cases.labels[i] for i in part_cases.y] for part, part_cases in cases.items()}
    classes, order = coded(labels, name, cases["train"].labels)
    arrays: Arrays = {"labels": np.array(order)}
    for part, part_cases in cases.items():
        lengths = np.array([len(case) for case in part_cases.x], np.int64)
        x = np.zeros((len(part_cases.x), lengths.max(), part_cases.x[0].shape[1]), np.float32)
        for row, case in zip(x, part_cases.x, strict=True):
            row[: len(case)] = case
        arrays |= {f"x_{part}": x, f"n_{part}": lengths, f"y_{part}": classes[part]}
        arrays[f"line_{part}"] = np.array(part_cases.lines, np.int64)
    return arrays


def _check(name: str, path: Path, cases: Cases, train: Cases) -> None:
    if cases.name.lower() != name.lower():
        raise WrongFile(f"{path} is the problem {cases.name}; expected {name}.")
    if not cases.labels:
        raise DataError(f"{path} has numbers to predict; this task is for sets with classes.")
    if cases.x[0].shape[1] != train.x[0].shape[1]:
        raise WrongFile(
            f"{path}: {cases.x[0].shape[1]} dimension(s); the file of train has {train.x[0].shape[1]}. "
        )


def _fixture(name: str, root: Path) -> None:
    """Two classes of noisy waves, fast and slow, in two dimensions."""
    rng = np.random.default_rng(0)
    time = np.linspace(0, 2 * np.pi, 30)
    for part, n in {"train": 24, "test": 12}.items():
        y = np.arange(n) % 2
        wave = np.sin(time * (1 + 2 * y[:, None]))
        x = np.stack([wave, -wave], -1) + rng.normal(0, 0.1, (n, 30, 2))
        write_ts(root / _file(name, part), name, x, y + 1, ("1", "2"))
