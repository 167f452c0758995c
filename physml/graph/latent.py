"""Places of nodes in a plane, by the lengths of paths, and who is near whom there. Axes: N nodes, E edges."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from torch import Tensor

DENSE = 1000  # nodes up to which all eigenvectors are computed
DIGITS = 9  # of places, of the widest one: nodes with the same paths have the same place, whatever is rounded


def isomap(edge_index: Tensor, n: int) -> NDArray[np.float64]:
    """Places in a plane whose distances are near the lengths of the shortest paths, (N, 2).

    The graph is its own graph of neighbours, so Isomap is classical scaling of the lengths of its paths,
    edges taken both ways. Where no path leads, the length is the longest of all and one more. The sign of an
    axis makes the sum of its cubes positive, so that places do not depend on the order of the nodes; where it
    vanishes, or where two axes are equally long, they are one choice of several.

    Source: Tenenbaum et al., Science 2000, https://doi.org/10.1126/science.290.5500.2319.
    """
    place = np.zeros((n, 2))
    if n < 3:
        return place
    sender, receiver = edge_index.cpu().numpy()
    A = csr_matrix((np.ones(len(sender)), (receiver, sender)), (n, n))
    length = shortest_path(A, directed=False, unweighted=True)
    known = np.isfinite(length)
    length[~known] = length[known].max() + 1
    square = length**2
    mean = square.mean(0)
    B = -0.5 * (square - mean - mean[:, None] + mean.mean())
    if n <= DENSE:
        value, vector = eigh(B, subset_by_index=[n - 2, n - 1])
    else:
        value, vector = eigsh(B, k=2, which="LA", v0=np.ones(n) + np.linspace(0, 1, n))
    place = vector[:, ::-1] * np.sqrt(np.maximum(value[::-1], 0))
    place *= np.where((place**3).sum(0) < 0, -1, 1)
    widest = np.abs(place).max()
    return place if widest == 0 else np.round(place / widest, DIGITS)


def neighbours_in_plane(place: NDArray[np.float64], n_pairs: int) -> NDArray[np.int64]:
    """Ordered pairs (sender, receiver) of different nodes within the least radius that has n_pairs, (2, M).

    All pairs at that radius belong to it, so there may be more than n_pairs.
    """
    n = len(place)
    n_pairs = min(n_pairs, n * (n - 1))
    if n_pairs == 0:
        return np.zeros((2, 0), dtype=np.int64)
    distance = np.round(cdist(place, place), DIGITS)
    np.fill_diagonal(distance, np.inf)
    radius = np.partition(distance, n_pairs - 1, axis=None)[n_pairs - 1]
    receiver, sender = np.nonzero(distance <= radius)
    return np.stack([sender, receiver])


def quadrants(place: NDArray[np.float64], pairs: NDArray[np.int64]) -> Tensor:
    """Quadrant of the sender as the receiver sees it, (M,).

    0 is upper left, 1 lower left, 2 upper right, 3 lower right. Right and upper hold what is as far right or
    as far up as the receiver itself.
    """
    sender, receiver = place[pairs[0]], place[pairs[1]]
    right, lower = receiver[:, 0] <= sender[:, 0], receiver[:, 1] > sender[:, 1]
    return torch.from_numpy(2 * right.astype(np.int64) + lower.astype(np.int64))
