"""Chameleon and Squirrel without duplicated nodes, Minesweeper and Tolokers. No torch here. Axes: N nodes.

Platonov et al. (ICLR 2023, https://arxiv.org/abs/2302.11640) found pages of Chameleon and Squirrel that stand
several times in the graph, with the same neighbours and labels, on both sides of the splits,
and filtered them.
"""

from pathlib import Path

import numpy as np

from physml.base.errors import DataError
from physml.data import graphs
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.array_files import npz
from physml.data.readers.graph_fixture import communities

# Nodes, features, classes, edge rows, as published.
SIZES = {
    "chameleon_filtered": (890, 2325, 5, 8854),
    "squirrel_filtered": (2223, 2089, 5, 46_998),
    "minesweeper": (10_000, 7, 2, 39_402),
    "tolokers": (11_758, 10, 2, 519_000),
}
N_SPLITS = 10
FIXTURE_NODES, FIXTURE_FEATURES = 60, 12
NAMES = ("node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks")


def file_name(graph: str) -> str:
    return f"heterophilous/{graph}.npz"


def _read(files: Files, graph: str) -> Arrays:
    """x (N, F) float32; y (N,) int64; edge_index, a column per edge, which is stored once; 10 splits."""
    again = f"Get it again: `physml data get heterophilous_{graph}`."
    path = files.path(file_name(graph))
    arrays = npz(path, NAMES, again)
    x, y, edges = (arrays[name] for name in NAMES[:3])
    n, d, n_classes, n_edges = SIZES[graph]
    if files.small and len(y) == FIXTURE_NODES:
        n, d, n_edges = FIXTURE_NODES, FIXTURE_FEATURES, len(edges)
    if x.shape != (n, d) or y.shape != (n,) or edges.shape != (n_edges, 2):
        raise DataError(
            f"{path}: expected {n} nodes with {d} features and {n_edges} edges; got features {x.shape}, "
            f"labels {y.shape}, edges {edges.shape}. {again}"
        )
    graphs.check_finite(path, "features", x, again)
    graphs.check_labels(path, y, n_classes, again)
    edge_index = edges.T.astype(np.int64)
    graphs.check_edges(path, edge_index, n, again)
    return {
        "x": x.astype(np.float32),
        "y": y.astype(np.int64),
        "edge_index": np.ascontiguousarray(edge_index),
        **_splits(path, arrays, n, again),
    }


def _splits(path: Path, arrays: dict[str, np.ndarray], n: int, again: str) -> Arrays:
    found = {}
    for part, name in zip(graphs.PARTS, NAMES[3:], strict=True):
        mask = arrays[name]
        if mask.shape != (N_SPLITS, n) or not np.isin(mask, (0, 1)).all():
            raise DataError(
                f"{path}: {name} must be {N_SPLITS} x {n} times 0 or 1; got {mask.shape}. {again}"
            )
        found[f"split_{part}"] = mask.astype(bool)
    for k in range(N_SPLITS):
        graphs.check_split(path, graphs.fixed_split(found, k), n, again)
    return found


def _fixture(root: Path, graph: str) -> None:
    """60 nodes with 12 features; every edge once."""
    made = communities(FIXTURE_NODES, FIXTURE_FEATURES, SIZES[graph][2], seed=4, homophily=0.3)
    splits = [
        graphs.cut(np.random.RandomState(k).permutation(FIXTURE_NODES), 30, 15) for k in range(N_SPLITS)
    ]
    masks = graphs.masks(splits, FIXTURE_NODES)
    path = root / file_name(graph)
    path.parent.mkdir(parents=True, exist_ok=True)
    named = dict(zip(NAMES, (made.x, made.y, made.edge_index.T, *masks.values()), strict=True))
    np.savez(path, allow_pickle=False, **named)


def _dataset(graph: str) -> DataSet:
    return DataSet(
        f"heterophilous_{graph}", 1, lambda files: _read(files, graph), lambda root: _fixture(root, graph)
    )


CHAMELEON_FILTERED = _dataset("chameleon_filtered")
SQUIRREL_FILTERED = _dataset("squirrel_filtered")
MINESWEEPER = _dataset("minesweeper")
TOLOKERS = _dataset("tolokers")
