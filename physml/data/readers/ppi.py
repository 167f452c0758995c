"""Proteins and what they do, in 24 tissues: graphs of GraphSAGE. No torch here.

Axes: G = 24 graphs, V proteins and E edge rows of all of them, 50 features, 121 functions.
"""

import io
import json
from pathlib import Path

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.archives import Tree
from physml.data.files.array_files import NUMBERS, json_value, npy
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import communities, write_zip

ARCHIVE = "ppi/ppi.zip"
PARTS = ("train", "valid", "test")
NODES = {"train": 44_906, "valid": 6514, "test": 5524}
GRAPHS = {"train": 20, "valid": 2, "test": 2}
FEATURES, FUNCTIONS = 50, 121
FIXTURE_GRAPHS, FIXTURE_NODES = {"train": 3, "valid": 1, "test": 1}, 30


def _read(files: Files) -> Arrays:
    """x (V, 50) float32; y (V, 121) float32 of 0 and 1; edge_index without loops and duplicates.

    Where upstream says that its links have no direction, both are here, as networkx and PyG read them.
    """
    tree = files.tree(ARCHIVE)
    parts = [_part(files, tree, part) for part in PARTS]
    return graphs.together(parts) | {"n_graphs": graphs.n_graphs_of(parts)}


def _part(files: Files, tree: Tree, part: str) -> Arrays:
    """The graphs of a part one after another."""
    x, y, tissue = (
        npy(tree.bytes(f"{part}_{name}.npy"), f"{tree.path}: {part}_{name}.npy")
        for name in ("feats", "labels", "graph_id")
    )
    where = f"{tree.path}: {part}"
    if any(array.dtype.kind not in NUMBERS or not array.ndim for array in (x, y, tissue)):
        raise WrongFile(f"{where}: features, functions and graph ids must be arrays of numbers.")
    if len(x) not in files.sizes(NODES[part], FIXTURE_GRAPHS[part] * FIXTURE_NODES):
        raise WrongFile(f"{where} has {len(x)} proteins, expected {NODES[part]}.")
    if x.shape[1:] != (FEATURES,) or y.shape != (len(x), FUNCTIONS) or tissue.shape != (len(x),):
        raise WrongFile(
            f"{where}: features {x.shape}, functions {y.shape}, graph ids {tissue.shape}; expected "
            f"N x {FEATURES}, N x {FUNCTIONS} and N."
        )
    graphs.check_finite(where, "features", x)
    if not np.isin(y, (0, 1)).all():
        raise WrongFile(f"{where}: functions must be 0 or 1.")
    ids, number = np.unique(tissue, return_inverse=True)
    if len(ids) not in files.sizes(GRAPHS[part], FIXTURE_GRAPHS[part]):
        raise WrongFile(f"{where} has {len(ids)} graphs, expected {GRAPHS[part]}.")
    edges = graphs.without_loops(graphs.coalesced(_links(tree, part, len(x))))
    if (apart := np.flatnonzero(number[edges[0]] != number[edges[1]])).size:
        a, b = edges[:, apart[0]]
        raise WrongFile(f"{where}: a link joins the proteins {a} and {b} of two graphs.")
    order = np.argsort(number, kind="stable")
    nodes = np.bincount(number)
    place = np.empty(len(x), np.int64)
    place[order] = np.arange(len(x)) - np.repeat(np.cumsum(nodes) - nodes, nodes)
    edges = edges[:, np.argsort(number[edges[0]], kind="stable")]
    return {
        "x": x[order].astype(np.float32),
        "y": y[order].astype(np.float32),
        "edge_index": place[edges],
        "node_offsets": graphs.offsets(nodes),
        "edge_offsets": graphs.offsets(np.bincount(number[edges[0]], minlength=len(nodes))),
    }


def _links(tree: Tree, part: str, n: int) -> np.ndarray:
    where = f"{tree.path}: {part}_graph.json"
    graph = json_value(tree.bytes(f"{part}_graph.json"), where)
    try:
        ends = [(link["source"], link["target"]) for link in graph["links"]]
        edge_index = graphs.whole(where, "links", np.array(ends).reshape(-1, 2).T)
        ids = [node["id"] for node in graph["nodes"]]
        directed = graph["directed"]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise WrongFile(f"{where} is no graph with nodes and links: {error!r}.") from error
    if ids != list(range(n)):
        raise WrongFile(f"{where}: expected the nodes 0..{n - 1} in their order.")
    graphs.check_edges(where, edge_index, n)
    return edge_index if directed else np.concatenate([edge_index, edge_index[::-1]], 1)


def _fixture(root: Path) -> None:
    """5 graphs of 30 proteins in 5 communities, whose functions are those of the community; one loop each."""
    rng = np.random.RandomState(0)
    does = rng.rand(5, FUNCTIONS) < 0.3
    members = {}
    for part, n in FIXTURE_GRAPHS.items():
        networks = [communities(FIXTURE_NODES, FEATURES, 5, seed=10 * n + k) for k in range(n)]
        edges = [network.edge_index + FIXTURE_NODES * k for k, network in enumerate(networks)]
        loops = [np.full((2, 1), FIXTURE_NODES * k) for k in range(n)]
        graph = {
            "directed": False,
            "graph": {},
            "multigraph": False,
            "nodes": [{"id": node} for node in range(n * FIXTURE_NODES)],
            "links": [{"source": a, "target": b} for a, b in np.concatenate([*edges, *loops], 1).T.tolist()],
        }
        arrays = {
            "feats": np.concatenate([network.x for network in networks]).astype(np.float64),
            "labels": np.concatenate([does[network.y] for network in networks]).astype(np.int64),
            "graph_id": np.repeat(np.arange(1, n + 1), FIXTURE_NODES),
        }
        for name, array in arrays.items():
            file = io.BytesIO()
            np.save(file, array)
            members[f"{part}_{name}.npy"] = file.getvalue()
        members[f"{part}_graph.json"] = json.dumps(graph).encode()
    write_zip(root / ARCHIVE, members)


PPI = DataSet("ppi", 1, _read, _fixture)
