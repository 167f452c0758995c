"""Heart rate and respiratory rate from PPG and ECG. Axes: B batch, N windows, T steps, D = 2: PPG and ECG."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from physml.base.check import each, has_shape, one_of, positive
from physml.base.errors import InputError
from physml.data import splits
from physml.data.readers.bidmc import BIDMC, NUMERICS, RATE
from physml.data.readers.bidmc_tsr import HEART, RESPIRATORY
from physml.data.store import Store
from physml.task.base import Metrics, Part, Sums
from physml.task.batch import Batch
from physml.task.sequences import Valued
from physml.task.trivial import score_reference

RATES = {"heart": "HR", "respiratory": "RESP"}  # and how the monitor calls them

# Windows of the archive for training and validation; the rest is for test.
N_TRAIN, N_VALID = 5565, 1192

# Subjects for test and for validation, of 31; and how far the next split moves on in their order.
TEST_SUBJECTS, VALID_SUBJECTS = 6, 5
SPLITS = 5


class ArchiveRates(Valued):
    """A rate from the windows of the TSR archive: what the papers print, and what leaks.

    Input (B, 4000, 2): PPG and ECG, 32 s at 125 Hz, in the units of the file. Target (B, 1): heart rate in
    beats, or respiratory rate in breaths, per minute. Neither is scaled. Loss: MSE. Metric: rmse over all
    windows (the papers' "L2 error"), and mae.

    Protocol official: TRAIN and TEST of the archive together (7949 windows), divided at random into 5565 for
    training, 1192 for validation and 1192 for test, as torch's random_split does in the code of LEM
    (generator 123456, test before validation). The windows of a patient overlap and fall into all three
    parts: the task is interpolation within patients.

    Defined in: target: thesis 3.3, "respiratory rate (RR) and heart rate (HR) based on these signals", PPG
    and ECG of length 4000 (LEM, section 5, names PPG alone; its code reads both); metric: "L2 error" on
    test, Table 3 of LEM, whose code takes the root of the mean square; split: "a 70%,15%,15% ratio" of 7949
    sequences, ibid.; which ones, its code says.

    Source: Rusch et al., LEM, ICLR 2022, https://arxiv.org/abs/2110.04744, Table 3, and its code; Rusch and
    Mishra, UnICORNN, ICML 2021, https://arxiv.org/abs/2103.05487, whose own 70/15/15 division is not
    published: LEM's stands in for it.

    Args: rate: "heart" or "respiratory"; protocol: "official".
    """

    def __init__(self, *, rate: str, protocol: str) -> None:
        one_of("rate", rate, tuple(RATES))
        one_of("protocol", protocol, ("official",))
        self.d_in, self.d_out = 2, 1
        self.rate, self.protocol = rate, protocol
        self.datasets = (HEART if rate == "heart" else RESPIRATORY,)

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(self.datasets[0])
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        parts = splits.parted(splits.load_index("bidmc-lem"), N_TRAIN, N_VALID)
        # A fixture has fewer windows: those of each part that it has.
        self.place({name: (x[i[i < len(x)]], y[i[i < len(x)]]) for name, i in parts.items()}, store)


class SubjectRates(Valued):
    r"""A rate from windows of other people than those of training, as a monitor has to tell it.

    Input (B, T, 2): PPG and ECG lead II of PhysioNet's BIDMC, windows of `window` samples at 125 Hz, of which
    each `every`-th is kept, T = ceil(window / every). Target (B, 1): the mean of the values that the monitor
    gave for the seconds that begin within the window. Seconds without a value, or with 0 (it found none),
    don't count, and a window with values in less than half of its seconds is left out. Loss: MSE, of the
    standardised target where `target` is so. Metrics: rmse and mae, per minute.

    Protocols:
      clean: divided by "subjects": of 31, split j tests on 6, validates on 5 others and trains on 20. No
        subject is tested in two splits.
      paper: divided by "windows", 70/15/15 at random whosever they are, as the papers divide the archive's:
        with the same records and the same budget it shows what that is worth.
    Inputs and target are standardised by training windows alone.

    Defined in: target, metric and split: here. No paper of the tables divides by people; rates and windows
    are those of `ArchiveRates` from the records that its archive was cut from.

    Source: Pimentel et al., IEEE TBME 2017, https://physionet.org/content/bidmc/1.0.0/. The choices are ours.

    Args: rate: "heart" or "respiratory"; window: samples; stride: samples between the starts of two windows
        of a subject, in all parts; every: of how many samples one is kept; inputs: "raw" or "standard", for
        each channel; target: "raw" or "standard"; divided: by "subjects" or "windows"; protocol: "clean" or
        "paper".
    """

    datasets = (BIDMC,)
    n_splits: ClassVar[int] = SPLITS

    def __init__(
        self,
        *,
        rate: str,
        window: int,
        stride: int,
        every: int,
        inputs: str,
        target: str,
        divided: str,
        protocol: str,
    ) -> None:
        one_of("rate", rate, tuple(RATES))
        one_of("protocol", protocol, ("clean", "paper"))
        one_of("divided", divided, ("subjects", "windows"))
        required = "clean" if divided == "subjects" else "paper"
        if protocol != required:
            raise InputError(f"divided={divided} makes protocol={required}; got {protocol}.")
        each(positive, window=window, stride=stride, every=every)
        for name, kind in {"inputs": inputs, "target": target}.items():
            one_of(name, kind, ("raw", "standard"))
        self.d_in, self.d_out = 2, 1
        self.rate, self.protocol = rate, protocol
        self.window, self.stride, self.every = window, stride, every
        self.inputs, self.target, self.divided = inputs, target, divided

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(BIDMC)
        if self.window > arrays["signals"].shape[1]:
            raise InputError(f"window must be at most {arrays['signals'].shape[1]}; got {self.window}.")
        per_subject = [self._windows(arrays, i) for i in range(len(arrays["subject"]))]
        x, y = (torch.from_numpy(np.concatenate(both)) for both in zip(*per_subject, strict=True))
        whose = np.repeat(arrays["subject"], [len(rates) for _, rates in per_subject])
        if self.divided == "subjects":
            of = subjects(arrays["subject"], split)
            where = {part: np.flatnonzero(np.isin(whose, members)) for part, members in of.items()}
        else:
            where = windows(len(whose), split)
        parts = {part: (x[i], y[i]) for part, i in where.items()}
        self._subject = {part: torch.from_numpy(whose[i]) for part, i in where.items()}
        self.place(parts, store)
        x, y = parts["train"]
        self._x_mean, self._x_std = torch.zeros(2), torch.ones(2)
        if self.inputs == "standard":
            self._x_mean, self._x_std = (m.float() for m in _moments(x.double().flatten(0, 1)))
        self._y_mean, self._y_std = 0.0, 1.0
        if self.target == "standard":
            self._y_mean, self._y_std = (m.item() for m in _moments(y))

    def _windows(self, arrays: dict[str, np.ndarray], i: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows (n, T, 2) float32 and targets (n,) float64 of subject i."""
        signal, numerics = arrays["signals"][i], arrays["numerics"][i]
        second, value = numerics[:, 0], numerics[:, NUMERICS.index(RATES[self.rate])].astype(np.float64)
        value = np.where(value == 0, np.nan, value)
        x, y = [], []
        for start in range(0, len(signal) - self.window + 1, self.stride):
            inside = value[(second * RATE >= start) & (second * RATE < start + self.window)]
            known = inside[~np.isnan(inside)]
            if len(known) and 2 * len(known) >= len(inside):
                x.append(signal[start : start + self.window : self.every])
                y.append(known.mean())
        steps = -(-self.window // self.every)
        return np.array(x, np.float32).reshape(-1, steps, 2), np.array(y, np.float64)

    def to(self, device: str) -> None:
        super().to(device)
        self._x_mean, self._x_std = self._x_mean.to(device), self._x_std.to(device)

    def prepare(self, batch: Batch, part: Part) -> Batch:
        return replace(batch, input=(batch.input - self._x_mean) / self._x_std)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        return F.mse_loss(output, (batch.target - self._y_mean) / self._y_std)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        return super().score(output * self._y_std + self._y_mean, batch)

    def references(self) -> dict[str, Metrics]:
        """The mean of train; and, which no model can know, the mean of each test subject: an oracle."""
        answers = {"constant": torch.full((self.sizes["test"],), self._items["train"][1].mean().item())}
        y, subject = self._items["test"][1].cpu(), self._subject["test"]
        totals = torch.zeros(int(subject.max()) + 1, dtype=y.dtype).index_add(0, subject, y)
        answers["subject's mean (an oracle)"] = (totals / torch.bincount(subject))[subject]

        def reference(answer: Tensor) -> Metrics:
            def predict(batch: Batch) -> Tensor:
                assert batch.index is not None
                rate = answer.to(batch.target.device)[batch.index][:, None].float()
                return (rate - self._y_mean) / self._y_std

            return score_reference(self, predict)

        return {name: reference(answer) for name, answer in answers.items()}


def subjects(known: np.ndarray, split: int) -> dict[Part, np.ndarray]:
    """Which subjects are in which part of a split: the order is shipped, each split starts 6 further on."""
    order = np.roll(known[splits.load_index("bidmc-subjects")], -TEST_SUBJECTS * split)
    test, valid, train = np.split(order, [TEST_SUBJECTS, TEST_SUBJECTS + VALID_SUBJECTS])
    return {"train": train, "valid": valid, "test": test}


def windows(n: int, split: int) -> dict[Part, np.ndarray]:
    """Random split of n windows: 70 % for training, 15 % each for validation and test."""
    order = np.random.RandomState([1234, split]).permutation(n)
    return splits.parted(order, round(0.7 * n), round(0.85 * n) - round(0.7 * n))


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the first axis."""
    return x.mean(0), x.std(0, correction=0)
