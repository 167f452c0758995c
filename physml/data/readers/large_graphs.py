"""Snap-patents, arXiv-year and genius, with 5 fixed splits. No torch at import. Axes: N nodes, F features.

Large graphs of Lim et al. (NeurIPS 2021, https://arxiv.org/abs/2110.14446). Links are directed, as stored.
"""

import csv
import gzip
import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.array_files import mat, npy_header
from physml.data.files.limits import WrongFile, gunzip, read_bytes
from physml.data.files.safe_pickle import tensors, unpickle
from physml.data.readers.fixtures import communities, write_zip

SIZES = {"snap_patents": (2_923_922, 269), "arxiv_year": (169_343, 128), "genius": (421_961, 12)}  # N, F
FIXTURE_NODES = 80
N_CLASSES, N_SPLITS = 5, 5
PATENTS, GENIUS, ARXIV = "linkx/snap_patents.mat", "linkx/genius.mat", "ogb/arxiv.zip"
SPLITS = {
    "snap_patents": "linkx/snap-patents-splits.npy",
    "arxiv_year": "linkx/arxiv-year-splits.npy",
    "genius": "linkx/genius-splits.npy",
}


def _patents(files: Files) -> Arrays:
    """Sparse features; y (N,) int64: fifths of the years in which patents were granted; 5 splits."""
    path, name = files.path(PATENTS), "snap_patents"
    matrices = mat(path, ("edge_index", "node_feat", "years"))
    years = _vector(path, "years", matrices["years"])
    x = matrices["node_feat"]
    if getattr(x, "format", None) not in ("csr", "csc") or x.dtype.kind not in "biuf":
        raise WrongFile(f"{path}: node_feat must be a sparse matrix of real numbers.")
    graphs.check_sparse(path, x)
    _check_sizes(files, path, name, x.shape, len(years))
    y = graphs.even_quantiles(years, N_CLASSES)
    return {**graphs.sparse_arrays(x), **_graph(files, path, name, matrices["edge_index"], y)}


def _genius(files: Files) -> Arrays:
    """x (N, 12) float32; y (N,) int64: 1 for a marked account; 5 splits. The metric is the area under ROC."""
    path, name = files.path(GENIUS), "genius"
    matrices = mat(path, ("edge_index", "node_feat", "label"))
    x = _full(path, "node_feat", matrices["node_feat"]).astype(np.float32)
    y = graphs.whole(path, "label", _vector(path, "label", matrices["label"]))
    _check_sizes(files, path, name, x.shape, len(y))
    graphs.check_finite(path, "features", x)
    graphs.check_labels(path, y, 2)
    return {"x": x, **_graph(files, path, name, matrices["edge_index"], y)}


def _arxiv(files: Files) -> Arrays:
    """x (N, 128) float32; y (N,) int64: fifths of the years in which papers appeared; 5 splits."""
    tree, name = files.tree(ARXIV), "arxiv_year"
    x, edges, years = (
        _table(f"{tree.path}: {member}", tree.bytes(member), dtype)
        for member, dtype in (
            ("arxiv/raw/node-feat.csv.gz", np.float32),
            ("arxiv/raw/edge.csv.gz", np.int64),
            ("arxiv/raw/node_year.csv.gz", np.int64),
        )
    )
    _check_sizes(files, tree.path, name, x.shape, len(years))
    graphs.check_finite(tree.path, "features", x)
    y = graphs.even_quantiles(years.reshape(-1), N_CLASSES)
    return {"x": x, **_graph(files, tree.path, name, edges.T, y)}


def _full(path: Path, what: str, values: Any) -> np.ndarray:
    """A full matrix of real numbers."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        raise WrongFile(f"{path}: {what} must be a full matrix of real numbers.")
    return values


def _vector(path: Path, what: str, values: Any) -> np.ndarray:
    values = _full(path, what, values).reshape(-1)
    graphs.check_finite(path, what, values)
    return values


def _graph(files: Files, path: Path, name: str, edges: Any, y: np.ndarray) -> Arrays:
    edge_index = np.ascontiguousarray(graphs.whole(path, "edge_index", _full(path, "edge_index", edges)))
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise WrongFile(f"{path}: edges must be 2 x E; got {edge_index.shape}.")
    graphs.check_edges(path, edge_index, len(y))
    return {"y": y, "edge_index": edge_index, **_splits(files.path(SPLITS[name]), len(y))}


def _check_sizes(files: Files, path: Path, name: str, shape: tuple[int, ...], n_labels: int) -> None:
    n, d = SIZES[name]
    if shape not in [(size, d) for size in files.sizes(n, FIXTURE_NODES)] or n_labels != shape[0]:
        raise WrongFile(
            f"{path}: expected {n} nodes with {d} features; got features {shape} and {n_labels} labels. "
        )


def _table(where: str, content: bytes, dtype: type) -> np.ndarray:
    rows = gunzip(content, where)
    try:
        return np.loadtxt(io.StringIO(rows.decode("ascii")), dtype, delimiter=",", ndmin=2)
    except (ValueError, OverflowError) as error:
        raise WrongFile(f"{where} is not a valid table of numbers: {error}.") from error


def _splits(path: Path, n: int) -> Arrays:
    """An .npy of objects: for each split the nodes that train, validate and test; a pickle."""
    content = io.BytesIO(read_bytes(path))
    try:
        npy_header(content)
    except Exception as error:
        raise WrongFile(f"{path} is no .npy file: {error}.") from error
    stored = unpickle(content.read(), tensors, str(path))
    if not isinstance(stored, np.ndarray) or stored.size != N_SPLITS:
        raise WrongFile(f"{path}: expected an array of {N_SPLITS} splits.")
    splits = []
    for k, split in enumerate(stored.reshape(-1).tolist()):
        if not isinstance(split, dict) or set(split) != set(graphs.PARTS):
            raise WrongFile(f"{path}: split {k} must have train, valid and test.")
        if any(not hasattr(nodes, "dtype") for nodes in split.values()):
            raise WrongFile(f"{path}: split {k} must name nodes by an array.")
        positions = {part: np.asarray(split[part]) for part in graphs.PARTS}
        if any(nodes.ndim != 1 or nodes.dtype.kind not in "iu" for nodes in positions.values()):
            raise WrongFile(f"{path}: split {k} must name nodes by numbers.")
        graphs.check_split(path, positions, n)
        splits.append(positions)
    return graphs.masks(splits, n)


# ---------------------------------------------------------------------------- fixtures


def _fixture(root: Path, name: str) -> None:
    """80 nodes; the classes differ in their features and, for two, are fifths of the years."""
    from scipy.sparse import csc_array

    d = SIZES[name][1]
    graph = communities(FIXTURE_NODES, d, 2 if name == "genius" else N_CLASSES, seed=6, homophily=0.3)
    years = 1990 + 3 * graph.y + np.arange(FIXTURE_NODES) % 2
    (root / SPLITS[name]).parent.mkdir(parents=True, exist_ok=True)
    if name == "arxiv_year":
        tables = {"node-feat": graph.x, "edge": graph.edge_index.T, "node_year": years[:, None]}
        members = {}
        for table, rows in tables.items():
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows.tolist())
            members[f"arxiv/raw/{table}.csv.gz"] = gzip.compress(text.getvalue().encode(), mtime=0)
        write_zip(root / ARXIV, members)
    elif name == "genius":
        _write_mat(root / GENIUS, edge_index=graph.edge_index, node_feat=graph.x, label=graph.y[None])
    else:
        x = csc_array(graph.x.astype(np.float64))
        _write_mat(
            root / PATENTS, edge_index=graph.edge_index, node_feat=x, years=years[None], num_nodes=len(years)
        )
    splits = np.empty(N_SPLITS, object)
    for k in range(N_SPLITS):
        splits[k] = graphs.cut(np.random.RandomState(k).permutation(FIXTURE_NODES), 40, 20)
    np.save(root / SPLITS[name], splits, allow_pickle=True)


def _write_mat(path: Path, **arrays: Any) -> None:
    """With a header that tells no date: the same fixture, the same bytes."""
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, arrays)
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + file.getvalue()[116:])


SNAP_PATENTS = DataSet("snap_patents", 1, _patents, partial(_fixture, name="snap_patents"))
ARXIV_YEAR = DataSet("arxiv_year", 1, _arxiv, partial(_fixture, name="arxiv_year"))
GENIUS_GRAPH = DataSet("genius", 1, _genius, partial(_fixture, name="genius"))
