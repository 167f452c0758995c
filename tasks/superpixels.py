"""MNIST as graphs of 75 superpixels: which digit. Axes: G graphs, B of a batch, N nodes of a batch."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from physml.base.check import one_of
from physml.data import splits
from physml.data.readers import superpixels
from physml.data.store import Store
from physml.task.base import Metrics, Part, Readout
from physml.task.batch import Batch
from physml.task.classes import Classes
from physml.task.graphs import ManyGraphs
from physml.task.trivial import least_squares, linear, score_reference

LEVELS = 4  # of the grid of the linear reference, per side


class Superpixels(Classes, ManyGraphs):
    r"""Which digit a graph of 75 superpixels is.

    Input (N, 3): the grey of a superpixel, and its place in pixels, 0 to 28, not scaled. edge_index (2, E),
    batch (N,), target (B,) int64; output (B, 10). Loss: cross entropy of the logits. Metrics: accuracy (a
    fraction) and cross_entropy (nats).

    Protocol official: 55,000 graphs train, 5000 validate, 10,000 test, as in the official GraphCON code.

    Defined in: target: thesis 7.3, the digit of a graph of "75 superpixels (vertices)"; metric: "Test
    accuracy in %", caption of Table 7.5; split: "55K-5K-10K for training, validation, and testing", 7.3.

    Source: Monti et al., CVPR 2017, https://arxiv.org/abs/1611.08402.
    Departure: which graphs validate is drawn once, in an index file; the code draws them anew in each run.
    """

    readout: ClassVar[Readout] = "graph"
    datasets = (superpixels.SUPERPIXELS,)
    d_in, d_out, n_classes = 3, superpixels.CLASSES, superpixels.CLASSES

    def __init__(self, *, protocol: str) -> None:
        one_of("protocol", protocol, ("official",))
        self.protocol = protocol

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(superpixels.SUPERPIXELS)
        n_train, _, n_test = arrays["n_graphs"].tolist()
        train, valid = splits.divide(
            "superpixels-valid-5000", n_train, superpixels.SIZES["train"], store.fixtures
        )
        parts: dict[Part, np.ndarray] = {
            "train": train,
            "valid": valid,
            "test": np.arange(n_train, n_train + n_test),
        }
        self.place(np.concatenate([arrays["x"], arrays["pos"]], 1), arrays, arrays["y"], parts, store)

    def references(self) -> dict[str, Metrics]:
        """The label prior of train, whose answer is the majority class; a linear map of the grey in each of
        4 x 4 fields, edges unseen, fitted to at most 10,000 graphs.
        """
        train = self._graphs["train"]
        label = self._target[train.to(self._target.device)]
        prior = ((torch.bincount(label, minlength=self.d_out) + 1).double() / (len(label) + self.d_out)).log()
        some = self.joined(train[:10_000])
        a = least_squares(_grey(some), F.one_hot(some.target, self.d_out))
        return {
            "majority class": score_reference(self, lambda b: prior.expand(len(b.target), -1)),
            "linear (grey in 4 x 4 fields)": score_reference(
                self, lambda b: linear(_grey(b), a).clamp(1e-3, 1).log()
            ),
        }


def _grey(batch: Batch) -> Tensor:
    """The sum of the grey of the superpixels in each field of the image: (B, 16)."""
    assert batch.batch is not None
    place = (batch.input[:, 1:] / 28 * LEVELS).long().clamp(0, LEVELS - 1)
    field = (batch.batch * LEVELS + place[:, 0]) * LEVELS + place[:, 1]
    total = batch.input.new_zeros(len(batch.target) * LEVELS**2)
    return total.index_add(0, field, batch.input[:, 0]).view(-1, LEVELS**2)
