"""ECG5000: is a heart beat normal, or which of five kinds. Axes: N beats, B batch, T = 140 steps, D = 1."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Generator

from physml.base.check import one_of
from physml.data import splits
from physml.data.readers.ecg5000 import ECG5000, LABELS
from physml.data.store import Store
from physml.task.base import Better
from physml.task.batch import Batch
from physml.task.sequences import Labelled

NORMAL = LABELS.index("1")
# Name of a disturbance -> its kind and its level.
PERTURBATIONS = {
    "white_0_4": ("white", 0.4),
    "white_0_8": ("white", 0.8),
    "white_1_2": ("white", 1.2),
    "mult_0_4": ("mult", 0.4),
    "mult_0_8": ("mult", 0.8),
    "mult_1_2": ("mult", 1.2),
}


class Beats(Labelled):
    r"""Classify a heart beat after reading its 140 values.

    Input (B, 140, 1): one beat, with mean 0 and standard deviation 1 as it comes. Target (B,): with `target:
    abnormal` 0 for a normal beat (label 1 of the archive) and 1 for any other, as in the talk; else the kind,
    0..4. Loss: cross entropy at the last step. Metric: accuracy on 4000 beats.

    Protocol paper: the archive has 500 beats for training, 4500 for test. Here the 500 train; 500 of the
    4500, drawn once (ecg5000-valid), are held out to select on, and the other 4000 test. Which 4000 the talk
    has is not known.

    Defined in: target: talk, slide "Electrocardiogram (ECG) Classification", to "discriminate between normal
    and abnormal heart beats"; metric: percent, its Table 2, which names accuracy nowhere; split: "500
    sequences of length 140 for training, and 4,000 sequences for testing", the same slide.

    Robustness (talk, Table 2): with `perturb: robustness`, test is also scored with every value x disturbed:

    .. math:: \text{white: } x + \sigma\,\xi, \qquad \text{mult: } x\,(1 + \sigma_M\,\xi), \qquad
        \xi \sim N(0, 1) \text{ for each step}

    The form of the second one is not printed, nor whether it has one factor per step or per beat; no code of
    the evaluation is public. The noise is the same in all runs, whatever the model.

    Source: Mahoney, talk of January 2022, Table 2; Lim et al., Noisy RNN, NeurIPS 2021,
    https://arxiv.org/abs/2102.04877; data: UCR archive, https://arxiv.org/abs/1810.07758.

    Args:
        perturb: null or "robustness".
        protocol: "paper".
        target: "abnormal", two classes, or null, five kinds.
    """

    better: ClassVar[Better] = Labelled.better | {f"accuracy_{name}": "higher" for name in PERTURBATIONS}
    datasets = (ECG5000,)

    def __init__(
        self,
        *,
        perturb: Literal["robustness"] | None,
        protocol: Literal["paper"],
        target: Literal["abnormal"] | None = None,
    ) -> None:
        one_of("protocol", protocol, ("paper",))
        if perturb is not None:
            one_of("perturb", perturb, ("robustness",))
        if target is not None:
            one_of("target", target, ("abnormal",))
        self.d_in, self.protocol, self.target = 1, protocol, target
        self.d_out = self.n_classes = 2 if target else len(LABELS)
        self.disturb(PERTURBATIONS if perturb else ())

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(ECG5000)
        x = {part: torch.from_numpy(arrays[f"x_{part}"]) for part in ("train", "test")}
        y = {part: torch.from_numpy(arrays[f"y_{part}"]) for part in ("train", "test")}
        if self.target == "abnormal":
            y = {part: (kind != NORMAL).long() for part, kind in y.items()}
        valid = splits.load_index("ecg5000-valid")
        test = np.setdiff1d(np.arange(len(y["test"])), valid)
        self.place(
            {
                "train": (x["train"], y["train"]),
                "valid": (x["test"][valid], y["test"][valid]),
                "test": (x["test"][test], y["test"][test]),
            },
            store,
        )

    def perturb(self, batch: Batch, name: str, rng: Generator) -> Batch:
        kind, level = PERTURBATIONS[name]
        x = batch.input
        noise = torch.stack([torch.randn(x.shape[1:], generator=rng) for _ in range(len(x))]).to(x.device)
        return replace(batch, input=x + level * noise if kind == "white" else x * (1 + level * noise))
