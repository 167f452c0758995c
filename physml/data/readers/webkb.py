"""Texas, Wisconsin, Cornell, Film, Squirrel, Chameleon as geom-gcn has them. No torch here. Axes: N nodes.

Pages of universities (WebKB), actors (Film) and pages of Wikipedia, each with 10 fixed splits, whose files
are named 0.6_0.2 but hold about 48, 32 and 20 % of the nodes. Edges are directed rows, loops among them.

There are two Cornells. `cornell`, in new_data, is what the address serves that PyG reads: its file of
features and labels is Texas's, byte for byte; only links and splits are its own. `cornell_bingzhewei` has
other ones.
"""

from pathlib import Path

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, Files, family
from physml.data.files.array_files import npz
from physml.data.files.limits import WrongFile, read_text
from physml.data.readers.fixtures import communities

# Nodes, features, edge rows, as published; classes are 5 in all.
SIZES = {
    "texas": (183, 1703, 325),
    "wisconsin": (251, 1703, 515),
    "cornell": (183, 1703, 298),
    "cornell_bingzhewei": (183, 1703, 298),
    "film": (7600, 932, 33_391),
    "squirrel": (5201, 2089, 217_073),
    "chameleon": (2277, 2325, 36_101),
}
N_CLASSES, N_SPLITS = 5, 10
FIXTURE_NODES, FIXTURE_FEATURES = 60, 25
EDGES_HEAD = ("node_id", "node_id")
MASKS = ("train_mask", "val_mask", "test_mask")


def folder(graph: str) -> str:
    if graph == "cornell_bingzhewei":
        return "geom-gcn/new_data_bingzhewei/cornell"
    return f"geom-gcn/new_data/{graph}"


def nodes_name(graph: str) -> str:
    return f"{folder(graph)}/out1_node_feature_label.txt"


def edges_name(graph: str) -> str:
    return f"{folder(graph)}/out1_graph_edges.txt"


def split_name(graph: str, k: int) -> str:
    return f"geom-gcn/splits/{graph.removesuffix('_bingzhewei')}_split_0.6_0.2_{k}.npz"


def _read(files: Files, graph: str) -> Arrays:
    """Sparse features of 0 and 1; y (N,) int64, 0..4; edge_index, a column per line; 10 splits."""
    path = files.path(nodes_name(graph))
    rows, y = _nodes(path, graph)
    n, d, n_edges = SIZES[graph]
    if files.small and len(y) == FIXTURE_NODES:
        n, d, n_edges = FIXTURE_NODES, FIXTURE_FEATURES, 0
    if len(y) != n:
        raise WrongFile(f"{path}: {len(y)} nodes, expected {n}.")
    wrong = [node for node, row in enumerate(rows) if len(row) and (row.min() < 0 or row.max() >= d)]
    if wrong:
        raise WrongFile(f"{path}: node {wrong[0]} has a feature outside 0..{d - 1}.")
    graphs.check_labels(path, y, N_CLASSES)
    path = files.path(edges_name(graph))
    edge_index = pairs(path, "\t", EDGES_HEAD)
    if n_edges and edge_index.shape[1] != n_edges:
        raise WrongFile(f"{path}: {edge_index.shape[1]} edges, expected {n_edges}.")
    graphs.check_edges(path, edge_index, n)
    splits = []
    for k in range(N_SPLITS):  # a node may be in no part
        file = files.path(split_name(graph, k))
        splits.append(graphs.split_masks(file, npz(file, MASKS), (n,)))
    masks = {name: np.concatenate([split[name] for split in splits]) for name in splits[0]}
    return {**graphs.bags(rows, d), "y": y, "edge_index": edge_index, **masks}


def _nodes(path: Path, graph: str) -> tuple[list[np.ndarray], np.ndarray]:
    """By rising number of the node: the features that it has, and its label.

    A line has the node, its features and its label, with tabs between. Features are one 0 or 1 for each, or,
    for Film, the numbers of those that are 1.
    """
    _, *lines = lines_of(path)
    rows: dict[int, np.ndarray] = {}
    y: dict[int, int] = {}
    for i, line in enumerate(lines, 2):
        try:
            node, features, label = line.split("\t")
            values = np.array(features.split(","), np.int64)
            number = int(node)
            y[number] = int(label)
        except (ValueError, OverflowError) as error:
            raise WrongFile(
                f"{path}, line {i}: expected a node, its features and its label, with tabs between; "
                f"got {line[:40]!r}."
            ) from error
        if graph != "film":
            width = len(values)
            if width not in (SIZES[graph][1], FIXTURE_FEATURES) or not np.isin(values, (0, 1)).all():
                raise WrongFile(
                    f"{path}, line {i}: expected {SIZES[graph][1]} features of 0 or 1; got {width} values, "
                    f"{values.min()} to {values.max()}."
                )
            values = np.flatnonzero(values)
        rows[number] = values
    if len(rows) != len(lines) or sorted(rows) != list(range(len(rows))):
        raise WrongFile(f"{path}: expected the nodes 0..{len(lines) - 1}, once each.")
    order = range(len(rows))
    return [rows[node] for node in order], np.array([y[node] for node in order], np.int64)


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, its head first. DataError where it is none."""
    lines = read_text(path).splitlines()
    if len(lines) < 2:
        raise WrongFile(f"{path} has {len(lines)} lines, expected a head and one for each entry.")
    return lines


def pairs(path: Path, mark: str, head: tuple[str, str]) -> np.ndarray:
    """Two whole numbers on each line below a head: (2, E) int64."""
    first, *lines = lines_of(path)
    if tuple(first.split(mark)) != head:
        raise WrongFile(f"{path}: the head must be {mark.join(head)!r}; got {first[:40]!r}.")
    numbers = np.empty((len(lines), 2), np.int64)
    for i, line in enumerate(lines):
        try:
            a, b = line.split(mark)
            numbers[i] = int(a), int(b)
        except (ValueError, OverflowError) as error:
            raise WrongFile(f"{path}, line {i + 2}: expected two numbers; got {line[:40]!r}.") from error
    return numbers.T.copy()


def _fixture(root: Path, graph: str) -> None:
    """60 pages of 5 classes with 25 words, more links between classes than within, one loop."""
    random_graph = communities(FIXTURE_NODES, FIXTURE_FEATURES, N_CLASSES, seed=1, homophily=0.3)
    for name in (nodes_name(graph), split_name(graph, 0)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    lines = ["node_id\tfeature\tlabel"]
    for node, (row, label) in enumerate(zip(random_graph.x.astype(int), random_graph.y, strict=True)):
        values = np.flatnonzero(row) if graph == "film" else row
        lines.append(f"{node}\t{','.join(map(str, values))}\t{label}")
    (root / nodes_name(graph)).write_text("\n".join(lines) + "\n")
    lines = ["node_id\tnode_id", *(f"{a}\t{b}" for a, b in random_graph.edge_index.T), "7\t7"]
    (root / edges_name(graph)).write_text("\n".join(lines) + "\n")
    for k in range(N_SPLITS):
        split = graphs.cut(np.random.RandomState(k).permutation(FIXTURE_NODES), 30, 18)
        masks = graphs.masks([split], FIXTURE_NODES)
        named = {name: mask[0].astype(np.uint8) for name, mask in zip(MASKS, masks.values(), strict=True)}
        np.savez(root / split_name(graph, k), **named)


TEXAS, WISCONSIN, CORNELL, CORNELL_BINGZHEWEI, FILM, SQUIRREL, CHAMELEON = family(
    "geom", SIZES, _read, _fixture
)
