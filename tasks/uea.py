"""Any set of the UCR and UEA archives of time series. Axes: N series, B batch, T steps, D dimensions."""

from pathlib import PurePosixPath
from typing import ClassVar, Literal

import numpy as np
import torch

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.data.files.gaps import MISSING, Missing, without_gaps
from physml.data.files.labels import coded
from physml.data.readers.uea import PARTS, data_set
from physml.data.splits import held_out
from physml.data.store import Store
from physml.task.base import Part
from physml.task.sequences import Items, Labelled


class UEA(Labelled):
    r"""Say of which class a time series is, after its last step.

    Input (B, T, D): the values as they come, or each dimension with mean 0 and standard deviation 1 over the
    steps of train. Shorter series are padded with 0 at their end and read at their true length. Target (B,):
    position among the labels of the file. Loss: cross entropy. Metric: accuracy on the published test part.

    The classes are those of train, by the exact text of their labels, in the order of the header.

    The archives publish train and test alone. A share of each class of train is held out to select on, drawn
    by the number of the split.

    The archives publish no checksums: files are pinned when first seen, and a record says so.

    Defined in: target, metric and split: the archive's classes, accuracy and test part; what is held out is
    drawn here.

    Source: UCR archive, https://arxiv.org/abs/1810.07758; UEA archive, https://arxiv.org/abs/1811.00075.

    Args:
        name: of the set, such as BasicMotions; <name>_TRAIN.ts and <name>_TEST.ts lie below PHYSML_DATA, in
            ucr_uea, Univariate_ts/<name>, Multivariate_ts/<name> or <name>; a few sets come with sktime.
        valid: share of train that is held out, between 0 and 1.
        standardize: whether to scale each dimension, by train.
        protocol: "clean".
        missing: series with missing values: null or "refuse" for an error, "fill" for straight
            lines between their neighbours in time, "drop" to leave the series out, of test too.
    """

    n_splits: ClassVar[int] = 5

    def __init__(
        self,
        *,
        name: str,
        valid: float,
        standardize: bool,
        protocol: Literal["clean"],
        missing: Missing | None = None,
    ) -> None:
        one_of("protocol", protocol, ("clean",))
        one_of("missing", missing or "refuse", MISSING)
        if not 0 < valid < 1:
            raise InputError(f"valid must lie between 0 and 1, a share of train; got {valid}.")
        self.name, self.valid, self.standardize, self.protocol = name, valid, standardize, protocol
        self.missing: Missing = missing or "refuse"
        self.datasets = (data_set(name),)

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(self.datasets[0])
        for part in PARTS:
            arrays = {**arrays, **self._without_gaps(arrays, part)}
        labels = arrays["labels"].tolist()
        left = {part: [labels[i] for i in arrays[f"y_{part}"]] for part in PARTS}
        y, classes = coded(left, self.name, labels)
        arrays |= {f"y_{part}": codes for part, codes in y.items()}
        self.d_out = self.n_classes = len(classes)
        self.d_in = arrays["x_train"].shape[2]
        train, valid = held_out(arrays["y_train"], self.valid, split)
        if self.standardize:
            arrays = {**arrays, **standardized(arrays, train)}

        def items(part: str, rows: np.ndarray) -> Items:
            x, y, n = (torch.from_numpy(arrays[f"{key}_{part}"][rows]) for key in "xyn")
            return x, y, n

        parts: dict[Part, Items] = {"train": items("train", train), "valid": items("train", valid)}
        parts["test"] = items("test", np.arange(len(arrays["y_test"])))
        self.place(parts, store)

    def _without_gaps(self, arrays: dict[str, np.ndarray], part: str) -> dict[str, np.ndarray]:
        """x, n and y of a part whose series have no missing values."""
        x, lengths, lines = (arrays[f"{key}_{part}"] for key in ("x", "n", "line"))
        if not np.isnan(x).any():
            return {}
        file = PurePosixPath(self.datasets[0].upstream.files[PARTS.index(part)].name).name
        series, kept = without_gaps(
            [row[:n] for row, n in zip(x, lengths, strict=True)],
            self.missing,
            file,
            lambda i, step, d: f"line {lines[i]}, dimension {d + 1}, step {step + 1}",
        )
        padded = np.zeros((len(kept), *x.shape[1:]), x.dtype)
        for row, sequence in zip(padded, series, strict=True):
            row[: len(sequence)] = sequence
        return {f"x_{part}": padded, f"n_{part}": lengths[kept], f"y_{part}": arrays[f"y_{part}"][kept]}


def standardized(arrays: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """x_train and x_test with mean 0 and standard deviation 1 over the true steps of the training rows.

    A dimension that never changes becomes 0; padding stays 0.
    """
    present = {
        part: np.arange(arrays[f"x_{part}"].shape[1]) < arrays[f"n_{part}"][:, None]
        for part in ("train", "test")
    }
    steps = arrays["x_train"][rows][present["train"][rows]].astype(np.float64)
    mean, std = steps.mean(0), steps.std(0)
    scaled = {}
    for part, true in present.items():
        x = (arrays[f"x_{part}"] - mean) / np.where(std > 0, std, 1)
        scaled[f"x_{part}"] = np.where(true[..., None], x, 0).astype(np.float32)
    return scaled
