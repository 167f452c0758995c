"""Geom-GCN. Axes: N nodes, E edges, D features, H channels, R = 9 divisions."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import Shaped, count, each, fraction, one_of
from physml.graph.cache import cached
from physml.graph.edges import Edges
from physml.graph.latent import isomap, neighbours_in_plane, quadrants
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import Spread, simple_edges
from physml.ops.dropout import dropout

Merge = Literal["cat", "mean", "sum"]
DIVISIONS = 9  # four quadrants of the graph, four of the plane, the node itself


class GeometricConvolution(nn.Module):
    r"""Neighbours of the graph and of a plane, each divided by where they lie there, with weights of each.

    .. math::
        E_i^r = \sum_{j \in N_i^r} \frac{X_j}{\sqrt{d_i d_j}}, \qquad
        X_i \mapsto \big[W_r E_i^r\big]_{r=1}^9 \quad\text{or}\quad \tfrac19 \sum_r W_r E_i^r
        \quad\text{or}\quad \sum_r W_r E_i^r

    N^1 to N^4 are those who i receives from, upper left, lower left, upper right and lower right of i in the
    plane; N^5 to N^8 those near i in the plane, by the same quadrants; N^9 is i. Places are those of Isomap,
    and near is within the least radius with as many pairs as the graph has edges. d_i counts all of these.

    Source: Pei et al., ICLR 2020, https://arxiv.org/abs/2002.05287, section 3. The sum is its equation 5, one
    map of all divisions; cat and mean are those of its first and last layer in its code, and so are d and the
    ninth division.
    Choices: places by Isomap alone. The paper's Poincare and struc2vec places come from programs of others;
    its code has files of the neighbours and no program that makes them. A pair that is near in graph and
    plane is in both, as in the paper; in the code the plane takes it from the graph.
    Init: each W Glorot uniform.
    Args:
        d_in: channels in.
        d_out: channels out of each division.
        merge: "cat", "mean" or "sum".
    Shapes: x (N, d_in), a tensor or `Rows`, edge_index (2, E) -> (N, 9 d_out) with "cat", else (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True  # a plane for all nodes, whatever joins them

    def __init__(self, d_in: int, d_out: int, *, merge: Merge = "sum") -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        one_of("merge", merge, ("cat", "mean", "sum"))
        self.d_in, self.d_division, self.merge = d_in, d_out, merge
        self.d_out = DIVISIONS * d_out if merge == "cat" else d_out
        self.lin = nn.Linear(d_in, DIVISIONS * d_out, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in self.lin.weight.split(self.d_division):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        mixed = linear(x, self.lin.weight).split(self.d_division, 1)
        parts = [spread(part) for spread, part in zip(divisions(x, edge_index), mixed, strict=True)]
        if self.merge == "cat":
            return torch.cat(parts, 1)
        total = torch.stack(parts).sum(0)
        return total / DIVISIONS if self.merge == "mean" else total

    def symbols(self) -> dict[str, Tensor]:
        return {f"W_{r}": weight for r, weight in enumerate(self.lin.weight.split(self.d_division), 1)}


class GeomGCN(nn.Module):
    r"""A stack of `GeometricConvolution` with ReLU, whose divisions stand side by side.

    The paper's network is two layers, the last the mean over divisions without activation: n_layers=1 with
    the net's decoder=layer.

    Source: Pei et al., ICLR 2020, https://arxiv.org/abs/2002.05287, and its code.
    Args:
        d_in: D.
        d_hidden: H, of each division.
        n_layers: N, without the last.
        merge: of the divisions of these layers.
        dropout: on what enters each layer but the first.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E) -> (N, 9 H) with "cat", else (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True

    def __init__(
        self, d_in: int, d_hidden: int, n_layers: int = 1, *, merge: Merge = "cat", dropout: float = 0.0
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        fraction("dropout", dropout)
        self.d_in, self.dropout = d_in, dropout
        self.layers = nn.ModuleList()
        for _ in range(n_layers):
            self.layers.append(GeometricConvolution(d_in, d_hidden, merge=merge))
            d_in = self.layers[-1].d_out  # type: ignore[assignment]
        self.d_out = d_in

    def head(self, d_out: int) -> nn.Module:
        """The last layer, the mean over divisions; no activation follows it."""
        return GeometricConvolution(self.d_out, d_out, merge="mean")

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        for n, layer in enumerate(self.layers):
            layer_input = dropout(x, self.dropout, self.training) if n > 0 and isinstance(x, Tensor) else x
            x = torch.relu(layer(layer_input, edge_index))
        assert isinstance(x, Tensor)
        return x


def divisions(x: Shaped, edge_index: Tensor) -> list[Spread]:
    """The sums over N^1 to N^9 with their weights, as products. Made once per graph."""
    n, dtype = len(x), x.dtype
    return cached("geometric", edge_index, (n, dtype), lambda: _spreads(edge_index, n, dtype))


def _spreads(edge_index: Tensor, n: int, dtype: torch.dtype) -> list[Spread]:
    place, graph = isomap(edge_index, n), simple_edges(edge_index, n)
    of_graph = torch.stack([graph.sender, graph.receiver])
    of_plane = torch.from_numpy(neighbours_in_plane(place, of_graph.shape[1])).to(edge_index.device)
    groups = []
    for pairs in (of_graph, of_plane):
        quadrant = quadrants(place, pairs.cpu().numpy()).to(edge_index.device)
        groups += [pairs[:, quadrant == r] for r in range(4)]
    groups.append(torch.arange(n, device=edge_index.device).expand(2, n))
    degree = sum(torch.bincount(pairs[1], minlength=n) for pairs in groups).to(dtype)  # type: ignore[union-attr]
    return [
        Spread(Edges(sender, receiver, n), (degree[sender] * degree[receiver]).rsqrt())
        for sender, receiver in groups
    ]
