"""ZINC-12k: a number for each molecule. Axes: G molecules, B of a batch, V atoms of all, D features."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from physml.base.check import has_shape, one_of
from physml.data.readers import zinc
from physml.data.store import Store
from physml.task.base import Better, Metrics, Readout, Sums
from physml.task.batch import Batch
from physml.task.graphs import ManyGraphs, parts_in_order
from physml.task.trivial import least_squares, linear, score_reference

SETS = {"zinc": zinc.ZINC, "zinc_substitute": zinc.ZINC_SUBSTITUTE}


class Zinc(ManyGraphs):
    r"""Penalised solubility of a molecule, logP - SA - cycles, from its atoms and bonds.

    Loss: mean absolute error, which is the metric too. Kinds of bonds are not used.

    Protocols:
      official: the kind of an atom, 0 to 27, is one number, D = 1, as the GraphCON code has it.
      paper: one of 28 columns is 1, D = 28, so that a linear encoder is an embedding of the kinds; as in the
        benchmark whose settings the GraphCON paper says it follows.

    Shapes: input (N, D), edge_index (2, E), batch (N,), target (B,); output (B, 1).

    Defined in: target: thesis 7.3, the constrained solubility of "12K molecular graphs", "no use of edge
    features"; metric: "Test mean absolute error", caption of Table 7.4; split: the settings of Dwivedi et
    al. "verbatim", 7.3: 10,000 / 1000 / 1000.

    Source: Irwin et al. 2012; Dwivedi et al. 2020, https://arxiv.org/abs/2003.00982: 10,000 molecules train,
    1000 validate, 1000 test.

    Args: molecules: "zinc", or "zinc_substitute", of which 9922 others train: a result on it is none on
        ZINC-12k.
    """

    readout: ClassVar[Readout] = "graph"
    metric: ClassVar[str] = "mae"
    better: ClassVar[Better] = {"mae": "lower"}

    def __init__(self, *, molecules: str, protocol: str) -> None:
        one_of("protocol", protocol, ("official", "paper"))
        one_of("molecules", molecules, tuple(SETS))
        self.datasets = (SETS[molecules],)
        self.d_in, self.d_out = (1 if protocol == "official" else zinc.ATOMS), 1
        self.molecules, self.protocol = molecules, protocol

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(self.datasets[0])
        kind = arrays["x"][:, 0]
        x = kind[:, None].astype(np.float32) if self.d_in == 1 else np.eye(zinc.ATOMS, dtype=np.float32)[kind]
        self.place(x, arrays, arrays["y"], parts_in_order(arrays["n_graphs"]), store)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (len(batch.target), 1))
        return F.l1_loss(output.squeeze(1), batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (len(batch.target), 1))
        error = (output.detach().squeeze(1).double() - batch.target).abs().sum().item()
        return {"absolute_sum": error, "n": len(batch.target)}

    def finish(self, sums: Sums) -> Metrics:
        return {"mae": sums["absolute_sum"] / sums["n"]}

    def references(self) -> dict[str, Metrics]:
        """Mean and median of train; a linear map of how many atoms of each kind there are, bonds unseen."""
        y = self._target[self._graphs["train"].to(self._target.device)]
        counts = torch.cat([self._counts(b) for b in self.batches("train", 1000)])
        a = least_squares(counts, y[:, None])

        def constant(value: Tensor) -> Metrics:
            return score_reference(self, lambda b: value.expand(len(b.target), 1))

        return {
            "mean of train": constant(y.mean()),
            "median of train": constant(y.median()),
            "linear (numbers of atoms)": score_reference(self, lambda b: linear(self._counts(b), a)),
        }

    def _counts(self, batch: Batch) -> Tensor:
        """How many atoms of each kind each molecule has: (B, 28)."""
        assert batch.batch is not None
        kind = batch.input[:, 0].long() if self.d_in == 1 else batch.input.argmax(1)
        counts = batch.input.new_zeros(len(batch.target), zinc.ATOMS)
        return counts.index_put((batch.batch, kind), torch.ones_like(batch.input[:, 0]), accumulate=True)
