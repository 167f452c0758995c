"""HAR-2: two merged classes of human activity. Axes: N windows, B batch, T = 128 steps, D = 9 channels."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from physml.base.check import one_of, seed
from physml.base.errors import InputError
from physml.data.readers.har import ACTIVITIES, UCI_HAR
from physml.data.store import Store
from physml.task.base import Metrics, Part
from physml.task.batch import Batch
from physml.task.sequences import Labelled
from physml.task.trivial import least_squares, linear, score_reference

# Activities that make class 1.
MERGES = {
    "text": ("standing", "walking", "walking downstairs"),
    "moving": ("walking", "walking upstairs", "walking downstairs"),
}
HELD_OUT = 3  # subjects of a validation part: int(0.1 * 21 + 1), as in EdgeML's script


class HAR2(Labelled):
    r"""Which of two merged classes a window of 2.56 s of a phone's accelerometer and gyroscope belongs to.

    Input (B, 128, 9): body acceleration, angular velocity and total acceleration along x, y, z at 50 Hz. One
    logit; loss: binary cross entropy. Classes of the text: 0 = sitting, laying, walking upstairs;
    1 = standing, walking, walking downstairs. 21 subjects train (7352 windows), 9 others test (2947).
    Neighbouring windows of a recording overlap by half.

    Protocols:
      paper: the text of the coRNN paper (windows, classes), and the data step that its code asks for,
        EdgeML's script for EMI-RNN: the windows of 3 training subjects are the validation part, each channel
        is standardised by what is left for training. Split j holds out the j-th three of a permutation of the
        21 subjects; with data_seed 42, split 0 holds out 1, 25 and 27 as the first version of that script did
        (later ones draw without a seed).
      clean: the same. It takes no other `held_out` or `tested` than "subjects": those would test or select on
        windows that overlap with training windows.

    Defined in: target: coRNN paper, section 4, "two merged classes {Sitting, Laying, Walking_Upstairs} and
    {Standing, Walking, Walking Downstairs}"; metric: test accuracy, caption of Table 3; split: not in the
    text: that of the archive, 21 and 9 subjects.

    Source: Rusch and Mishra, coRNN, ICLR 2021, https://arxiv.org/abs/2010.00951, Table 3; data: Anguita et
    al., ESANN 2013; merge: Kusupati et al., FastGRNN, NeurIPS 2018.

    Args: held_out: what the validation part is made of: "subjects", or "windows": a random tenth of the
        training windows; tested: "subjects", or "windows": all 10,299 windows are shuffled before 2947 of
        them are set aside; scaling: by mean and standard deviation of training windows, for each "channel"
        (9 of each), each "point" of a window (128 * 9, as EdgeML's script for FastCells), all inputs at
        "once" (1 of each), or "none"; merge: "text" or "moving" (walking of any kind, or not); data_seed: of
        subjects and windows.
    """

    datasets = (UCI_HAR,)
    n_splits: ClassVar[int] = 7
    one_logit: ClassVar[bool] = True

    def __init__(
        self, *, held_out: str, tested: str, scaling: str, merge: str, data_seed: int, protocol: str
    ) -> None:
        one_of("protocol", protocol, ("paper", "clean"))
        one_of("held_out", held_out, ("subjects", "windows"))
        one_of("tested", tested, ("subjects", "windows"))
        one_of("scaling", scaling, ("channel", "point", "once", "none"))
        one_of("merge", merge, tuple(MERGES))
        seed("data_seed", data_seed)
        if protocol == "clean" and "windows" in (held_out, tested):
            raise InputError(
                "protocol clean needs held_out=subjects and tested=subjects: windows overlap. "
                "Use protocol=paper."
            )
        if tested == "windows" and held_out == "subjects":
            raise InputError("tested=windows mixes the subjects of all parts: use held_out=windows with it.")
        self.d_in, self.d_out, self.n_classes = 9, 1, 2
        self.held_out, self.tested, self.scaling, self.merge = held_out, tested, scaling, merge
        self.data_seed, self.protocol = data_seed, protocol

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(UCI_HAR)
        x = {part: torch.from_numpy(arrays[f"x_{part}"]) for part in ("train", "test")}
        y = {part: self._classes(arrays[f"y_{part}"]) for part in ("train", "test")}
        windows = np.random.RandomState([self.data_seed, split])
        if self.tested == "windows":
            order = torch.from_numpy(windows.permutation(len(y["train"]) + len(y["test"])))
            cut = [len(y["train"]), len(y["test"])]
            x["train"], x["test"] = torch.cat([x["train"], x["test"]])[order].split(cut)
            y["train"], y["test"] = torch.cat([y["train"], y["test"]])[order].split(cut)
        held = torch.from_numpy(self._held_out(arrays["subject_train"], split, windows))
        self.place(
            {
                "train": (x["train"][~held], y["train"][~held]),
                "valid": (x["train"][held], y["train"][held]),
                "test": (x["test"], y["test"]),
            },
            store,
        )
        self._mean, self._std = self._moments(x["train"][~held])

    def _classes(self, activity: np.ndarray) -> Tensor:
        ones = [ACTIVITIES.index(name) + 1 for name in MERGES[self.merge]]
        return torch.from_numpy(np.isin(activity, ones).astype(np.int64))

    def _held_out(self, subject: np.ndarray, split: int, windows: np.random.RandomState) -> np.ndarray:
        """Which training windows are for validation, (N,) bool."""
        if self.held_out == "windows":
            held = np.zeros(len(subject), bool)
            held[windows.permutation(len(subject))[: len(subject) // 10]] = True
            return held
        everyone = np.random.RandomState(self.data_seed).permutation(np.unique(subject))
        size = min(HELD_OUT, len(everyone) // 2)  # a fixture has 4 subjects
        return np.isin(subject, np.roll(everyone, -size * split)[:size])

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation as `scaling` wants them, each broadcast against (B, T, D)."""
        if self.scaling == "none":
            return torch.zeros(1), torch.ones(1)
        axes = {"channel": (0, 1), "point": (0,), "once": (0, 1, 2)}[self.scaling]
        x = x.double()
        return x.mean(axes).float(), x.std(axes, correction=0).float()

    def to(self, device: str) -> None:
        super().to(device)
        self._mean, self._std = self._mean.to(device), self._std.to(device)

    def prepare(self, batch: Batch, part: Part) -> Batch:
        return replace(batch, input=(batch.input - self._mean) / self._std)

    def references(self) -> dict[str, Metrics]:
        """The majority class; and a linear map of the nine channel means, fitted to the class on train."""
        train = next(iter(self.batches("train", self.sizes["train"])))
        a = least_squares(train.input.mean(1), train.target[:, None].float())

        def answer(batch: Batch) -> Tensor:
            return torch.logit(linear(batch.input.mean(1), a).clamp(0.01, 0.99))

        return {**super().references(), "linear (channel means)": score_reference(self, answer)}
