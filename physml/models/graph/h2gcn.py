"""H2GCN. Axes: N nodes, E edges, H channels."""

import warnings
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each
from physml.graph.cache import cached
from physml.graph.edges import Edges
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import Spread, simple_edges, symmetric_weights


class H2GCN(nn.Module):
    r"""Neighbours at one and at two steps, apart from each other and from the node, over all rounds.

    .. math::
        X^k = [A_1 X^{k-1} \,|\, A_2 X^{k-1}], \qquad X \mapsto [X^0 \,|\, X^1 \,|\, \dots \,|\, X^K]

    with :math:`A_h = D_h^{-1/2} \bar A_h D_h^{-1/2}`, :math:`\bar A_1` the pairs of neighbours without loops
    and :math:`\bar A_2` the pairs at exactly two steps. It has no weights: these are the encoder's and the
    decoder's, and the paper's dropout is that before the decoder.

    Source: Zhu et al., NeurIPS 2020, https://arxiv.org/abs/2006.11468, section 3.2.
    Choices: where edges go one way, D counts what the receiver receives and what the sender sends.
    Args:
        d_in: H.
        n_rounds: K.
    Shapes: x (N, H), edge_index (2, E) -> (N, (2^(K+1) - 1) H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, n_rounds: int) -> None:
        super().__init__()
        each(count, d_in=d_in, n_rounds=n_rounds)
        self.d_in, self.n_rounds = d_in, n_rounds
        self.d_out = (2 ** (n_rounds + 1) - 1) * d_in

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        near, far = cached("h2gcn", edge_index, (len(x), x.dtype), lambda: _spreads(x, edge_index))
        rounds = [x]
        for _ in range(self.n_rounds):
            rounds.append(torch.cat([near(rounds[-1]), far(rounds[-1])], 1))
        return torch.cat(rounds, 1)


def _spreads(x: Tensor, edge_index: Tensor) -> tuple[Spread, Spread]:
    near = simple_edges(edge_index, len(x))
    pair = near, two_steps(near)
    return tuple(Spread(edges, symmetric_weights(edges, x.dtype)) for edges in pair)  # type: ignore[return-value]


def two_steps(near: Edges) -> Edges:
    """An edge from j to i for each pair that a path of two edges joins, unless an edge does or j is i."""
    n, place = near.n, torch.stack([near.receiver, near.sender])
    ones = torch.ones(place.shape[1], device=place.device)
    A = torch.sparse_coo_tensor(place, ones, (n, n), check_invariants=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        receiver, sender = torch.sparse.mm(A, A).coalesce().indices()
    known = torch.isin(receiver * n + sender, near.receiver * n + near.sender) | (receiver == sender)
    return Edges(sender[~known], receiver[~known], n)
