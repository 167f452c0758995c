"""Eigenvectors of graph Laplacians, of each connected part on its own. Axes: N nodes, E edges, K vectors."""

import itertools
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, diags, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from torch import Tensor

from physml.graph.cache import cached

DENSE = 1000  # nodes of a part up to which all eigenvectors are computed
SAME = 1e-8  # eigenvalues that differ by less are one, of several vectors
KNOWN = 20_000  # parts whose vectors are remembered: the molecules of a data set come again in each epoch


def laplacian_vectors(edge_index: Tensor, n: int, k: int) -> Tensor:
    r"""The k eigenvectors of :math:`D - A` with the least eigenvalues above the first, (N, K), float64.

    Each connected part has vectors of its own, of length 1, so that the graphs of a batch do not mix; a part
    of m nodes has m - 1, and 0 for the others. Edges are taken both ways, without loops. The sign makes the
    sum of the cubes positive, so that a vector does not depend on the order of the nodes, unless that sum
    vanishes. Where an eigenvalue is multiple, as in a ring, its vectors are one choice of several: the same
    on every machine, but another for other orders of the nodes.
    Made once per graph; pass a clone of `edge_index` after a change through NumPy or `.data`.
    """
    return cached("laplacian", edge_index, (n, k), lambda: _vectors(edge_index, n, k))


def _vectors(edge_index: Tensor, n: int, k: int) -> Tensor:
    sender, receiver = edge_index.cpu().numpy()
    other = sender != receiver
    A = csr_matrix((np.ones(other.sum()), (receiver[other], sender[other])), (n, n))
    A = csr_matrix(((A + A.T) > 0).astype(np.float64))
    n_parts, part = connected_components(A, directed=False)
    order = np.argsort(part, kind="stable")
    A, bounds = A[order][:, order], np.searchsorted(part[order], np.arange(n_parts + 1))
    A.sort_indices()
    out = np.zeros((n, k))
    for start, end in itertools.pairwise(bounds):
        m = end - start
        if m > 1:
            first, last = A.indptr[start], A.indptr[end]
            column = (A.indices[first:last] - start).astype(np.int64)
            row = (A.indptr[start : end + 1] - first).astype(np.int64)
            out[order[start:end]] = _of_part(int(m), row.tobytes(), column.tobytes(), k)
    return torch.from_numpy(out).to(edge_index.device)


@lru_cache(maxsize=KNOWN)
def _of_part(m: int, row: bytes, column: bytes, k: int) -> NDArray[np.float64]:
    indices = np.frombuffer(column, dtype=np.int64)
    A = csr_matrix((np.ones(len(indices)), indices, np.frombuffer(row, dtype=np.int64)), (m, m))
    L = csr_matrix(diags(np.asarray(A.sum(1)).ravel()) - A)
    n_vectors = min(k, m - 1)
    value, vector = _least(L, m, n_vectors + 1)
    while (
        len(value) < m and value[-1] - value[n_vectors] < SAME
    ):  # the last of equal eigenvalues may not be there yet
        value, vector = _least(L, m, min(2 * len(value), m))
    out = np.zeros((m, k))
    groups = np.split(np.arange(1, len(value)), np.flatnonzero(np.diff(value[1:]) >= SAME) + 1)
    out[:, :n_vectors] = np.concatenate([_chosen(vector[:, group]) for group in groups], 1)[:, :n_vectors]
    return out


def _least(L: csr_matrix, m: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least eigenvalues, in rising order, and their vectors (m, count)."""
    if m <= DENSE or 2 * count > m:
        return eigh(L.toarray(), subset_by_index=[0, count - 1])
    # L + 1e-3 I can be inverted; its eigenvectors are those of L
    start = np.ones(m) + np.linspace(0, 1, m)
    value, vector = eigsh(L + 1e-3 * eye_array(m), k=count, sigma=0, which="LM", v0=start)
    order = np.argsort(value)
    return value[order], vector[:, order]


def _chosen(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """The basis (m, g) of an eigenspace that all processors find, from any of its bases."""
    m, g = vector.shape
    if g == 1:
        return vector * (-1.0 if (vector**3).sum() < 0 else 1.0)
    axes = np.cos(np.outer(np.arange(1, m + 1), np.arange(1, g + 1)))
    basis, triangle = np.linalg.qr(vector @ (vector.T @ axes))
    return basis * np.where(np.diag(triangle) < 0, -1.0, 1.0)
