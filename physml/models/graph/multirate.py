"""Rates without graph gradients. Axes: N nodes, E edges, H channels."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count
from physml.base.errors import InputError
from physml.models.graph.graph_parts import Force, Heads, check_input, copies, last, numbered, widths


class MultiRate(nn.Module):
    r"""Updates of any message-passing layer F at rates that another one gives: gradient gating without the
    graph gradient.

    .. math::
        \tau^n &= \mathrm{sigmoid}(\hat F(X^{n-1}, G)) \\
        X^n &= (1 - \tau^n) \odot X^{n-1} + \tau^n \odot \sigma(F(X^{n-1}, G))

    Equations 8.2 and 8.3. Rates do not go to 0 where neighbours agree, so that it may oversmooth
    (proposition 8.2.3), as `GradientGating` does not.

    Source: Rusch et al., ICLR 2023, https://arxiv.org/abs/2210.00513 (thesis chapter 8).
    Args:
        coupling: F, from H to H channels, or to heads x H; ours or a convolution of PyG.
        gate_coupling: F-hat, a layer of its own.
        n_layers: number of layers.
        activation: sigma.
        shared_weights: one F, and one F-hat, for all layers; else each layer has its own.
        heads: see `merge_heads`.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,), which both see -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        gate_coupling: nn.Module,
        n_layers: int,
        *,
        activation: str = "relu",
        shared_weights: bool = True,
        heads: Heads = "mean",
    ) -> None:
        super().__init__()
        count("n_layers", n_layers)
        if gate_coupling is coupling:
            raise InputError("gate_coupling is the coupling itself: the rates need a layer of their own.")
        self.n_layers, self.shared_weights = n_layers, shared_weights
        self.d_in = self.d_out = widths(coupling)[0]
        n = 1 if shared_weights else n_layers
        self.forces = copies(Force(coupling, activation=activation, heads=heads), n)
        self.gates = copies(Force(gate_coupling, activation="sigmoid", heads=heads), n)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight))[0]

    def steps(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(X^n, rates of layer n) after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        for n in range(self.n_layers):
            layer = 0 if self.shared_weights else n
            new = self.forces[layer](x, edge_index, edge_weight)
            rate = self.gates[layer](x, edge_index, edge_weight)
            x = torch.lerp(x, new, rate)
            yield x, rate

    def symbols(self) -> dict[str, Tensor]:
        """The coupling's weights by their names, and with a hat those of F-hat."""
        return {
            **numbered(self.forces),
            **{f"hat {name}": value for name, value in numbered(self.gates).items()},
        }
