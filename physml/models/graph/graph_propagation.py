"""Sums over the edges of a graph, as sparse products. Axes: N nodes, E edges, H channels.

An edge list (2, E) holds a sender in row 0 and a receiver in row 1, as stored: nothing is made undirected,
merged or added unless a layer says so. The neighbours whose features a node sums are the senders of the
edges that it receives.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from physml.base.check import Shaped
from physml.graph.cache import cached
from physml.graph.edges import Edges, gather, looped, sorted_edges
from physml.ops.derivatives import transformed
from physml.ops.spread import spread
from physml.ops.weighted_sum import weighted_sum

Aggregate = Literal["sum", "mean"]


class Spread:
    r"""A fixed matrix of edge weights, ready for products: :math:`A X` and, backwards, :math:`A^\top G`."""

    def __init__(self, edges: Edges, weight: Tensor) -> None:
        self.edges, self.weight = edges, weight
        self._rows: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        if transformed(x):
            return weighted_sum(x, self.weight, self.edges)
        return _Product.apply(x, self, False)

    def back(self, x: Tensor) -> Tensor:
        r""":math:`A^\top X`: the sums over those that a node sends to."""
        if transformed(x):
            return weighted_sum(x, self.weight, Edges(self.edges.receiver, self.edges.sender, self.edges.n))
        return _Product.apply(x, self, True)

    def times(self, x: Tensor, transposed: bool) -> Tensor:
        end: Literal["sender", "receiver"] = "sender" if transposed else "receiver"
        if end not in self._rows:
            start, other, order = self.edges.rows(end)
            self._rows[end] = gather(self.weight, order), start, other
        return spread(x, *self._rows[end])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spread: Spread, transposed: bool) -> Tensor:
        ctx.spread, ctx.transposed = spread, transposed
        return spread.times(x, transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(grad, ctx.spread, not ctx.transposed), None, None


def gcn_spread(
    x: Shaped, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    r""":math:`\hat D^{-1/2} \hat A \hat D^{-1/2}` with :math:`\hat A = A + I` (equation 7.5), as a product.

    Degrees count what a node receives. A stored self-loop keeps its weight and gets no second one.
    Made once per graph, unless the weights are trained. A change of `edge_index` or `edge_weight` through
    NumPy or `.data` is not seen: pass a clone after one.
    """
    n, dtype = len(x), x.dtype
    if edge_weight is None:
        return cached(
            "gcn", edge_index, (n, dtype), lambda: Spread(*_gcn_weights(edge_index, n, None, dtype))
        )
    if edge_weight.requires_grad or edge_weight.is_inference() or transformed(edge_weight):
        edges, weight = _gcn_weights(edge_index, n, edge_weight, dtype)
        return lambda y: weighted_sum(y, weight, edges)
    key = (n, dtype, id(edge_weight), edge_weight._version)
    kept = cached(
        "gcn",
        edge_index,
        key,
        lambda: (edge_weight, Spread(*_gcn_weights(edge_index, n, edge_weight, dtype))),
    )  # the weights are kept too, so that their id stays theirs
    return kept[1]


def _gcn_weights(
    edge_index: Tensor, n: int, edge_weight: Tensor | None, dtype: torch.dtype
) -> tuple[Edges, Tensor]:
    edges = looped(edge_index, n)
    loop = torch.ones(n, dtype=dtype, device=edge_index.device)
    if edge_weight is None:
        weight = torch.ones(len(edges.sender), dtype=dtype, device=edge_index.device)
    else:
        own = edge_index[0] == edge_index[1]
        loop = loop.index_put((edge_index[0, own],), edge_weight[own].to(dtype))
        weight = torch.cat([edge_weight[~own].to(dtype), loop])
    degree = torch.zeros(n, dtype=dtype, device=weight.device).index_add(0, edges.receiver, weight)
    scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
    return edges, scale[edges.sender] * weight * scale[edges.receiver]


def simple_edges(edge_index: Tensor, n: int) -> Edges:
    """Who receives from whom: each pair of nodes once, without loops. Cached as `sorted_edges` are."""

    def make() -> Edges:
        sender, receiver = edge_index[:, edge_index[0] != edge_index[1]]
        pair = torch.unique(receiver * n + sender)
        return Edges(pair % n, pair // n, n)

    return cached("simple", edge_index, (n,), make)


def symmetric_weights(edges: Edges, dtype: torch.dtype) -> Tensor:
    r""":math:`1 / \sqrt{d_j d_i}` of each edge from j to i, (E,).

    d_j counts what the sender j sends, d_i what i receives: the same number where edges go both ways, and no
    edge has weight 0 where they go one way.
    """
    sent = torch.bincount(edges.sender, minlength=edges.n).to(dtype)
    received = torch.bincount(edges.receiver, minlength=edges.n).to(dtype)
    return (gather(sent, edges.sender) * gather(received, edges.receiver)).rsqrt()


def link_spread(x: Shaped, edge_index: Tensor) -> Spread:
    """A itself, A[i, j] = 1 where i receives from j, each pair once and without loops, as a product.

    Made once per graph; pass a clone of `edge_index` after a change through NumPy or `.data`.
    """
    n, dtype = len(x), x.dtype

    def make() -> Spread:
        edges = simple_edges(edge_index, n)
        return Spread(edges, torch.ones(len(edges.sender), dtype=dtype, device=edge_index.device))

    return cached("links", edge_index, (n, dtype), make)


def mean_over(edges: Edges, dtype: torch.dtype) -> Spread:
    """The mean over the senders of the edges that a node receives; 0 at a node that receives none."""
    count = torch.bincount(edges.receiver, minlength=edges.n).to(dtype)
    return Spread(edges, (1 / count)[edges.receiver])


def mean_spread(x: Shaped, edge_index: Tensor) -> Spread:
    """The mean over the senders of the edges that a node receives; 0 at a node that receives none.

    Made once per graph; pass a clone of `edge_index` after a change through NumPy or `.data`.
    """
    n, dtype = len(x), x.dtype
    return cached("mean", edge_index, (n, dtype), lambda: mean_over(sorted_edges(edge_index, n), dtype))


def looped_mean_spread(x: Shaped, edge_index: Tensor) -> Spread:
    r""":math:`D^{-1} (A + I)`, each pair of A once: a mean over the senders and the node, as a product.

    A stored loop stays beside that of I and weighs 2. Made once per graph; pass a clone of `edge_index` after
    a change through NumPy or `.data`.
    """
    n, dtype = len(x), x.dtype

    def make() -> Spread:
        simple = simple_edges(edge_index, n)
        every = torch.arange(n, device=edge_index.device)
        edges = Edges(torch.cat([simple.sender, every]), torch.cat([simple.receiver, every]), n)
        stored = torch.zeros(n, dtype=dtype, device=edge_index.device)
        stored[edge_index[0, edge_index[0] == edge_index[1]]] = 1
        weight = torch.cat([torch.ones_like(simple.sender, dtype=dtype), 1 + stored])
        total = torch.zeros_like(stored).index_add(0, edges.receiver, weight)
        return Spread(edges, weight / gather(total, edges.receiver))

    return cached("weighted looped mean", edge_index, (n, dtype), make)


def softmax_over(score: Tensor, node: Tensor, n: int) -> Tensor:
    """Softmax of scores (E, heads) among the edges of the same node."""
    index = node[:, None].expand_as(score)
    top = score.new_full((n, score.shape[1]), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = torch.exp(score - gather(top, node))
    return weight / gather(torch.zeros_like(top).index_add(0, node, weight), node)
