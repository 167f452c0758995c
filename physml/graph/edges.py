"""Edge lists sorted by sender and by receiver, for sums as sparse products. Axes: N nodes, E edges.

An edge list (2, E) holds a sender in row 0 and a receiver in row 1, as stored: nothing is made undirected,
merged or added unless a layer says so. The neighbours whose features a node sums are the senders of the
edges that it receives.
"""

import warnings
from typing import Literal

import torch
from torch import Tensor

from physml.graph.cache import cached


class Edges:
    """An edge list sorted both ways, so that sums over the edges of a node are sparse products."""

    def __init__(self, sender: Tensor, receiver: Tensor, n: int) -> None:
        self.sender, self.receiver, self.n = sender, receiver, n
        self._rows: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._received_order: Tensor | None = None

    def rows(self, end: Literal["sender", "receiver"]) -> tuple[Tensor, Tensor, Tensor]:
        """Start of each node's run of edges, the other end of each edge, and the order of the edges."""
        if end not in self._rows:
            own, other = self.sender, self.receiver
            if end == "receiver":
                own, other = other, own
            order = torch.argsort(own, stable=True)
            self._rows[end] = starts(own, self.n), other[order], order
        return self._rows[end]

    def received_order(self) -> Tensor:
        """Position of each edge of rows("receiver") in rows("sender")."""
        if self._received_order is None:
            place = torch.empty_like(self.sender)
            place[self.rows("sender")[2]] = torch.arange(len(place), device=place.device)
            self._received_order = gather(place, self.rows("receiver")[2])
        return self._received_order

    def matrix(self, weight: Tensor, end: Literal["sender", "receiver"]) -> Tensor:
        """Sparse (N, N): the weight of an edge at (its `end`, its other end)."""
        start, other, order = self.rows(end)
        return csr(start, other, gather(weight, order), (self.n, self.n))


def csr(start: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix of rows; torch warns of a beta and of missing checks, which is for us to know."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")  # torch 2.11
        return torch.sparse_csr_tensor(start, column, value, shape, check_invariants=False)


def sorted_edges(edge_index: Tensor, n: int) -> Edges:
    """The edges as stored, sorted once per edge list.

    They are a copy. A change of `edge_index` through NumPy or `.data` is not seen, and sums still belong to
    the edges as they were: pass a clone after one.
    """
    return cached("edges", edge_index, (n,), lambda: Edges(edge_index[0].clone(), edge_index[1].clone(), n))


def looped(edge_index: Tensor, n: int) -> Edges:
    """One loop at each node in place of those that are stored, after all other edges.

    Cached as `sorted_edges` are.
    """
    return cached("looped", edge_index, (n,), lambda: _with_loops(edge_index, n))


def _with_loops(edge_index: Tensor, n: int) -> Edges:
    kept = edge_index[:, edge_index[0] != edge_index[1]]
    every = torch.arange(n, device=edge_index.device)
    return Edges(torch.cat([kept[0], every]), torch.cat([kept[1], every]), n)


def gather(x: Tensor, index: Tensor) -> Tensor:
    """x[index]: whole rows, which index_select copies at once and indexing one number at a time."""
    return x.index_select(0, index)


def starts(sorted_by: Tensor, n: int) -> Tensor:
    """Start of the run of each number in [0, n), and the end: (n + 1,)."""
    start = torch.zeros(n + 1, dtype=torch.long, device=sorted_by.device)
    torch.cumsum(torch.bincount(sorted_by, minlength=n), 0, out=start[1:])
    return start
