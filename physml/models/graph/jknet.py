"""Jumping knowledge networks. Axes: N nodes, E edges, H channels."""

from typing import ClassVar, Literal

from torch import Tensor, nn

from physml.base.check import one_of
from physml.models.graph.graph_fusion import Fusion
from physml.models.graph.graph_parts import Heads
from physml.models.graph.mpnn import MPNN


class JKNet(nn.Module):
    r"""A stack whose every layer is heard at the end, as each node needs.

    .. math:: X^n = \sigma(F_n(X^{n-1}, G)), \qquad X = \mathrm{fuse}(X^1, \dots, X^N)

    with `MPNN` as stack and the fusions of `graph_fusion.Fusion`.

    Source: Xu et al., ICML 2018, https://arxiv.org/abs/1806.03536, section 4.
    Args:
        coupling: F, from H to H channels, or to heads x H; ours or a convolution of PyG.
        n_layers: N.
        fuse: "cat", "max" or "lstm".
        activation: sigma.
        dropout: on what enters each layer but the first.
        heads: see `merge_heads`; heads are merged after sigma.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,), if F takes it -> (N, N H) with "cat", else (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        n_layers: int,
        *,
        fuse: Literal["cat", "max", "lstm"] = "lstm",
        activation: str = "relu",
        dropout: float = 0.0,
        heads: Heads = "mean",
    ) -> None:
        super().__init__()
        one_of("fuse", fuse, ("cat", "max", "lstm"))
        self.stack = MPNN(coupling, n_layers, activation=activation, dropout=dropout, heads=heads)
        self.d_in = self.stack.d_in
        self.fusion = Fusion(fuse, self.d_in, n_layers)
        self.d_out = self.fusion.d_out

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.fusion(list(self.stack.steps(x, edge_index, edge_weight)))
