"""UCI HAR, inertial signals: windows of a phone's sensors during six activities. No torch here.

Axes: N windows, T = 128 steps at 50 Hz, D = 9 channels.
"""

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.archives import Tree
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import write_zip

ARCHIVE = "UCI HAR Dataset.zip"
TOP = "UCI HAR Dataset"
CHANNELS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
T = 128
SUBJECTS = 30

# Windows of each part: what its publisher says, and what a fixture has.
SIZES = {"train": 7352, "test": 2947}
FIXTURE_SIZES = {"train": 24, "test": 12}


def _read(files: Files) -> Arrays:
    """x_train, x_test (N, 128, 9) float32, in units of g and rad/s; y_* 1..6; subject_* 1..30."""
    tree = files.tree(ARCHIVE)
    arrays: Arrays = {}
    for part in SIZES:
        y = _integers(tree, part, "y", len(ACTIVITIES))
        subject = _integers(tree, part, "subject", SUBJECTS)
        signals = {channel: _signal(tree, part, channel) for channel in CHANNELS}
        for what, rows in {
            "subjects": subject,
            **{f"windows of {c}": x for c, x in signals.items()},
        }.items():
            if len(rows) != len(y):
                raise WrongFile(f"{tree.path}, part {part}: {len(y)} labels but {len(rows)} {what}.")
        if len(y) not in files.sizes(SIZES[part], FIXTURE_SIZES[part]):
            raise WrongFile(f"{tree.path}, part {part}: {len(y)} windows, expected {SIZES[part]}.")
        x = np.stack([*signals.values()], -1)
        arrays |= {f"x_{part}": x, f"y_{part}": y, f"subject_{part}": subject}
    both = set(arrays["subject_train"].tolist()) & set(arrays["subject_test"].tolist())
    if both:
        raise WrongFile(
            f"{tree.path}: subjects {sorted(both)} stand in train and in test; upstream they don't."
        )
    return arrays


def _lines(tree: Tree, name: str) -> list[bytes]:
    lines = tree.bytes(name).splitlines()
    if not lines:
        raise WrongFile(f"{tree.path}: {name} is empty.")
    return lines


def _integers(tree: Tree, part: str, what: str, highest: int) -> np.ndarray:
    """One number of 1..highest in each line of y_<part>.txt or subject_<part>.txt."""
    name = f"{TOP}/{part}/{what}_{part}.txt"
    numbers = []
    for i, line in enumerate(_lines(tree, name), 1):
        number = int(line) if line.strip().isdigit() and len(line) < 10 else 0
        if not 1 <= number <= highest:
            shown = line[:40].decode("latin-1").strip()
            raise WrongFile(f"{tree.path}: {name}, line {i}: expected one of 1..{highest}; got {shown!r}.")
        numbers.append(number)
    return np.array(numbers, np.int64)


def _signal(tree: Tree, part: str, channel: str) -> np.ndarray:
    """A channel of all windows, (N, 128) float32."""
    name = f"{TOP}/{part}/Inertial Signals/{channel}_{part}.txt"
    rows = []
    for i, line in enumerate(_lines(tree, name), 1):
        try:
            with np.errstate(over="ignore"):
                row = np.array(line.split(), np.float64).astype(np.float32)
        except ValueError as error:
            raise WrongFile(f"{tree.path}: {name}, line {i}: {error}.") from error
        if len(row) != T or not np.isfinite(row).all():
            what = f"{len(row)} numbers" if len(row) != T else "a number that is not finite"
            raise WrongFile(f"{tree.path}: {name}, line {i}: expected {T} numbers; got {what}.")
        rows.append(row)
    return np.stack(rows)


def _items(arrays: Arrays) -> Iterable[bytes]:
    """Each window with its part, label and subject: windows may come in any order."""
    for part in SIZES:
        labels, subjects = arrays[f"y_{part}"].tolist(), arrays[f"subject_{part}"].tolist()
        for x, label, subject in zip(arrays[f"x_{part}"], labels, subjects, strict=True):
            yield f"{part} {label} {subject} ".encode() + x.astype("<f4").tobytes()


def _fixture(root: Path) -> None:
    """Noise around a level that tells the activity; subjects 1..4 train, 5 and 6 test; zipped as upstream."""
    rng = np.random.default_rng(0)
    members, first = {}, 1
    for part, n in FIXTURE_SIZES.items():
        y = np.arange(n) % len(ACTIVITIES) + 1
        subject = first + np.arange(n) // len(ACTIVITIES)
        first += n // len(ACTIVITIES)
        x = 0.2 * y[:, None, None] + 0.1 * rng.standard_normal((n, T, len(CHANNELS)))
        for what, column in {"y": y, "subject": subject}.items():
            members[f"{TOP}/{part}/{what}_{part}.txt"] = "".join(f"{value}\n" for value in column)
        for k, channel in enumerate(CHANNELS):
            text = io.StringIO()
            np.savetxt(text, x[..., k], fmt="%16.7e", delimiter="")
            members[f"{TOP}/{part}/Inertial Signals/{channel}_{part}.txt"] = text.getvalue()
    write_zip(root / ARCHIVE, members)


UCI_HAR = DataSet("uci_har", 1, _read, _fixture, _items)
