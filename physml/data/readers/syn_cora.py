"""Synthetic Cora by homophily: 12 levels, 3 graphs each, of 1490 nodes. No torch here.

Axes: K = 36 graphs, level after level, N = 1490 nodes, F = 1433 words, E edge rows of a graph.
"""

from pathlib import Path

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import communities
from physml.data.readers.shchur import edges_of, sparse_graph, write

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
REPEATS = (1, 2, 3)
N, WORDS, N_CLASSES = 1490, 1433, 5
FIXTURE_NODES, FIXTURE_WORDS = 100, 25


def file_name(level: float, repeat: int) -> str:
    return f"syn-cora/h{level:.2f}-r{repeat}.npz"


def _read(files: Files) -> Arrays:
    """All graphs one after another: sparse words, y, edge_index, node_offsets and edge_offsets (37,).

    homophily (36,) float64 and repeat (36,) int64 say which graph is which. Each edge is stored in both
    directions.
    """
    from scipy.sparse import vstack

    xs, ys, edges = [], [], []
    for level in LEVELS:
        for repeat in REPEATS:
            path = files.path(file_name(level, repeat))
            adjacency, x, y = sparse_graph(path)
            if x.shape not in ((N, WORDS), (FIXTURE_NODES, FIXTURE_WORDS))[: 1 + files.small]:
                raise WrongFile(f"{path}: expected {N} nodes with {WORDS} words; got {x.shape}.")
            graphs.check_labels(path, y, N_CLASSES)
            if (adjacency != adjacency.T).nnz:
                raise WrongFile(f"{path}: an edge is stored in one direction only.")
            xs.append(x)
            ys.append(y)
            edges.append(edges_of(adjacency))
    return {
        **graphs.sparse_arrays(vstack(xs)),
        "y": np.concatenate(ys),
        "edge_index": np.concatenate(edges, 1),
        "node_offsets": graphs.offsets([len(y) for y in ys]),
        "edge_offsets": graphs.offsets([e.shape[1] for e in edges]),
        "homophily": np.repeat(LEVELS, len(REPEATS)),
        "repeat": np.tile(REPEATS, len(LEVELS)).astype(np.int64),
    }


def graph_number(level: float, repeat: int) -> int:
    """Which of the graphs has this homophily and number; for `graphs.one`."""
    return LEVELS.index(level) * len(REPEATS) + REPEATS.index(repeat)


def _fixture(root: Path) -> None:
    """100 nodes each: links within classes as often as the names say, and paths through the classes."""
    for level in LEVELS:
        for repeat in REPEATS:
            random_graph = communities(FIXTURE_NODES, FIXTURE_WORDS, N_CLASSES, seed=repeat, homophily=level)
            both = graphs.undirected(random_graph.edge_index)
            write(root / file_name(level, repeat), both, random_graph.x, random_graph.y)


SYN_CORA = DataSet("syn_cora", 1, _read, _fixture)
