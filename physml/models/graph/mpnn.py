"""Stacks of any message-passing layer. Axes: N nodes, E edges, H channels."""

from collections.abc import Iterator
from typing import ClassVar

from torch import Tensor, nn

from physml.base.check import count, fraction, one_of, positive
from physml.models.graph.graph_parts import (
    ACTIVATIONS,
    Heads,
    call,
    check_input,
    checked_widths,
    copies,
    last,
    merge_heads,
)
from physml.ops.dropout import dropout


class MPNN(nn.Module):
    r"""A stack of any message-passing layer F, plain or residual.

    .. math::
        X^n = \sigma(F_n(X^{n-1}, G)), \qquad \text{or} \qquad X^n = X^{n-1} + h\, \sigma(F_n(X^{n-1}, G))

    The second with h = 1 is the residual network of equation 8.1. With one F for all layers and
    h = T / n_layers it is the explicit Euler scheme of a graph neural ODE up to T (GDE).

    Source: Rusch et al., ICLR 2023, https://arxiv.org/abs/2210.00513 (thesis 8.1); GDE: Poli et al. 2019,
    https://arxiv.org/abs/1911.07532.
    Args:
        coupling: F, from H to H channels, or to heads x H; ours or a convolution of PyG.
        n_layers: number of layers.
        activation: sigma.
        step: h; None: plain.
        batch_norm: a batch norm over all nodes before sigma.
        dropout: on what enters each layer but the first.
        shared_weights: one F for all layers; else each has its own, initialised separately.
        heads: see `merge_heads`; heads are merged after sigma.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,), if F takes it -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        n_layers: int,
        *,
        activation: str = "relu",
        step: float | None = None,
        batch_norm: bool = False,
        dropout: float = 0.0,
        shared_weights: bool = False,
        heads: Heads = "mean",
    ) -> None:
        super().__init__()
        count("n_layers", n_layers)
        one_of("activation", activation, ACTIVATIONS)
        one_of("heads", heads, ("mean", "official"))
        fraction("dropout", dropout)
        if step is not None:
            positive("step", step)
        d_in, d_out = checked_widths(coupling, heads=True)
        self.d_in = self.d_out = d_in
        self.n_layers, self.activation, self.step, self.dropout = n_layers, activation, step, dropout
        self.shared_weights, self.heads = shared_weights, heads
        self.layers = copies(coupling, 1 if shared_weights else n_layers)
        self.norms = nn.ModuleList(nn.BatchNorm1d(d_out) for _ in range(n_layers if batch_norm else 0))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight))

    def steps(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Iterator[Tensor]:
        """X^n after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        sigma = ACTIVATIONS[self.activation]
        for n in range(self.n_layers):
            layer_input = dropout(x, self.dropout, self.training) if n > 0 else x
            out = call(self.layers[0 if self.shared_weights else n], layer_input, edge_index, edge_weight)
            if self.norms:
                out = self.norms[n](out)
            out = merge_heads(sigma(out), x.shape[1], self.heads)
            x = out if self.step is None else x + self.step * out
            yield x

    def extra_repr(self) -> str:
        return f"n_layers={self.n_layers}, step={self.step}, shared_weights={self.shared_weights}"
