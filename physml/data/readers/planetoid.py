"""Cora, Citeseer, Pubmed as Planetoid has them: papers, words and citations. No torch here. Axes: N nodes.

The files are pickles of Python 2; `physml.data.files.safe_pickle` opens them and runs nothing of theirs.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, Files, family
from physml.data.files.limits import WrongFile, read_bytes
from physml.data.files.safe_pickle import SparseRows, arrays, lists, sparse, unpickle
from physml.data.readers.fixtures import communities

# Nodes, words, classes, test nodes, as published.
SIZES = {"cora": (2708, 1433, 7, 1000), "citeseer": (3327, 3703, 6, 1000), "pubmed": (19_717, 500, 3, 1000)}
N_VALID = 500  # the nodes after those that train, by convention since Kipf and Welling (2017)
FIXTURE_NODES, FIXTURE_WORDS, FIXTURE_TEST, FIXTURE_VALID, FIXTURE_PER_CLASS = 120, 40, 30, 20, 4


def file_name(graph: str, part: str) -> str:
    return f"planetoid/ind.{graph}.{part}"


def _read(files: Files, graph: str) -> Arrays:
    """Sparse words; y (N,) int64; edge_index with a column per entry of the lists of neighbours; one split.

    Words are as stored: 0 and 1, or for Pubmed TF-IDF. Citeseer has 15 nodes without words or label, which
    the test files lack: y is -1 (PyG makes it 0); 10 of them are in the largest component. The split
    is the public one: 20 nodes of each class train, the next 500 nodes validate, those of test.index test.
    """
    n, d, n_classes, n_test = SIZES[graph]
    tested = _test_index(files.path(file_name(graph, "test.index")))
    small = files.small and len(tested) == FIXTURE_TEST
    if small:
        n, d, n_test = FIXTURE_NODES, FIXTURE_WORDS, FIXTURE_TEST
    where = files.path(file_name(graph, "test.index"))
    edge_index = _links(files.path(file_name(graph, "graph")), n)
    x, y = {}, {}
    for part in ("", "t", "all"):
        x[part] = _words(files.path(file_name(graph, f"{part}x")), d)
        y[part] = _labels(files.path(file_name(graph, f"{part}y")), x[part].shape[0], n_classes)
    before = x["all"].shape[0]
    if len(tested) != n_test or x["t"].shape[0] != n_test or tested.min() != before or tested.max() != n - 1:
        raise WrongFile(
            f"{where}: expected {n_test} test nodes, from {before} to {n - 1}, as many as in ind.{graph}.tx "
            f"({x['t'].shape[0]}); got {len(tested)}, from {tested.min()} to {tested.max()}."
        )
    labels = np.full(n, -1, np.int64)
    labels[:before], labels[tested] = y["all"], y["t"]
    n_train = len(y[""])
    n_valid = FIXTURE_VALID if small else N_VALID
    split = {
        "train": np.arange(n_train),
        "valid": np.arange(n_train, min(n_train + n_valid, before)),
        "test": np.sort(tested),
    }
    graphs.check_split(where, split, n)
    return {
        **graphs.sparse_arrays(_placed(x["all"], x["t"], tested, n)),
        "y": labels,
        "edge_index": edge_index,
        **graphs.masks([split], n),
    }


def _placed(first: Any, tested: Any, nodes: np.ndarray, n: int) -> Any:
    """The rows of the first nodes, and those of the test nodes at their places; other rows are empty."""
    from scipy.sparse import coo_array

    a, b = first.tocoo(), tested.tocoo()
    data, columns = np.concatenate([a.data, b.data]), np.concatenate([a.col, b.col])
    return coo_array((data, (np.concatenate([a.row, nodes[b.row]]), columns)), shape=(n, first.shape[1]))


def _test_index(path: Path) -> np.ndarray:
    lines = read_bytes(path).split()
    if not lines or not all(line.isdigit() and len(line) < 10 for line in lines):
        raise WrongFile(f"{path}: expected the number of a node on each line.")
    nodes = np.array([int(line) for line in lines])
    if len(np.unique(nodes)) != len(nodes):
        raise WrongFile(f"{path} names a node twice.")
    return nodes


def _words(path: Path, n_words: int) -> Any:
    rows = unpickle(read_bytes(path), sparse, str(path))
    if not isinstance(rows, SparseRows):
        raise WrongFile(f"{path}: expected a sparse matrix; got {type(rows).__name__}.")
    try:
        x = rows.matrix()
    except ValueError as error:
        raise WrongFile(f"{path} is not a valid sparse matrix: {error}.") from error
    if x.shape[1] != n_words:
        raise WrongFile(f"{path}: expected {n_words} columns; got a matrix of shape {x.shape}.")
    graphs.check_sparse(path, x)
    return x


def _labels(path: Path, n: int, n_classes: int) -> np.ndarray:
    """From rows with a 1 at the class."""
    y = unpickle(read_bytes(path), arrays, str(path))
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "biuf" or y.shape != (n, n_classes):
        got = f"{type(y).__name__} of shape {getattr(y, 'shape', 'unknown')}"
        raise WrongFile(f"{path}: expected an array of {n} x {n_classes}; got {got}.")
    if not np.isin(y, (0, 1)).all() or (y.sum(1) != 1).any():
        raise WrongFile(f"{path}: expected one 1 and else 0 in each row.")
    return y.argmax(1)


def _links(path: Path, n: int) -> np.ndarray:
    """A column per entry of the lists of neighbours. A list that stands for many nodes is refused."""
    content = read_bytes(path)
    neighbours = unpickle(content, lists, str(path))
    if not isinstance(neighbours, dict) or set(neighbours) != set(range(n)):
        got = f"{len(neighbours)} of them" if isinstance(neighbours, dict) else type(neighbours).__name__
        raise WrongFile(f"{path}: expected lists of neighbours for the nodes 0..{n - 1}; got {got}.")
    if not all(isinstance(others, list) for others in neighbours.values()):
        raise WrongFile(f"{path}: a node has something else than a list of neighbours.")
    if sum(map(len, neighbours.values())) > len(content):
        raise WrongFile(f"{path}: a list of neighbours stands for more than one node.")
    pairs = [(a, b) for a, others in neighbours.items() for b in others]
    if not all(isinstance(b, int) and abs(b) < 1 << 62 for _, b in pairs):
        raise WrongFile(f"{path}: a list of neighbours holds something else than numbers.")
    edge_index = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    graphs.check_edges(path, edge_index, n)
    return edge_index


def _fixture(root: Path, graph: str) -> None:
    """120 papers, 40 words; papers of a class share words and cite each other. The classes take turns."""
    from scipy.sparse import csr_matrix

    n_classes, test = SIZES[graph][2], FIXTURE_TEST
    random_graph = communities(FIXTURE_NODES, FIXTURE_WORDS, n_classes, seed=0)
    x, y = csr_matrix(random_graph.x), np.eye(n_classes, dtype=np.int32)[random_graph.y]
    n_train, before = FIXTURE_PER_CLASS * n_classes, FIXTURE_NODES - test
    nodes = np.random.RandomState(0).permutation(test) + before
    cited: dict[int, list[int]] = {node: [] for node in range(FIXTURE_NODES)}
    for a, b in random_graph.edge_index.T.tolist():
        cited[a].append(b)
        cited[b].append(a)
    parts = {"x": x[:n_train], "y": y[:n_train], "allx": x[:before], "ally": y[:before]}
    for part, value in {**parts, "tx": x[nodes], "ty": y[nodes], "graph": cited}.items():
        path = root / file_name(graph, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(value, protocol=2))
    (root / file_name(graph, "test.index")).write_text("".join(f"{node}\n" for node in nodes))


CORA, CITESEER, PUBMED = family("planetoid", SIZES, _read, _fixture)
