"""MNIST read pixel by pixel, in order or permuted. Axes: N images, B batch, T = 784 steps, D = 1 pixel."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from physml.base.check import one_of, positive
from physml.base.errors import InputError
from physml.data import splits
from physml.data.readers.mnist import MNIST
from physml.data.splits import divide
from physml.data.store import Store
from physml.task.base import Better, Part
from physml.task.batch import Batch
from physml.task.sequences import Items, Labelled

PIXELS = 28 * 28
TRAIN_IMAGES = 60_000

# What a pixel of value 255 is worth.
WHITE = {"unit": 1.0, "bytes": 255.0}

# Name of a disturbance -> its kind and its level.
PERTURBATIONS = {
    "white_0_1": ("white", 0.1),
    "white_0_2": ("white", 0.2),
    "white_0_3": ("white", 0.3),
    "salt_pepper_0_03": ("salt_pepper", 0.03),
    "salt_pepper_0_05": ("salt_pepper", 0.05),
    "salt_pepper_0_1": ("salt_pepper", 0.1),
}


class SequentialMNIST(Labelled):
    r"""Say which digit an image shows, after reading its 784 pixels one by one.

    Input (B, 784, 1): the pixels row after row, from 0 (black) to 1 (white), not normalised; the same
    `permutation` of all of them: psMNIST. Target (B,): 0..9. Loss: cross entropy at the last step. Metric:
    accuracy on all 10,000 test images.

    Papers and code differ in permutation, images held out for validation, and scale; one psMNIST is not
    another.

    coRNN: psmnist-torch-12008, 3000 images, unit.

    UnICORNN and LEM: psmnist-torch-5544, 3000 images, unit.

    Lipschitz and Noisy: psmnist-torch-12008, the 2000 images of mnist-valid-2000, unit; psMNIST: bytes.

    expRNN: psmnist-numpy-92916, no image, as it takes what is best on test; unit.

    Protocols:
      official: as in a paper's code, by the list above.
      paper: as in its text, where that says something else: pixels in [0, 1] for all, and the permutation of
        expRNN, which UnICORNN and LEM say they take.
      clean: pixels in [0, 1], and images held out for validation, so that nothing need be selected on test.

    Departure: in the code of coRNN, UnICORNN and LEM the 3000 images depend on the random numbers that the
    initial weights have used up, so on the network. Here they are the same for all, mnist-valid-3000.

    Robustness (Noisy RNN, talk Table 1): with `perturb: robustness`, test is also scored with white noise,
    N(0, sigma^2) added to every pixel, and with salt and pepper, a share alpha of the pixels turned black or
    white with equal chance. The published evaluation is not public: whether noisy pixels are cut to [0, 1] is
    not known (here they are not). The noise is the same in all runs, whatever the model.

    Defined in: target: coRNN paper, section 4, a digit of MNIST, "one pixel at a time", T = 784; "a fixed
    random permutation" in psMNIST, which is not printed; metric: test accuracy, caption of Table 1; talk,
    Table 1: percent under white noise and salt and pepper; split: test images of the archive; held-out ones
    are of each code.

    Source: MNIST, http://yann.lecun.com/exdb/mnist/; as sequences: Le, Jaitly and Hinton, 2015,
    https://arxiv.org/abs/1504.00941.

    Args: permutation: index file, or null for the order of the image; valid: index file of the training
        images that are held out, or null for none; scale: "unit" ([0, 1]) or "bytes" (0..255); stride: of the
        pixels, in their final order, every `stride`-th is read; per_step: pixels that come in at one step,
        D, null for 1; 784 for the whole image at once; perturb: null or "robustness"; protocol:
        "official", "paper" or "clean".
    """

    better: ClassVar[Better] = Labelled.better | {f"accuracy_{name}": "higher" for name in PERTURBATIONS}
    datasets = (MNIST,)

    def __init__(
        self,
        *,
        permutation: str | None,
        valid: str | None,
        scale: Literal["unit", "bytes"],
        stride: int,
        perturb: Literal["robustness"] | None,
        protocol: Literal["official", "paper", "clean"],
        per_step: int | None = None,
    ) -> None:
        one_of("scale", scale, tuple(WHITE))
        one_of("protocol", protocol, ("official", "paper", "clean"))
        if perturb is not None:
            one_of("perturb", perturb, ("robustness",))
        positive("stride", stride)
        if protocol != "official" and scale != "unit":
            raise InputError(f"protocol={protocol} has pixels in [0, 1]: set scale=unit; got {scale!r}.")
        if protocol == "clean" and valid is None:
            raise InputError("protocol=clean holds images out: set valid=mnist-valid-3000; got null.")
        positive("per_step", 1 if per_step is None else per_step)
        self.d_in, self.d_out, self.n_classes = per_step or 1, 10, 10
        if (n := -(-PIXELS // stride)) % self.d_in:
            raise InputError(
                f"per_step must divide the {n} pixels that stride={stride} leaves; got {per_step}."
            )
        self.permutation, self.valid, self.scale, self.stride = permutation, valid, scale, stride
        self.protocol = protocol
        self.disturb(PERTURBATIONS if perturb else ())

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(MNIST)
        x, y = arrays["train_x"], arrays["train_y"]
        train, valid = divide(self.valid, len(x), TRAIN_IMAGES, store.fixtures)
        parts: dict[Part, Items] = {"train": self._sequences(x[train], y[train])}
        if len(valid):
            parts["valid"] = self._sequences(x[valid], y[valid])
        parts["test"] = self._sequences(arrays["test_x"], arrays["test_y"])
        self.place(parts, store)

    def _sequences(self, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        """Images (N, 28, 28) as (N, T, D), still bytes: a quarter of the memory. `prepare` scales them."""
        pixels = x.reshape(len(x), PIXELS)
        if self.permutation is not None:
            order = splits.load_index(self.permutation)
            if not np.array_equal(np.sort(order), np.arange(PIXELS)):
                raise InputError(f"permutation must be one of {PIXELS} pixels; {self.permutation} is none.")
            pixels = pixels[:, order]
        pixels = np.ascontiguousarray(pixels[:, :: self.stride])
        return torch.from_numpy(pixels).unflatten(1, (-1, self.d_in)), torch.from_numpy(y.astype(np.int64))

    def prepare(self, batch: Batch, part: Part) -> Batch:
        grey = batch.input.float()
        return replace(batch, input=grey / 255 if self.scale == "unit" else grey)

    def perturb(self, batch: Batch, name: str, rng: Generator) -> Batch:
        kind, level = PERTURBATIONS[name]
        white, x = WHITE[self.scale], batch.input
        shape = tuple(x.shape[1:])
        if kind == "white":
            noise = torch.stack([torch.randn(shape, generator=rng) for _ in range(len(x))])
            return replace(batch, input=x + level * white * noise.to(x.device))
        chance = torch.stack([torch.rand(shape, generator=rng) for _ in range(len(x))]).to(x.device)
        x = torch.where(chance < level / 2, 0.0, x)
        return replace(batch, input=torch.where(chance >= 1 - level / 2, white, x))
