"""Fusion of several layers' outputs for a node. Axes: N nodes, L layers, H channels."""

from typing import Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of
from physml.models.sequence.gated import TorchLayer

Fuse = Literal["cat", "max", "sum", "mean", "lstm", "att"]
FUSIONS = ("cat", "max", "sum", "mean", "lstm", "att")


class Fusion(nn.Module):
    r"""X^1, ..., X^L of each node as one.

    "cat" sets them side by side; "max", "sum" and "mean" act on each channel; the others are
    :math:`\sum_n a_n X^n` with :math:`a = \mathrm{softmax}_n(w \cdot Z^n + c)` of each node, where Z^n is X^n
    for "att", and for "lstm" what an LSTM of L H / 2 units in each direction says at X^n. "cat", "max" and
    "lstm" are those of jumping knowledge, with the numbers of PyG's JumpingKnowledge with the same weights.

    Source: Xu et al., ICML 2018, https://arxiv.org/abs/1806.03536, section 4; "sum", "mean" and "att": Wei et
    al., WWW 2022, https://arxiv.org/abs/2112.14531.
    Args:
        fuse: how.
        d: H.
        n: L.
    Shapes: L tensors (N, H) -> (N, d_out), d_out = L H with "cat", else H.
    """

    def __init__(self, fuse: Fuse, d: int, n: int) -> None:
        super().__init__()
        one_of("fuse", fuse, FUSIONS)
        each(count, d=d, n=n)
        self.fuse, self.d_out = fuse, n * d if fuse == "cat" else d
        self.lstm: TorchLayer | None = None
        self.score: nn.Linear | None = None
        if fuse == "lstm":
            units = max(1, n * d // 2)
            self.lstm, self.score = (
                TorchLayer("LSTM", d, units, bidirectional=True),
                nn.Linear(2 * units, 1),
            )
        elif fuse == "att":
            self.score = nn.Linear(d, 1)

    def forward(self, layers: list[Tensor]) -> Tensor:
        if self.fuse == "cat":
            return torch.cat(layers, 1)
        x = torch.stack(layers, 1)  # (N, L, H)
        if self.fuse == "max":
            return x.max(1).values
        if self.score is None:
            return x.sum(1) if self.fuse == "sum" else x.mean(1)
        said = x if self.lstm is None else self.lstm(x)[0]
        return (torch.softmax(self.score(said), 1) * x).sum(1)
