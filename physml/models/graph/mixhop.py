"""MixHop. Axes: N nodes, E edges, H channels of a power, P powers."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, one_of
from physml.base.errors import InputError
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import ACTIVATIONS, check_input
from physml.models.graph.graph_propagation import gcn_spread
from physml.ops.dropout import dropout


class MixHop(nn.Module):
    r"""Powers of the adjacency matrix side by side, each with weights of its own.

    .. math:: X^n = \sigma\big([P^j X^{n-1} W_j^n + b_j^n]_{j \in \mathrm{powers}}\big)

    with P the matrix of equation 7.5.

    Source: Abu-El-Haija et al., ICML 2019, https://arxiv.org/abs/1905.00067, equation 2.
    Choices: the decoder is a linear map of all powers, where the paper weighs groups of the last layer's
    columns; no batch norm.
    Init: that of a torch Linear; in the code Glorot uniform for each power, without biases.
    Args:
        d_in: D.
        d_hidden: H.
        n_layers: N.
        powers: whole numbers from 0 on, each once.
        activation: sigma.
        dropout: on what enters each layer but the first.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E), edge_weight (E,) -> (N, P H), one power after
    the other.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1
    takes_rows: ClassVar[bool] = True

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        *,
        powers: Sequence[int] = (0, 1, 2),
        activation: str = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        one_of("activation", activation, ACTIVATIONS)
        fraction("dropout", dropout)
        if not powers or len({*powers}) < len(powers) or min(powers) < 0:
            raise InputError(f"powers must be different whole numbers from 0 on; got {list(powers)}.")
        self.d_in, self.d_hidden, self.d_out = d_in, d_hidden, d_hidden * len(powers)
        self.powers, self.activation, self.dropout = tuple(powers), activation, dropout
        sizes = [d_in] + [self.d_out] * (n_layers - 1)
        self.layers = nn.ModuleList(nn.Linear(size, self.d_out) for size in sizes)

    def forward(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        spread, sigma = gcn_spread(x, edge_index, edge_weight), ACTIVATIONS[self.activation]
        for n, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Linear)
            if n > 0 and isinstance(x, Tensor):
                x = dropout(x, self.dropout, self.training)
            mixed = list(linear(x, layer.weight).chunk(len(self.powers), 1))
            for k, power in enumerate(self.powers):
                for _ in range(power):
                    mixed[k] = spread(mixed[k])
            x = sigma(torch.cat(mixed, 1) + layer.bias)
        assert isinstance(x, Tensor)
        return x

    def symbols(self) -> dict[str, Tensor]:
        """W_j^n and b_j^n of each power and layer."""
        return {
            f"{name}_{j}^{n}": part
            for n, layer in enumerate(self.layers, 1)
            for name, whole in {"W": layer.weight, "b": layer.bias}.items()
            for j, part in zip(self.powers, whole.chunk(len(self.powers)), strict=True)  # type: ignore[operator]
        }
