"""Graphs as arrays: cleaning, components, splits. No torch here. Axes: N nodes, E edge rows, F features.

A reader gives `edge_index` (2, E) int64, sources above targets, one column per stored row: duplicates, loops
and missing reverses are as upstream has them. Features are either `x` (N, F) float32, or sparse rows
`x_data`, `x_indices`, `x_indptr`, `x_shape`; labels are `y` (N,) int64, -1 where a node has none. Splits that
come with the data are `split_train`, `split_valid`, `split_test` (S, N) bool. A set of many graphs has their
nodes and edges one after another, with `node_offsets` and `edge_offsets`: graph g has the nodes
`node_offsets[g]:node_offsets[g + 1]`, which its edges count from 0; `n_graphs` (3,) says how many of them
train, validate and test, in this order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.data import splits
from physml.data.datasets import Arrays
from physml.data.files.limits import WrongFile

PARTS = ("train", "valid", "test")
DIRECTIONS = ("stored", "reversed", "undirected")
Split = dict[str, np.ndarray]  # sorted positions of nodes, by part

# ---------------------------------------------------------------------------- edges


def coalesced(edge_index: np.ndarray) -> np.ndarray:
    """The different edge rows, in the order of their sources, then targets."""
    if edge_index.shape[1] == 0:
        return edge_index
    n = int(edge_index.max()) + 1
    keys = np.unique(edge_index[0] * n + edge_index[1])
    return np.stack([keys // n, keys % n])


def undirected(edge_index: np.ndarray) -> np.ndarray:
    """Every edge in both directions, once; a loop once."""
    return coalesced(np.concatenate([edge_index, edge_index[::-1]], 1))


def directed(edge_index: np.ndarray, edges: str) -> np.ndarray:
    """The edges as one of `DIRECTIONS`: as they are; every one the other way; or both ways, each once.

    Reversed, u receives from v where a stored row says "u v"; the order stays.
    """
    one_of("edges", edges, DIRECTIONS)
    if edges == "stored":
        return edge_index
    return np.ascontiguousarray(edge_index[::-1]) if edges == "reversed" else undirected(edge_index)


def without_loops(edge_index: np.ndarray) -> np.ndarray:
    return edge_index[:, edge_index[0] != edge_index[1]]


def largest_component(edge_index: np.ndarray, n_nodes: int) -> np.ndarray:
    """The nodes of the largest connected component, in rising order; direction does not matter.

    Of two of the same size, the one with the lower first node.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(edge_index.shape[1], np.int8)
    adjacency = coo_array((ones, (edge_index[0], edge_index[1])), shape=(n_nodes, n_nodes))
    label = connected_components(adjacency, directed=False)[1]
    _, first, size = np.unique(label, return_index=True, return_counts=True)
    largest = min(range(len(size)), key=lambda k: (-size[k], first[k]))
    return np.flatnonzero(label == label[first[largest]])


def subgraph(arrays: Arrays, nodes: np.ndarray) -> Arrays:
    """The graph of these nodes, which get their positions in `nodes` as numbers; edges between them remain.

    Features, labels and splits go with the nodes. Errors: InputError where a node is named twice.
    """
    n = len(arrays["y"])
    if len(np.unique(nodes)) != len(nodes):
        raise InputError("nodes must be different ones; at least one is named twice.")
    number = np.full(n, -1, np.int64)
    number[nodes] = np.arange(len(nodes))
    edges = number[arrays["edge_index"]]
    part = {**arrays, "edge_index": edges[:, (edges >= 0).all(0)], "y": arrays["y"][nodes]}
    part |= {"x": arrays["x"][nodes]} if "x" in arrays else sparse_arrays(sparse_features(arrays)[nodes])
    splits = (f"split_{name}" for name in PARTS)
    return part | {name: arrays[name][:, nodes] for name in splits if name in arrays}


def met_order(edge_index: np.ndarray) -> np.ndarray:
    """The nodes in the order in which the edge rows name them first: source before target, row by row."""
    nodes, first = np.unique(edge_index.T.reshape(-1), return_index=True)
    return nodes[np.argsort(first)]


def regression_edges(edge_index: np.ndarray, n_nodes: int, alignment: str) -> np.ndarray:
    """The undirected edges of the regression on Wikipedia pages.

    clean: nodes keep their numbers, so that page k has the neighbours, features and target of page k.
    official: as the published code numbers them: node k of the graph is the k-th one that the edge list
    names, while features, targets and splits go by page number; nearly every page has the links of another.
    """
    one_of("alignment", alignment, ("official", "clean"))
    if alignment == "clean":
        return undirected(edge_index)
    met = met_order(edge_index)
    if len(met) != n_nodes:
        raise InputError(f"the edges name {len(met)} of {n_nodes} nodes; the official numbering needs all.")
    number = np.empty(n_nodes, np.int64)
    number[met] = np.arange(n_nodes)
    return undirected(number[edge_index])


# ---------------------------------------------------------------------------- features


def sparse_features(arrays: Arrays) -> Any:
    """Sparse features as a scipy csr_array (N, F)."""
    from scipy.sparse import csr_array

    data = (arrays["x_data"], arrays["x_indices"], arrays["x_indptr"])
    return csr_array(data, shape=tuple(arrays["x_shape"].tolist()))


def sparse_arrays(x: Any) -> Arrays:
    """A scipy matrix of features as a reader returns it: rows with rising columns, no stored zeros."""
    x = x.tocsr().copy()
    x.sum_duplicates()
    x.eliminate_zeros()
    return {
        "x_data": x.data.astype(np.float32),
        "x_indices": x.indices.astype(np.int32),
        "x_indptr": x.indptr.astype(np.int64),
        "x_shape": np.array(x.shape, np.int64),
    }


def bags(rows: list[np.ndarray], n_columns: int) -> Arrays:
    """Sparse features that are 1 in the columns that each node lists."""
    from scipy.sparse import csr_array

    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    indices = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int32)
    x = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), n_columns))
    arrays = sparse_arrays(x)
    arrays["x_data"][:] = 1  # a column that is listed twice counts once
    return arrays


def dense_features(arrays: Arrays) -> np.ndarray:
    """The features as (N, F) float32, however they are stored."""
    if "x" in arrays:
        return arrays["x"]
    x = np.zeros(tuple(arrays["x_shape"].tolist()), np.float32)  # scipy takes longer to be imported
    row = np.repeat(np.arange(len(x)), np.diff(arrays["x_indptr"]))
    x[row, arrays["x_indices"]] = arrays["x_data"]
    return x


def row_sums_of_one(x: np.ndarray) -> np.ndarray:
    """Each row divided by its sum; a row without words stays 0. Shapes: (N, D) -> (N, D)."""
    total = x.sum(1, keepdims=True)
    return x / np.where(total > 0, total, 1)


# ---------------------------------------------------------------------------- splits


def node_order(n_nodes: int, k: int) -> np.ndarray:
    """The k-th random order of N nodes, k = 0..4; splits are cut from it.

    An index file for the sizes of the largest components (2485 Cora, 2120 Citeseer, 19717 Pubmed); a graph
    of another size is shuffled by RandomState(k), which is how those were made.
    """
    if not 0 <= k < N_ORDERS:
        raise InputError(f"there are {N_ORDERS} recorded orders, 0 to {N_ORDERS - 1}; got {k}.")
    if n_nodes in ORDERED:
        return splits.load_index(f"nodes-{n_nodes}-{k}")
    return np.random.RandomState(k).permutation(n_nodes)


ORDERED = (2485, 2120, 19_717)
N_ORDERS = 5


def class_split(
    y: np.ndarray, order: np.ndarray, *, n_per_class: int = 20, n_development: int = 1500
) -> Split:
    """A random split as Shchur et al. (2018, https://arxiv.org/abs/1811.05868) draw it.

    The first nodes of the random `order` are for development: of each class, the first ones train and the
    rest validates. All other nodes test. A node without label (-1) takes part in nothing.

    Errors: InputError where the nodes are too few, or a class has too few of them.
    """
    if len(order) != len(y) or n_development >= len(y):
        raise InputError(
            f"{n_development} nodes for development need an order of more nodes; got an order of "
            f"{len(order)} for {len(y)} nodes."
        )
    development, tested = order[:n_development], order[n_development:]
    train = []
    for label in np.unique(y[y >= 0]):
        those = development[y[development] == label][:n_per_class]
        if len(those) < n_per_class:
            raise InputError(
                f"class {label} has {len(those)} of the {n_development} nodes for development; "
                f"{n_per_class} must train. Take more nodes for development, or fewer per class."
            )
        train.append(those)
    chosen = np.concatenate(train)
    return {
        "train": np.sort(chosen),
        "valid": np.setdiff1d(development[y[development] >= 0], chosen),
        "test": np.sort(tested[y[tested] >= 0]),
    }


def fixed_split(arrays: Arrays, k: int) -> Split:
    """The k-th split that comes with the data."""
    n = len(arrays["split_train"])
    if not 0 <= k < n:
        raise InputError(f"there are {n} splits, 0 to {n - 1}; got {k}.")
    return {part: np.flatnonzero(arrays[f"split_{part}"][k]) for part in PARTS}


def cut(order: np.ndarray, n_train: int, n_valid: int) -> Split:
    """The first nodes of an order train, the next ones validate, the rest tests."""
    return {part: np.sort(nodes) for part, nodes in splits.parted(order, n_train, n_valid).items()}


def masks(splits: Sequence[Mapping[str, np.ndarray]], n_nodes: int) -> Arrays:
    """`split_train`, `split_valid`, `split_test` (S, N) bool of splits given by positions."""
    arrays: Arrays = {}
    for part in PARTS:
        mask = np.zeros((len(splits), n_nodes), bool)
        for row, split in zip(mask, splits, strict=True):
            row[split[part]] = True
        arrays[f"split_{part}"] = mask
    return arrays


def even_quantiles(values: np.ndarray, n_classes: int) -> np.ndarray:
    """Classes of about equal size by rising value, as labels of arXiv-year and snap-patents are made.

    Class c holds the values v with q_c <= v < q_(c+1), q_c the quantile c / n_classes; the last has no end.
    """
    inner = np.nanquantile(values, np.arange(1, n_classes) / n_classes)
    return np.searchsorted(inner, values, side="right").astype(np.int64)


# ---------------------------------------------------------------------------- checks


def check_edges(where: object, edge_index: np.ndarray, n_nodes: int) -> None:
    """DataError where an edge names a node that is none. `where`: the file."""
    wrong = np.flatnonzero(((edge_index < 0) | (edge_index >= n_nodes)).any(0))
    if len(wrong):
        a, b = edge_index[:, wrong[0]]
        raise WrongFile(
            f"{where}: edge {wrong[0] + 1} goes from node {a} to {b}, but nodes are 0..{n_nodes - 1}."
        )


def whole(where: object, what: str, values: np.ndarray) -> np.ndarray:
    """The values as int64. DataError where one is no whole number."""
    kind = values.dtype.kind
    if kind not in "biuf" or (kind == "f" and not (values == np.floor(values)).all()):
        raise WrongFile(f"{where}: {what} must be whole numbers.")
    with np.errstate(invalid="ignore"):  # infinite, or too large: out of all ranges afterwards, too
        return values.astype(np.int64)


def check_labels(where: object, y: np.ndarray, n_classes: int) -> None:
    wrong = np.flatnonzero((y < 0) | (y >= n_classes))
    if len(wrong):
        raise WrongFile(f"{where}: node {wrong[0]} has the label {y[wrong[0]]}, expected 0..{n_classes - 1}.")


def check_finite(where: object, what: str, values: np.ndarray) -> None:
    """DataError where a value is not finite as float32, which readers return."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32, copy=False)
    if not np.isfinite(single).all():
        raise WrongFile(f"{where}: {what} hold values that are not finite.")


def check_sparse(where: object, x: Any) -> None:
    """DataError unless the parts of a compressed sparse matrix fit each other; scipy does not look."""
    n, d = x.shape if x.format == "csr" else x.shape[::-1]
    ends = len(x.indptr) == n + 1 and x.indptr[0] == 0 and x.indptr[-1] == len(x.indices) == len(x.data)
    if not ends or (np.diff(x.indptr) < 0).any():
        raise WrongFile(f"{where}: the rows of a sparse matrix of {n} x {d} do not fit its values.")
    outside = x.indices[(x.indices < 0) | (x.indices >= d)]
    if len(outside):
        line = "column" if x.format == "csr" else "row"
        raise WrongFile(f"{where}: a sparse matrix names {line} {outside[0]} of {d}.")
    check_finite(where, "sparse features or links", x.data)


def check_split(where: object, split: Mapping[str, np.ndarray], n_nodes: int) -> None:
    """DataError where a part is empty, names a node that is none, or shares one with another part."""
    seen = np.zeros(n_nodes, bool)
    for part, nodes in split.items():
        if not len(nodes) or nodes.min() < 0 or nodes.max() >= n_nodes:
            raise WrongFile(f"{where}: the part {part} is empty or names nodes outside 0..{n_nodes - 1}.")
        if seen[nodes].any() or len(np.unique(nodes)) != len(nodes):
            raise WrongFile(f"{where}: a node of {part} stands in two parts, or twice in one.")
        seen[nodes] = True


def split_masks(where: object, masks: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Arrays:
    """`split_train`, `split_valid`, `split_test` bool of masks by their names in a file, in this order.

    Errors: DataError for a mask of another shape than (..., N), for other values than 0 and 1, and for splits
    as `check_split` refuses them.
    """
    for name, mask in masks.items():
        if mask.shape != shape or not np.isin(mask, (0, 1)).all():
            expected = " x ".join(map(str, shape))
            raise WrongFile(f"{where}: {name} must be {expected} times 0 or 1; got {mask.shape}.")
    arrays = {
        f"split_{part}": mask.astype(bool).reshape(-1, shape[-1])
        for part, mask in zip(PARTS, masks.values(), strict=True)
    }
    for k in range(len(arrays["split_train"])):
        check_split(where, fixed_split(arrays, k), shape[-1])
    return arrays


# ---------------------------------------------------------------------------- many graphs


def offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Start of each of many graphs, and the end: (K + 1,) int64."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def together(parts: Sequence[Arrays]) -> Arrays:
    """Graphs, or sets of graphs with offsets, as one set; each graph counts its nodes from 0."""
    counted = {"node_offsets": ("x", 0), "edge_offsets": ("edge_index", 1)}
    joined = {
        name: np.concatenate([part[name] for part in parts], int(name == "edge_index"))
        for name in parts[0]
        if name not in counted
    }
    for name, (rows, axis) in counted.items():
        sizes = [np.diff(part.get(name, [0, part[rows].shape[axis]])) for part in parts]
        joined[name] = offsets(np.concatenate(sizes))
    return joined


def n_graphs_of(parts: Sequence[Arrays]) -> np.ndarray:
    """How many graphs each part has: `n_graphs`."""
    return np.array([len(part["node_offsets"]) - 1 for part in parts], np.int64)


def one(arrays: Arrays, g: int) -> Arrays:
    """Graph g of many: its features, edges (counted from 0) and edge features, and its y.

    y goes by nodes where there are as many labels as nodes, else by graphs.
    """
    n_graphs = len(arrays["node_offsets"]) - 1
    if not 0 <= g < n_graphs:
        raise InputError(f"there are {n_graphs} graphs, 0 to {n_graphs - 1}; got {g}.")
    nodes = slice(*arrays["node_offsets"][g : g + 2])
    edges = slice(*arrays["edge_offsets"][g : g + 2])
    by_node = len(arrays["y"]) == arrays["node_offsets"][-1]
    edge_index = arrays["edge_index"][:, edges].astype(np.int64)
    graph = {"edge_index": edge_index, "y": arrays["y"][nodes if by_node else g]}
    rows = {"x": nodes, "edge_attr": edges, "pos": nodes}
    graph |= {name: arrays[name][chosen] for name, chosen in rows.items() if name in arrays}
    return graph if "x" in arrays else graph | sparse_arrays(sparse_features(arrays)[nodes])
