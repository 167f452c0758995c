"""Anti-symmetric deep graph networks. Axes: N nodes, E edges, H channels."""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, non_negative, one_of, positive
from physml.models.graph.graph_parts import ACTIVATIONS, call, check_input, checked_widths, last


class ADGN(nn.Module):
    r"""A stable, non-dissipative flow on the nodes: anti-symmetric weights, coupled by any layer F.

    .. math:: X^n = X^{n-1} + \epsilon\, \sigma\big(X^{n-1} (W - W^\top - \gamma I)^\top
              + F(X^{n-1}, G) + b\big)

    with one W and one F for all steps. Without coupling the real parts of the flow's eigenvalues are 0, but
    for gamma.

    Source: Gravina et al., ICLR 2023, https://arxiv.org/abs/2210.09789, equation 5.
    Init: W and b uniform on [-k, k], k = H^(-1/2).
    Args:
        coupling: F, from H to H channels; ours or a convolution of PyG. The paper has `SumConvolution` and
            `GraphConvolution`.
        n_layers: number of steps.
        epsilon: step size.
        gamma: damping.
        activation: sigma.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,), if F takes it -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        n_layers: int,
        *,
        epsilon: float = 0.1,
        gamma: float = 0.1,
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        count("n_layers", n_layers)
        positive("epsilon", epsilon)
        non_negative("gamma", gamma)
        one_of("activation", activation, ACTIVATIONS)
        self.d_in = self.d_out = d_in = checked_widths(coupling)[0]
        self.n_layers, self.epsilon, self.gamma, self.activation = n_layers, epsilon, gamma, activation
        self.coupling = coupling
        self.W, self.b = nn.Parameter(torch.empty(d_in, d_in)), nn.Parameter(torch.empty(d_in))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for p in (self.W, self.b):
            nn.init.uniform_(p, -(self.d_in**-0.5), self.d_in**-0.5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight))

    def steps(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Iterator[Tensor]:
        """X^n after each step, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        skew, sigma = self.W - self.W.T, ACTIVATIONS[self.activation]
        for _ in range(self.n_layers):
            own = torch.addmm(self.b, x, skew.T) - self.gamma * x
            x = x + self.epsilon * sigma(own + call(self.coupling, x, edge_index, edge_weight))
            yield x

    def symbols(self) -> dict[str, Tensor]:
        inner = self.coupling.symbols() if hasattr(self.coupling, "symbols") else {}  # type: ignore[operator]
        return {"W": self.W, "b": self.b, **{f"F.{name}": w for name, w in inner.items()}}
