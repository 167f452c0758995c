"""Plain stacks on a graph that personalised PageRank draws anew. Axes: N nodes, E edges, H channels."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from torch import Tensor, nn

from physml.base.check import count, fraction
from physml.base.errors import InputError
from physml.graph.pagerank import pagerank_edges
from physml.models.graph.gnn import GNN
from physml.models.graph.graph_features import Features
from physml.models.graph.graph_parts import Heads, check_input


class PageRankGNN(GNN):
    r"""`GNN` on the k nodes that personalised PageRank finds nearest to a node, not on its neighbours.

    GAT-ppr with kind "gat". Edges are those of `physml.graph.pagerank`, without the weights that PageRank
    gives them: attention finds its own.

    Source: Klicpera et al., NeurIPS 2019, https://arxiv.org/abs/1911.05485; as GAT-ppr: Chamberlain et al.,
    ICML 2021, https://arxiv.org/abs/2106.10934.
    Args:
        alpha: chance to start anew.
        k: edges that each node receives, where edges go both ways its own loop among them.
        The others are those of `GNN`.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        *,
        kind: Literal["mlp", "gcn", "gat", "sage"] = "gat",
        alpha: float = 0.15,
        k: int = 32,
        activation: str = "elu",
        dropout: float = 0.0,
        n_heads: int = 1,
        heads: Heads = "mean",
        residual: bool = False,
        pair_norm: float | None = None,
        drop_edge: float = 0.0,
    ) -> None:
        super().__init__(
            d_in,
            d_hidden,
            n_layers,
            kind=kind,
            activation=activation,
            dropout=dropout,
            n_heads=n_heads,
            heads=heads,
            residual=residual,
            pair_norm=pair_norm,
            drop_edge=drop_edge,
        )
        fraction("alpha", alpha)
        if alpha in (0.0, 1.0):
            raise InputError(
                f"alpha must be above 0 and below 1, or no walk starts anew or leaves; got {alpha}."
            )
        count("k", k)
        self.alpha, self.k = alpha, k

    def head(self, d_out: int) -> nn.Module:
        """One more layer of the same kind on the same edges; no activation follows it."""
        return _OnPageRank(super().head(d_out), self.alpha, self.k)

    def steps(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Iterator[Tensor]:
        """X^n after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, None, self.d_in)
        if edge_weight is not None:
            raise InputError(
                "PageRankGNN draws its own edges and takes no edge_weight. Leave the weights out."
            )
        yield from super().steps(x, pagerank_edges(edge_index, len(x), self.alpha, self.k))


class _OnPageRank(nn.Module):
    def __init__(self, layer: nn.Module, alpha: float, k: int) -> None:
        super().__init__()
        self.layer, self.alpha, self.k = layer, alpha, k

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, None)
        return self.layer(x, pagerank_edges(edge_index, len(x), self.alpha, self.k))
