"""Whom a node reaches by a random walk that starts anew, as edges of their own. Axes: N nodes, E edges."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import csr_matrix, diags, eye_array
from torch import Tensor

from physml.graph.cache import cached

DENSE = 4000  # nodes up to which the walks are one dense solution
CHUNK = 512  # walks at a time beyond
NEAR = 1e-9  # a relative difference that is none: nodes that a walk reaches alike are kept alike


def pagerank_edges(edge_index: Tensor, n: int, alpha: float, k: int) -> Tensor:
    r"""For each node i the edges from the k nodes j with the largest :math:`\Pi_{ij}`, (2, E').

    .. math:: \Pi = \alpha \big(I - (1 - \alpha) \hat D^{-1/2} \hat A \hat D^{-1/2}\big)^{-1},
              \qquad \hat A = A + I

    with A[i, j] = 1 where i receives from j. i itself is one of the k where edges go both ways. Nodes as near
    as the last are kept too. Made once per graph; pass a clone of `edge_index` after a change through NumPy
    or `.data`.

    Source: Klicpera et al., NeurIPS 2019, https://arxiv.org/abs/1911.05485.
    """
    return cached("pagerank", edge_index, (n, alpha, k), lambda: _edges(edge_index, n, alpha, k))


def _edges(edge_index: Tensor, n: int, alpha: float, k: int) -> Tensor:
    T, edges = _transitions(edge_index, n), []
    for start in range(0, n, n if n <= DENSE else CHUNK):
        rows = np.arange(start, min(n, start + (n if n <= DENSE else CHUNK)))
        walk = _walks(T, rows, alpha)
        kept = min(k, n)
        least = np.partition(walk, n - kept, axis=1)[:, n - kept, None]
        receiver, sender = np.nonzero((walk >= least * (1 - NEAR)) & (walk > 0))
        edges.append(np.stack([sender, rows[receiver]]))
    return torch.from_numpy(np.concatenate(edges, 1)).to(edge_index.device)


def _transitions(edge_index: Tensor, n: int) -> csr_matrix:
    sender, receiver = edge_index.cpu().numpy()
    other = sender != receiver
    A = csr_matrix((np.ones(other.sum()), (receiver[other], sender[other])), (n, n))
    A.data[:] = 1  # an edge that is stored twice is one
    A = csr_matrix(A + eye_array(n))
    scale = diags(1 / np.sqrt(np.asarray(A.sum(1)).ravel()))
    return csr_matrix(scale @ A @ scale)


def _walks(T: csr_matrix, rows: NDArray[np.int64], alpha: float) -> NDArray[np.float64]:
    """These rows of Pi."""
    n = T.shape[0]
    if n <= DENSE:
        Pi = solve(np.eye(n) - (1 - alpha) * T.toarray(), alpha * np.eye(n))
        Pi[Pi < 1e-14] = 0  # what rounding leaves where no walk leads
        return Pi[rows]
    start = np.zeros((n, len(rows)))
    start[rows, np.arange(len(rows))] = alpha
    walk, transposed = start.copy(), csr_matrix(T.T)
    for _ in range(math.ceil(math.log(1e-10) / math.log(1 - alpha))):
        walk = start + (1 - alpha) * (transposed @ walk)
    return walk.T
