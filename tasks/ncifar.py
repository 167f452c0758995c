"""Noise padded CIFAR-10: 32 rows of an image, then noise. Axes: N images, B batch, T steps, D = 96."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from physml.base.check import non_negative, one_of
from physml.base.errors import InputError
from physml.base.seeding import derive
from physml.data.readers.cifar10 import CIFAR10
from physml.data.splits import divide
from physml.data.store import Store
from physml.task.base import Part
from physml.task.batch import Batch
from physml.task.sequences import Labelled

ROWS, D = 32, 96
TRAIN_IMAGES = 50_000
NOISES = ("fixed_normal", "fresh_normal", "fresh_uniform")


class NoisePaddedCIFAR10(Labelled):
    """Say what a small colour image shows, after `length` - 32 further steps of noise.

    Input (B, length, 96): steps 1..32 are the rows of the image from the top, each [32 red, 32 green,
    32 blue] in [0, 1], not normalised; all steps after them are noise. Target (B,): 0..9. Loss: cross entropy
    at the last step. Metric: accuracy on all 10,000 test images.

    Noise:
      fixed_normal: one draw of standard normal numbers for all images of all parts, as in the code of coRNN,
        UnICORNN and LEM. So the tail is a constant, which a network can learn.
      fresh_uniform: uniform on [0, 1) for every image and pass, as the papers' text reads ("uniform random
        numbers", with no range).
      fresh_normal: standard normal for every image and pass.

    Fresh noise of train is drawn with the order of the batches. That of valid and test belongs to the image,
    so all evaluations and all runs see the same.

    Protocols:
      official: as in the code of those papers: fixed_normal.
      paper: as in their text: fresh_uniform.
      clean: noise that cannot be learnt by heart: fresh_normal or fresh_uniform.

    Departures: the official code draws noise and held-out images after the network's initial weights, so both
    depend on the network; here both have seeds of their own. coRNN holds 3000 images out, UnICORNN and LEM
    2000 (cifar-valid-3000, cifar-valid-2000).

    Defined in: target: coRNN paper, section 4, class of images "fed to the RNN row-wise and flattened along
    the channels", then "the last 968 entries of each sequence are only noise"; metric: test accuracy,
    caption of Table 2; split: test images of the archive; held-out ones are of the code.

    Source: Chang et al., AntisymmetricRNN, ICLR 2019, https://arxiv.org/abs/1902.09689; CIFAR-10:
    https://www.cs.toronto.edu/~kriz/cifar.html.

    Args: length: T, of which the first 32 steps are the image; valid: index file of the training images that
        are held out, or null for none; noise: see above; noise_seed: of the noise that is fixed or belongs to
        valid and test; protocol: "official", "paper" or "clean".
    """

    datasets = (CIFAR10,)

    def __init__(
        self,
        *,
        length: int,
        valid: str | None,
        noise: Literal["fixed_normal", "fresh_normal", "fresh_uniform"],
        noise_seed: int,
        protocol: Literal["official", "paper", "clean"],
    ) -> None:
        allowed = {"official": NOISES[:1], "paper": NOISES[2:], "clean": NOISES[1:]}
        one_of("noise", noise, NOISES)
        one_of("protocol", protocol, tuple(allowed))
        non_negative("noise_seed", noise_seed)
        if noise not in allowed[protocol]:
            raise InputError(
                f"protocol={protocol} has noise {' or '.join(allowed[protocol])}; got noise={noise!r}."
            )
        if length < ROWS:
            raise InputError(f"length must be at least {ROWS}, the rows of an image; got {length}.")
        self.d_in, self.d_out, self.n_classes = D, 10, 10
        self.n_noise, self.valid, self.noise, self.noise_seed = length - ROWS, valid, noise, noise_seed
        self.protocol = protocol

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(CIFAR10)
        x, y = arrays["x_train"], arrays["y_train"]
        train, valid = divide(self.valid, len(x), TRAIN_IMAGES, store.fixtures)
        parts: dict[Part, tuple[Tensor, Tensor]] = {"train": sequences(x[train], y[train])}
        if len(valid):
            parts["valid"] = sequences(x[valid], y[valid])
        parts["test"] = sequences(arrays["x_test"], arrays["y_test"])
        fixed = Generator().manual_seed(self.noise_seed)
        self._tail = torch.randn(1, self.n_noise, D, generator=fixed)
        self.place(parts, store)

    def to(self, device: str) -> None:
        super().to(device)
        self._tail = self._tail.to(device)

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        seed = derive(self.noise_seed, "noise", part)
        if part == "train" and rng is not None:
            seed = derive(seed, int(torch.randint(1 << 62, (), generator=rng)))
        own = Generator().manual_seed(seed)
        for batch in super().batches(part, size, rng):
            tail = self._noise(len(batch.input), own).to(batch.input.device)
            yield replace(batch, input=torch.cat([batch.input, tail], 1))

    def prepare(self, batch: Batch, part: Part) -> Batch:
        return replace(batch, input=batch.input.float() / 255)

    def _noise(self, n: int, rng: Generator) -> Tensor:
        """(n, length - 32, 96); image by image, so that it does not depend on the batch size."""
        if self.noise == "fixed_normal":
            return self._tail.expand(n, -1, -1)
        draw = torch.randn if self.noise == "fresh_normal" else torch.rand
        return torch.stack([draw(self.n_noise, D, generator=rng) for _ in range(n)])

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "noise": self.noise}


def sequences(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) as (N, 32, 96), still bytes; the rows of all three colours stand side by side."""
    rows = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(len(x), ROWS, D)
    return torch.from_numpy(rows), torch.from_numpy(y)
