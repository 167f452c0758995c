"""PPI: what proteins do, on graphs never seen. Axes: N proteins of a batch, D = 50 features, O = 121."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.base.check import has_shape, one_of
from physml.data.readers import ppi
from physml.data.store import Store
from physml.task.base import Better, Metrics, Readout, Sums
from physml.task.batch import Batch
from physml.task.graphs import ManyGraphs, parts_in_order
from physml.task.trivial import least_squares, linear, score_reference


class PPI(ManyGraphs):
    r"""Which of 121 functions each protein has, in tissues other than those that train.

    20 graphs train, 2 validate, 2 test. Input (N, 50), edge_index (2, E), target (N, 121) of 0 and 1; output
    (N, 121). Loss: binary cross entropy of the logits, mean over proteins and functions.

    Metrics: micro_f1, :math:`2 t / (2 t + f + m)` with t true positives, f false and m missed ones of all
    proteins and functions together, where a logit above 0 says yes; 0 where nothing is there and nothing
    said. cross_entropy (nats).

    Protocol paper: the files and parts of Hamilton et al.; no code of GraphCON on this task is public.

    Defined in: target: thesis 7.3, "Protein-Protein-Interaction (PPI) dataset" of Zitnik and Leskovec;
    metric: micro-averaged F1 score on test, caption of Table 7.3; split: "the protocol of Hamilton et
    al.", 7.3: 20, 2 and 2 graphs.

    Source: Zitnik and Leskovec 2017; Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216.
    """

    readout: ClassVar[Readout] = "node"
    metric: ClassVar[str] = "micro_f1"
    better: ClassVar[Better] = {"micro_f1": "higher", "cross_entropy": "lower"}
    datasets = (ppi.PPI,)
    d_in, d_out = ppi.FEATURES, ppi.FUNCTIONS

    def __init__(self, *, protocol: str) -> None:
        one_of("protocol", protocol, ("paper",))
        self.protocol = protocol

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(ppi.PPI)
        self.place(arrays["x"], arrays, arrays["y"], parts_in_order(arrays["n_graphs"]), store)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (len(batch.target), self.d_out))
        return F.binary_cross_entropy_with_logits(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (len(batch.target), self.d_out))
        logits, actual = output.detach().double(), batch.target > 0.5
        predicted = logits > 0
        nats = F.binary_cross_entropy_with_logits(logits, actual.double(), reduction="sum").item()
        return {
            "right_n": (predicted & actual).sum().item(),
            "said_n": predicted.sum().item(),
            "there_n": actual.sum().item(),
            "cross_entropy_sum": nats,
            "n": actual.numel(),
        }

    def finish(self, sums: Sums) -> Metrics:
        either = sums["said_n"] + sums["there_n"]  # 2 t + f + m
        return {
            "micro_f1": 2 * sums["right_n"] / either if either else 0.0,
            "cross_entropy": sums["cross_entropy_sum"] / sums["n"],
        }

    def references(self) -> dict[str, Metrics]:
        """Every function for every protein; the share of each function in train; a linear map of features."""
        train = self.joined(self._graphs["train"])
        share = (train.target.double().sum(0) + 1) / (len(train.target) + 2)
        a = least_squares(train.input, train.target)
        yes = torch.ones(1, self.d_out, device=train.target.device)
        return {
            "every function": score_reference(self, lambda b: yes.expand(len(b.target), -1)),
            "share of each function": score_reference(
                self, lambda b: share.logit().expand(len(b.target), -1)
            ),
            "linear (features)": score_reference(
                self, lambda b: linear(b.input, a).clamp(1e-3, 1 - 1e-3).logit()
            ),
        }
