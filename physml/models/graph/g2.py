"""Gradient gating. Axes: N nodes, E edges, H channels."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, non_negative, one_of, positive
from physml.base.errors import InputError
from physml.graph.cache import cached
from physml.graph.edges import Edges, sorted_edges
from physml.models.graph.graph_parts import Force, Heads, check_input, copies, last, numbered, widths
from physml.models.graph.graph_powers import power
from physml.models.graph.graph_propagation import Aggregate
from physml.ops.gate import gate
from physml.ops.gradient_sum import gradient_sum
from physml.ops.norm_sum import norm_sum

LEAST_RATE = 1e-20  # below it, the slope of a rate's power is that at it


class GradientGating(nn.Module):
    r"""Updates of any message-passing layer F, each node and channel at a rate of its own.

    .. math::
        \hat\tau^n &= \sigma(\hat F(X^{n-1}, G)), \qquad
        \tau^n_{ik} = \tanh\Big(\sum_{j \in N_i} |\hat\tau^n_{jk} - \hat\tau^n_{ik}|^p\Big) \\
        X^n &= (1 - \tau^n) \odot X^{n-1} + \tau^n \odot \sigma(F(X^{n-1}, G))

    Equations 8.2-8.4. Where a node and its neighbours agree, its rate is 0 and it stays.

    Source: Rusch et al., ICLR 2023, https://arxiv.org/abs/2210.00513 (thesis chapter 8).
    Choices: N_i is who i sends an edge to, the edges as stored, as in the official code; a node that sends
    none keeps its features. Slopes of |d|^p at d = 0 are 0, also for p <= 1 where they jump or do not exist.

    Args:
        coupling: F, from H to H channels, or to heads x H; ours or a convolution of PyG.
        n_layers: N.
        p: power of the graph gradient.
        aggregate: "sum" over N_i, equation 8.4, or "mean", as in the official code.
        gate_coupling: F-hat; None: F itself.
        single_rate: one rate per node, the sum over N_i of p-norms over channels (equation 8.26).
        rate_exponent: a, for rates tau^a (section 8.4): 1 is the model, 0 the plain layer.
        activation: sigma.
        shared_weights: one F, and one F-hat, for all layers, as in the official code; else each layer has its
            own, initialised separately.
        heads: see `merge_heads`.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,), which only F sees -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.

    Example:
        >>> from physml.models.graph.graph_layers import GraphConvolution
        >>> layer = GradientGating(GraphConvolution(8, 8), 4, p=2.5, activation="relu")
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 8])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        n_layers: int,
        *,
        p: float = 2.0,
        activation: str = "relu",
        aggregate: Aggregate = "sum",
        gate_coupling: nn.Module | None = None,
        single_rate: bool = False,
        rate_exponent: float = 1.0,
        shared_weights: bool = True,
        heads: Heads = "mean",
    ) -> None:
        super().__init__()
        count("n_layers", n_layers)
        positive("p", p)
        non_negative("rate_exponent", rate_exponent)
        one_of("aggregate", aggregate, ("sum", "mean"))
        self.n_layers, self.p, self.aggregate = n_layers, float(p), aggregate
        self.single_rate, self.rate_exponent = single_rate, float(rate_exponent)
        self.shared_weights = shared_weights
        self.d_in = self.d_out = widths(coupling)[0]
        n = 1 if shared_weights else n_layers
        self.forces = copies(Force(coupling, activation=activation, heads=heads), n)
        self.gates: nn.ModuleList | None = None
        if gate_coupling is not None:
            if gate_coupling is coupling:
                raise InputError("gate_coupling is the coupling itself: leave it out to use F for both.")
            self.gates = copies(Force(gate_coupling, activation=activation, heads=heads), n)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight))[0]

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

    def steps(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(X^n, rates of layer n) after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        edges = sorted_edges(edge_index, len(x))
        for n in range(self.n_layers):
            layer = 0 if self.shared_weights else n
            new = self.forces[layer](x, edge_index, edge_weight)
            q = new if self.gates is None else self.gates[layer](x, edge_index, edge_weight)
            x, rate = self.gated(x, new, q, edge_index, edges)
            yield x, rate

    def gated(
        self, x: Tensor, new: Tensor, q: Tensor, edge_index: Tensor, edges: Edges
    ) -> tuple[Tensor, Tensor]:
        r"""X^n, and :math:`\tau^a` from :math:`\hat\tau`, (N, H), or (N, 1) with a single rate."""
        share = None
        if self.aggregate == "mean":
            share = cached("share", edge_index, (len(q), q.dtype), lambda: _share(edges, q.dtype))
        if not self.single_rate and self.rate_exponent == 1:
            return gate(x, new, q, edges, self.p, share)
        total = norm_sum(q, edges, self.p) if self.single_rate else gradient_sum(q, edges, self.p)
        rate = torch.tanh(total if share is None else total * share)
        rate = rate if self.rate_exponent == 1 else power(rate, self.rate_exponent, LEAST_RATE)
        return torch.lerp(x, new, rate), rate  # (1 - rate) x + rate new, exact at both ends

    def symbols(self) -> dict[str, Tensor]:
        """The coupling's weights by their names, and with a hat those of F-hat."""
        hats = {} if self.gates is None else numbered(self.gates)
        return {**numbered(self.forces), **{f"hat {name}": value for name, value in hats.items()}}

    def extra_repr(self) -> str:
        return (
            f"n_layers={self.n_layers}, p={self.p}, aggregate={self.aggregate}, "
            f"single_rate={self.single_rate}, rate_exponent={self.rate_exponent}, "
            f"shared_weights={self.shared_weights}"
        )


def _share(edges: Edges, dtype: torch.dtype) -> Tensor:
    """One over the number of edges that a node sends, (N, 1)."""
    count = torch.bincount(edges.sender, minlength=edges.n).clamp_(min=1)
    return (1 / count.to(dtype))[:, None]
