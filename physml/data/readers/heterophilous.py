"""Chameleon and Squirrel without duplicated nodes, Minesweeper and Tolokers. No torch here. Axes: N nodes.

Platonov et al. (ICLR 2023, https://arxiv.org/abs/2302.11640) found pages of Chameleon and Squirrel that stand
several times in the graph, with the same neighbours and labels, on both sides of the splits,
and filtered them.
"""

from pathlib import Path

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, Files, family
from physml.data.files.array_files import npz
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import communities

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
    path = files.path(file_name(graph))
    arrays = npz(path, NAMES)
    x, y, edges = (arrays[name] for name in NAMES[:3])
    masks = {name: arrays[name] for name in NAMES[3:]}
    n, d, n_classes, n_edges = SIZES[graph]
    if files.small and len(y) == FIXTURE_NODES:
        n, d, n_edges = FIXTURE_NODES, FIXTURE_FEATURES, len(edges)
    if x.shape != (n, d) or y.shape != (n,) or edges.shape != (n_edges, 2):
        raise WrongFile(
            f"{path}: expected {n} nodes with {d} features and {n_edges} edges; got features {x.shape}, "
            f"labels {y.shape}, edges {edges.shape}."
        )
    graphs.check_finite(path, "features", x)
    y, edge_index = graphs.whole(path, "labels", y), graphs.whole(path, "edges", edges.T)
    graphs.check_labels(path, y, n_classes)
    graphs.check_edges(path, edge_index, n)
    return {
        "x": x.astype(np.float32),
        "y": y,
        "edge_index": np.ascontiguousarray(edge_index),
        **graphs.split_masks(path, masks, (N_SPLITS, n)),
    }


def _fixture(root: Path, graph: str) -> None:
    """60 nodes with 12 features; every edge once."""
    random_graph = communities(FIXTURE_NODES, FIXTURE_FEATURES, SIZES[graph][2], seed=4, homophily=0.3)
    splits = [
        graphs.cut(np.random.RandomState(k).permutation(FIXTURE_NODES), 30, 15) for k in range(N_SPLITS)
    ]
    masks = graphs.masks(splits, FIXTURE_NODES)
    path = root / file_name(graph)
    path.parent.mkdir(parents=True, exist_ok=True)
    named = dict(
        zip(NAMES, (random_graph.x, random_graph.y, random_graph.edge_index.T, *masks.values()), strict=True)
    )
    np.savez(path, allow_pickle=False, **named)


CHAMELEON_FILTERED, SQUIRREL_FILTERED, MINESWEEPER, TOLOKERS = family("heterophilous", SIZES, _read, _fixture)
