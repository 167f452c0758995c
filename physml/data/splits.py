"""Index files: permutations and splits that rest on old random number generators, with checksums."""

import hashlib
import io
from pathlib import Path
from typing import Literal

import numpy as np

from physml.base.errors import DataError, suggest

FOLDER = Path(__file__).parent / "index"
SUMS = FOLDER / "SHA256SUMS"

Part = Literal["train", "valid", "test"]


def load_index(name: str) -> np.ndarray:
    """The positions of `name`, an int64 vector. DataError where the file is missing or damaged.

    scripts/make_indices.py makes these files and says how.
    """
    lines = [line.split("  ", 1) for line in SUMS.read_text(encoding="utf-8").splitlines()]
    sums = {file.removesuffix(".npy"): sha256 for sha256, file in lines}
    if name not in sums:
        raise DataError(f"there is no index {name}. {suggest(name, list(sums))}")
    path = FOLDER / f"{name}.npy"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}. Check out the repository again."
        ) from error
    if hashlib.sha256(content).hexdigest() != sums[name]:
        raise DataError(
            f"{path} is damaged: another sha256 than in SHA256SUMS. Check out the repository again."
        )
    return np.load(io.BytesIO(content), allow_pickle=False).astype(np.int64)


def divide(name: str | None, n: int, published: int, fixture: bool) -> tuple[np.ndarray, np.ndarray]:
    """Positions of train and of valid among n items; valid is the index file `name`, null: nothing.

    The files are made for `published` items. Of a fixture, which has fewer, every tenth item is held out.

    Errors: DataError where n is not `published`, or the file does not fit.
    """
    if n != published and not fixture:
        raise DataError(
            f"the training part must have {published} items; got {n}. Get the published files again."
        )
    if name is None:
        return np.arange(n), np.arange(0)
    valid = np.arange(0, n, 10) if fixture else np.sort(load_index(name))
    if valid[-1] >= n:
        raise DataError(f"index {name} is for more than {n} items; take one for this data set.")
    return np.setdiff1d(np.arange(n), valid), valid


def parted(order: np.ndarray, n_train: int, n_valid: int) -> dict[Part, np.ndarray]:
    """The first positions of an order train, the next ones validate, the rest tests."""
    train, valid, test = np.split(order, [n_train, n_train + n_valid])
    return {"train": train, "valid": valid, "test": test}


def held_out(y: np.ndarray, share: float, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of train and valid: about `share` of each class is held out, drawn by the split.

    A class with a single item stays in train. DataError where a part would be empty.
    """
    rng = np.random.RandomState(split)
    valid: list[int] = []
    for label in np.unique(y):
        those = rng.permutation(np.flatnonzero(y == label))
        valid += those[: min(max(1, round(share * len(those))), len(those) - 1)].tolist()
    if not valid:
        raise DataError("every class has a single item, so that none can be held out. Use another data set.")
    return np.setdiff1d(np.arange(len(y)), valid), np.sort(valid)
