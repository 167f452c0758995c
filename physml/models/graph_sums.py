"""Sums over the edges of a graph, as sparse products. Axes: N nodes, E edges, H channels.

An edge list (2, E) holds a sender in row 0 and a receiver in row 1, as stored: nothing is made undirected,
merged or added unless a layer says so. The neighbours whose features a node sums are the senders of the
edges that it receives.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from physml.check import Shaped
from physml.graphs import cached
from physml.ops.weighted_sum import weighted_sum

Aggregate = Literal["sum", "mean"]


class Edges:
    """An edge list sorted both ways, so that sums over the edges of a node are sparse products."""

    def __init__(self, sender: Tensor, receiver: Tensor, n: int) -> None:
        self.sender, self.receiver, self.n = sender, receiver, n
        self._rows: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._received_order: Tensor | None = None

    def rows(self, of: Literal["sender", "receiver"]) -> tuple[Tensor, Tensor, Tensor]:
        """Where each node's run of edges starts, the other end of each edge, and the order of the edges."""
        if of not in self._rows:
            own, other = self.sender, self.receiver
            if of == "receiver":
                own, other = other, own
            order = torch.argsort(own, stable=True)
            self._rows[of] = starts(own, self.n), other[order], order
        return self._rows[of]

    def received_order(self) -> Tensor:
        """Where each edge of rows("receiver") stands in rows("sender")."""
        if self._received_order is None:
            place = torch.empty_like(self.sender)
            place[self.rows("sender")[2]] = torch.arange(len(place), device=place.device)
            self._received_order = gather(place, self.rows("receiver")[2])
        return self._received_order

    def matrix(self, weight: Tensor, of: Literal["sender", "receiver"]) -> Tensor:
        """Sparse (N, N): the weight of an edge at (its `of` end, its other end)."""
        start, other, order = self.rows(of)
        return csr(start, other, gather(weight, order), (self.n, self.n))


def csr(start: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix of rows; torch calls the layout a beta in a warning, which is for us to know."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(start, column, value, shape, check_invariants=False)


def edges(edge_index: Tensor, n: int) -> Edges:
    """The edges as stored, sorted once per edge list."""
    return cached("edges", edge_index, (n,), lambda: Edges(edge_index[0], edge_index[1], n))


def looped(edge_index: Tensor, n: int) -> Edges:
    """One loop at each node in place of those that are stored, after all other edges."""
    return cached("looped", edge_index, (n,), lambda: _with_loops(edge_index, n))


def _with_loops(edge_index: Tensor, n: int) -> Edges:
    kept = edge_index[:, edge_index[0] != edge_index[1]]
    every = torch.arange(n, device=edge_index.device)
    return Edges(torch.cat([kept[0], every]), torch.cat([kept[1], every]), n)


class Spread:
    r"""A fixed matrix of edge weights, ready for products: :math:`A X` and, backwards, :math:`A^\top G`."""

    def __init__(self, of: Edges, weight: Tensor) -> None:
        self.edges, self.weight = of, weight
        self._there = of.matrix(weight, "receiver")
        self._back: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self, False)

    def times(self, x: Tensor, transposed: bool) -> Tensor:
        if not transposed:
            return self._there @ x
        if self._back is None:
            self._back = self.edges.matrix(self.weight, "sender")
        return self._back @ x


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
    Made once per graph, unless the weights are trained or changes of theirs would not be seen.
    """
    n, dtype = len(x), x.dtype
    if edge_weight is None:
        return cached(
            "gcn", edge_index, (n, dtype), lambda: Spread(*_gcn_weights(edge_index, n, None, dtype))
        )
    if edge_weight.requires_grad or edge_weight.is_inference():
        of, weight = _gcn_weights(edge_index, n, edge_weight, dtype)
        return lambda y: weighted_sum(y, weight, of)
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
    of = looped(edge_index, n)
    loop = torch.ones(n, dtype=dtype, device=edge_index.device)
    if edge_weight is None:
        weight = torch.ones(len(of.sender), dtype=dtype, device=edge_index.device)
    else:
        own = edge_index[0] == edge_index[1]
        loop = loop.index_put((edge_index[0, own],), edge_weight[own].to(dtype))
        weight = torch.cat([edge_weight[~own].to(dtype), loop])
    degree = torch.zeros(n, dtype=dtype, device=weight.device).index_add(0, of.receiver, weight)
    scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
    return of, scale[of.sender] * weight * scale[of.receiver]


def mean_spread(x: Shaped, edge_index: Tensor) -> Spread:
    """The mean over the senders of the edges that a node receives; 0 at a node that receives none."""
    n, dtype = len(x), x.dtype

    def make() -> Spread:
        of = edges(edge_index, n)
        count = torch.bincount(of.receiver, minlength=n).to(dtype)
        return Spread(of, (1 / count)[of.receiver])

    return cached("mean", edge_index, (n, dtype), make)


def gather(x: Tensor, index: Tensor) -> Tensor:
    """x[index]: whole rows, which index_select copies at once and indexing one number at a time."""
    return x.index_select(0, index)


def starts(sorted_by: Tensor, n: int) -> Tensor:
    """Where the run of each number in [0, n) begins, and the end: (n + 1,)."""
    start = torch.zeros(n + 1, dtype=torch.long, device=sorted_by.device)
    torch.cumsum(torch.bincount(sorted_by, minlength=n), 0, out=start[1:])
    return start


def softmax_over(score: Tensor, node: Tensor, n: int) -> Tensor:
    """Softmax of scores (E, heads) among the edges of the same node."""
    index = node[:, None].expand_as(score)
    top = score.new_full((n, score.shape[1]), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = torch.exp(score - gather(top, node))
    return weight / gather(torch.zeros_like(top).index_add(0, node, weight), node)
