"""Amazon Computers and Photo of Shchur et al. as sparse matrices. No torch here. Axes: N nodes, F words."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, Files, family
from physml.data.files.array_files import npz
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import communities

# File, nodes, words, classes, entries of the adjacency matrix, as published.
SIZES = {
    "computers": ("amazon_electronics_computers", 13_752, 767, 10, 287_209),
    "photo": ("amazon_electronics_photo", 7650, 745, 8, 143_663),
}
FIXTURE_NODES, FIXTURE_WORDS = 120, 40
PREFIXES = ("adj_", "attr_")  # of the names of the parts of the adjacency and of the words
KEYS = ("data", "indices", "indptr", "shape")


def file_name(graph: str) -> str:
    return f"shchur/{SIZES[graph][0]}.npz"


def _read(files: Files, graph: str) -> Arrays:
    """Sparse words; y (N,) int64; edge_index, a column per entry of the adjacency matrix. No splits."""
    path = files.path(file_name(graph))
    _, n, d, n_classes, n_edges = SIZES[graph]
    adjacency, x, y = sparse_graph(path)
    if files.small and len(y) == FIXTURE_NODES:
        n, d, n_edges = FIXTURE_NODES, FIXTURE_WORDS, adjacency.nnz
    if (len(y), x.shape[1], adjacency.nnz) != (n, d, n_edges):
        raise WrongFile(
            f"{path}: expected {n} nodes, {d} words and {n_edges} edges; got {len(y)}, {x.shape[1]} and "
            f"{adjacency.nnz}."
        )
    graphs.check_labels(path, y, n_classes)
    return {**graphs.sparse_arrays(x), "y": y, "edge_index": edges_of(adjacency)}


def sparse_graph(path: Path) -> tuple[Any, Any, np.ndarray]:
    """Adjacency (N, N), features (N, F) and labels (N,) of an .npz of compressed sparse rows, checked.

    The shape of the features is taken from the labels and from the second number that is stored: some files
    (synthetic Cora) have it the wrong way round.
    """
    names = [f"{p}{key}" for p in PREFIXES for key in KEYS]
    arrays = npz(path, (*names, "labels"))
    for name in names:
        kinds = "biuf" if name.endswith("data") else "iu"
        if arrays[name].ndim != 1 or arrays[name].dtype.kind not in kinds:
            raise WrongFile(f"{path}: {name} must be a vector of numbers; got {arrays[name].dtype}.")
    if arrays["labels"].ndim != 1:
        raise WrongFile(f"{path}: labels must be a vector of numbers.")
    y = graphs.whole(path, "labels", arrays["labels"])
    adjacency = _matrix(path, arrays, PREFIXES[0], (len(y), len(y)))
    stored = arrays[f"{PREFIXES[1]}shape"].tolist()
    if len(stored) != 2 or sorted([len(y), sum(stored) - len(y)]) != sorted(stored):
        raise WrongFile(f"{path}: features of shape {stored} do not fit {len(y)} labels.")
    x = _matrix(path, arrays, PREFIXES[1], (len(y), sum(stored) - len(y)))
    return adjacency, x, y


def _matrix(path: Path, arrays: dict[str, np.ndarray], prefix: str, shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    parts = [arrays[f"{prefix}{key}"] for key in KEYS[:3]]
    try:
        if len(parts[2]) != shape[0] + 1:
            raise ValueError(f"{len(parts[2])} ends for {shape[0]} rows")
        matrix = csr_array(tuple(parts), shape=shape)
    except ValueError as error:
        raise WrongFile(f"{path}: {prefix}* are no sparse matrix of {shape}: {error}.") from error
    graphs.check_sparse(path, matrix)
    return matrix


def edges_of(adjacency: Any) -> np.ndarray:
    """A column per stored entry, by rows."""
    coordinates = adjacency.tocoo()
    return np.stack([coordinates.row, coordinates.col]).astype(np.int64)


def _items(arrays: Arrays) -> Iterable[bytes]:
    """Each array with its name and its kind of numbers: the order of nodes and edges is part of a graph."""
    for name, array in arrays.items():
        yield f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes()


def write(path: Path, edge_index: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """A file in the form of the set: links of weight 1, features (N, F), labels (N,)."""
    from scipy.sparse import csr_array

    ones = np.ones(edge_index.shape[1], np.float32)
    matrices = csr_array((ones, tuple(edge_index)), shape=(len(y), len(y))), csr_array(x)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {
        f"{p}{key}": np.asarray(getattr(matrix, key))
        for p, matrix in zip(PREFIXES, matrices, strict=True)
        for key in KEYS
    }
    np.savez(path, allow_pickle=False, labels=y, **parts)


def _fixture(root: Path, graph: str) -> None:
    """120 nodes, 40 words, links within classes, stored in one direction."""
    random_graph = communities(FIXTURE_NODES, FIXTURE_WORDS, SIZES[graph][3], seed=2)
    write(root / file_name(graph), random_graph.edge_index, random_graph.x, random_graph.y)


COMPUTERS, PHOTO = family("shchur", SIZES, _read, _fixture, _items)
