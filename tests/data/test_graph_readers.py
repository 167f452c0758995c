"""Graphs: readers on fixtures and, where PHYSML_DATA has them, on the real files; cleaning; splits."""

import zipfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from each import each
from refusals import refuses
from scipy.sparse import csr_array

from physml.base.errors import DataError, InputError
from physml.data import graphs, splits
from physml.data.datasets import Arrays, DataSet
from physml.data.readers import (
    heterophilous,
    large_graphs,
    musae,
    planetoid,
    ppi,
    shchur,
    superpixels,
    syn_cora,
    webkb,
    zinc,
)
from physml.data.store import Store

MODULES = (planetoid, webkb, shchur, musae, syn_cora, heterophilous, zinc, superpixels, ppi, large_graphs)
SETS = [value for module in MODULES for value in vars(module).values() if isinstance(value, DataSet)]
NEEDED = "."  # of the real files; `read` asks for those of one graph
BY_NAME = {data.name: data for data in SETS}


def read(store: Store, data: DataSet) -> Arrays:
    """Skips where the files are not at hand."""
    if not all((store.data / file.name).exists() for file in data.upstream.files if not file.optional):
        pytest.skip(f"{data.name} is not at hand in PHYSML_DATA")
    return store.read(data)


# ---------------------------------------------------------------------------- every reader


@each("data", SETS)
def test_arrays_of_a_fixture_fit_each_other(data: DataSet, store: Store) -> None:
    arrays = store.read(data)
    x, y, edges = graphs.dense_features(arrays), arrays["y"], arrays["edge_index"]
    assert x.ndim == 2 and np.isfinite(x).all() and x.any(1).mean() > 0.2
    assert edges.shape[0] == 2 and edges.min() >= 0 and len(np.unique(y)) >= 2
    if "node_offsets" not in arrays:
        assert x.dtype == np.float32 and y.dtype == edges.dtype == np.int64
        assert len(y) == len(x) and edges.max() < len(y)
    if "split_train" in arrays:
        total = sum(arrays[f"split_{part}"].astype(int) for part in graphs.PARTS)
        assert total.max() == 1 and all(arrays[f"split_{part}"].any(1).all() for part in graphs.PARTS)


MANY = [syn_cora.SYN_CORA, zinc.ZINC, zinc.ZINC_SUBSTITUTE, superpixels.SUPERPIXELS, ppi.PPI]


@pytest.mark.parametrize("data", MANY, ids=lambda data: data.name)
def test_graphs_of_many_are_cut_where_they_end(data: DataSet, store: Store) -> None:
    arrays = store.read(data)
    nodes, edges = arrays["node_offsets"], arrays["edge_offsets"]
    n_graphs = len(nodes) - 1
    parts = [graphs.one(arrays, g) for g in range(n_graphs)]
    assert arrays.get("n_graphs", np.array(n_graphs)).sum() == n_graphs
    assert edges[-1] == arrays["edge_index"].shape[1] == sum(part["edge_index"].shape[1] for part in parts)
    for part, n in zip(parts, np.diff(nodes), strict=True):
        assert len(graphs.dense_features(part)) == n and part["edge_index"].dtype == np.int64
        assert part["edge_index"].max() == n - 1, "every last node has a link in these fixtures"
    x = np.concatenate([graphs.dense_features(part) for part in parts])
    assert (x == graphs.dense_features(arrays)).all()
    refuses(InputError, f"{n_graphs} graphs", graphs.one, arrays, n_graphs)


def test_both_forms_of_zinc_give_the_same_arrays_and_classes_of_years_the_same_size(store: Store) -> None:
    """The fixtures of ZINC are the same molecules, once as pickled tensors, once as flat arrays."""
    a, b = store.read(zinc.ZINC), store.read(zinc.ZINC_SUBSTITUTE)
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    first = graphs.one(a, 0)
    bonds = {(*edge, kind) for *edge, kind in np.c_[first["edge_index"].T, first["edge_attr"]].tolist()}
    assert {(b, a, kind) for a, b, kind in bonds} == bonds, "each bond in both directions"
    for data in (large_graphs.SNAP_PATENTS, large_graphs.ARXIV_YEAR):
        assert np.bincount(store.read(data)["y"]).tolist() == [16] * 5


@pytest.mark.parametrize("bad", [0.5, np.nan, np.inf, 1j])
@pytest.mark.parametrize(
    ("data", "key"),
    [
        (heterophilous.MINESWEEPER, "node_labels"),
        (heterophilous.MINESWEEPER, "edges"),
        (shchur.PHOTO, "labels"),
        (zinc.ZINC_SUBSTITUTE, "atom_type"),
        (zinc.ZINC_SUBSTITUTE, "node_ptr"),
    ],
)
def test_classes_nodes_and_offsets_are_whole_numbers(data: DataSet, key: str, bad: complex, tmp_path) -> None:
    data.fixture(tmp_path)
    path = next(tmp_path.rglob("*.npz"))
    arrays = dict(np.load(path))
    arrays[key] = arrays[key].astype(type(bad))
    arrays[key].flat[0] += bad
    np.savez(path, **arrays)
    store = Store(tmp_path, tmp_path / "cache", "off")
    says = "(whole numbers|real numbers|expected 0|kinds|cut|edge 1)"
    refuses(DataError, f"{path.name}.*{says}", store.read, data)


@pytest.mark.parametrize("data", [ppi.PPI, zinc.ZINC, superpixels.SUPERPIXELS], ids=lambda data: data.name)
def test_many_graphs_are_what_pyg_makes_of_them(data: DataSet, store: Store, tmp_path: Path) -> None:
    """PyG processes the fixture from its folder `raw`, so that it downloads nothing."""
    import torch_geometric.datasets as pyg

    data.fixture(tmp_path)
    (archive,) = tmp_path.rglob("*.zip")
    raw = tmp_path / "raw"
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(raw)
    if data is zinc.ZINC:
        for path in [*(raw / "molecules").iterdir(), *(tmp_path / "zinc").glob("*.index")]:
            path.rename(raw / path.name)
        parts = [pyg.ZINC(str(tmp_path), subset=True, split=part) for part in ("train", "val", "test")]
    elif data is ppi.PPI:
        parts = [pyg.PPI(str(tmp_path), split=part) for part in ("train", "val", "test")]
    else:
        parts = [pyg.MNISTSuperpixels(str(tmp_path), train=train) for train in (True, False)]
    arrays = store.read(data)
    theirs = [graph for part in parts for graph in part]
    assert len(theirs) == arrays["n_graphs"].sum()
    for g, graph in enumerate(theirs):
        ours = graphs.one(arrays, g)
        assert (graph.x.numpy() == ours["x"]).all()
        assert np.array_equal(graph.y.numpy().reshape(np.shape(ours["y"])), ours["y"])
        assert (graphs.coalesced(graph.edge_index.numpy()) == graphs.coalesced(ours["edge_index"])).all()


# ---------------------------------------------------------------------------- the real files

# Nodes, features, classes, different edge rows without loops, loops, as in RECIPES of the papers and PyG.
# Of WebKB and Wikipedia the sizes of each of ten splits too.
REAL = {
    "planetoid_cora": ((2708, 1433, 7, 10_556, 0), None),
    "planetoid_citeseer": ((3327, 3703, 6, 9104, 124), None),
    "planetoid_pubmed": ((19_717, 500, 3, 88_648, 3), None),
    "geom_texas": ((183, 1703, 5, 309, 16), (87, 59, 37)),
    "geom_wisconsin": ((251, 1703, 5, 499, 16), (120, 80, 51)),
    "geom_cornell": ((183, 1703, 5, 295, 3), (87, 59, 37)),
    "geom_cornell_bingzhewei": (None, (87, 59, 37)),
    "geom_film": ((7600, 932, 5, 29_926, 93), (3648, 2432, 1520)),
    "geom_squirrel": ((5201, 2089, 5, 216_933, 140), (2496, 1664, 1041)),
    "geom_chameleon": ((2277, 2325, 5, 36_051, 50), (1092, 729, 456)),
}


@pytest.mark.parametrize("name", REAL)
def test_the_real_graph_has_the_published_sizes_and_splits(name: str, real: Store) -> None:
    arrays, (sizes, split_sizes) = read(real, BY_NAME[name]), REAL[name]
    if split_sizes:
        splits_of = [graphs.fixed_split(arrays, k).values() for k in range(10)]
        assert [tuple(map(len, split)) for split in splits_of] == [split_sizes] * 10
        assert len({nodes.tobytes() for nodes in arrays["split_test"]}) == len(arrays["split_test"]) == 10
    if not sizes:
        return
    n, d, n_classes, n_edges, n_loops = sizes
    assert graphs.dense_features(arrays).shape == (n, d)
    assert arrays["y"].max() == n_classes - 1
    edges = graphs.coalesced(arrays["edge_index"])
    assert graphs.without_loops(edges).shape[1] == n_edges
    assert edges.shape[1] - n_edges == n_loops


@pytest.mark.parametrize(
    ("name", "rows", "links"), [("texas", 325, 295), ("cornell", 298, 280), ("wisconsin", 515, 466)]
)
def test_edges_of_webkb_stay_as_stored(name: str, rows: int, links: int, real: Store) -> None:
    edges = read(real, BY_NAME[f"geom_{name}"])["edge_index"]
    assert edges.shape == (2, rows)
    assert len({frozenset(edge) for edge in edges.T.tolist()}) == links


def test_the_papers_that_citeseer_lacks_have_no_label(real: Store) -> None:
    arrays = read(real, planetoid.CITESEER)
    nobody = np.flatnonzero(arrays["y"] < 0)
    assert len(nobody) == 15 and not graphs.dense_features(arrays)[nobody].any()
    assert not any(np.isin(nobody, nodes).any() for nodes in graphs.fixed_split(arrays, 0).values())


# Of torch itself, when PyG is imported; and of pickles of Python 2, which PyG reads with scipy's old names.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_planetoid_is_what_pyg_makes_of_it(real: Store) -> None:
    """Except for the labels of the papers that Citeseer lacks, which are 0 there."""
    from torch_geometric.io import read_planetoid_data

    for name in ("cora", "citeseer"):
        ours = read(real, BY_NAME[f"planetoid_{name}"])
        assert real.data is not None
        theirs = read_planetoid_data(str(real.data / "planetoid"), name)
        edges = graphs.without_loops(graphs.coalesced(ours["edge_index"]))
        assert (graphs.coalesced(theirs.edge_index.numpy()) == edges).all(), "PyG sorts by targets"
        assert (theirs.x.to_dense().numpy() == graphs.dense_features(ours)).all()
        assert (theirs.y.numpy() == np.maximum(ours["y"], 0)).all()
        masks = (theirs.train_mask, theirs.val_mask, theirs.test_mask)
        for part, mask in zip(graphs.PARTS, masks, strict=True):
            assert (mask.numpy() == ours[f"split_{part}"][0]).all()


def test_synthetic_cora_is_as_homophilic_as_its_files_say(real: Store) -> None:
    arrays = read(real, syn_cora.SYN_CORA)
    for level in syn_cora.LEVELS:
        for repeat in syn_cora.REPEATS:
            g = syn_cora.graph_number(level, repeat)
            assert (arrays["homophily"][g], arrays["repeat"][g]) == (level, repeat)
            graph = graphs.one(arrays, g)
            (a, b), y = graph["edge_index"], graph["y"]
            assert graph["x_shape"].tolist() == [1490, 1433]
            assert np.mean(y[a] == y[b]) == pytest.approx(level, abs=0.025)


def test_the_substitute_of_zinc_has_the_official_valid_and_test_molecules(real: Store) -> None:
    arrays = read(real, zinc.ZINC_SUBSTITUTE)
    assert arrays["n_graphs"].tolist() == [9922, 1000, 1000]
    assert np.diff(arrays["node_offsets"]).mean() == pytest.approx(23.2, abs=0.1)
    assert np.diff(arrays["edge_offsets"]).mean() == pytest.approx(49.8, abs=0.2)
    last = arrays["edge_index"][:, arrays["edge_offsets"][-2] :]
    assert (graphs.undirected(last) == graphs.coalesced(last)).all()


# ---------------------------------------------------------------------------- edges


EDGES = np.array([[3, 0, 1, 1, 3, 5], [3, 1, 0, 2, 0, 4]])  # a loop at 3; 0-1 both ways; 4-5 apart


def test_edges_are_coalesced_and_made_undirected_and_components_follow_both_directions() -> None:
    doubled = np.concatenate([EDGES, EDGES], 1)
    assert graphs.coalesced(doubled).tolist() == [[0, 1, 1, 3, 3, 5], [1, 0, 2, 0, 3, 4]]
    both = graphs.undirected(doubled)
    assert both.tolist() == [[0, 0, 1, 1, 2, 3, 3, 4, 5], [1, 3, 0, 2, 1, 0, 3, 5, 4]]
    assert graphs.without_loops(both).shape[1] == 8
    assert graphs.undirected(np.empty((2, 0), np.int64)).shape == (2, 0)
    assert graphs.largest_component(EDGES, 7).tolist() == [0, 1, 2, 3]
    assert graphs.largest_component(np.array([[3], [2]]), 4).tolist() == [2, 3]
    assert graphs.largest_component(np.array([[3, 0], [2, 1]]), 4).tolist() == [0, 1], "a tie"
    assert graphs.largest_component(np.empty((2, 0), np.int64), 3).tolist() == [0]


def test_a_subgraph_takes_features_labels_and_splits_along() -> None:
    x, y = np.random.RandomState(0).rand(6, 4).astype(np.float32), np.arange(6)
    splits = graphs.masks([{"train": [0, 1], "valid": [2, 3], "test": [4]}], 6)
    nodes = np.array([3, 0, 5])
    for features in ({"x": x}, graphs.sparse_arrays(csr_array(x))):
        part = graphs.subgraph({**features, "y": y, "edge_index": EDGES, **splits}, nodes)
        assert (graphs.dense_features(part) == x[nodes]).all()
        assert part["y"].tolist() == [3, 0, 5]
        assert part["edge_index"].tolist() == [[0, 0], [0, 1]]
        assert part["split_train"].tolist() == [[False, True, False]]
    refuses(InputError, "twice", graphs.subgraph, {"x": x, "y": y, "edge_index": EDGES}, np.array([1, 1]))


def test_the_official_numbering_is_that_of_networkx(store: Store) -> None:
    """The published code adds the rows to a graph of networkx and lets PyG number its nodes."""
    from torch_geometric.utils import from_networkx

    arrays = store.read(musae.CHAMELEON)
    graph = nx.Graph()
    graph.add_edges_from(arrays["edge_index"].T.tolist())
    theirs = graphs.coalesced(from_networkx(graph).edge_index.numpy())
    n = len(arrays["y"])
    assert (graphs.regression_edges(arrays["edge_index"], n, "official") == theirs).all()
    clean = graphs.regression_edges(arrays["edge_index"], n, "clean")
    assert clean.shape == theirs.shape and (clean != theirs).any()
    assert nx.is_isomorphic(nx.Graph(clean.T.tolist()), graph)
    with pytest.raises(InputError, match="must be one of 'official', 'clean'"):
        graphs.regression_edges(arrays["edge_index"], n, "other")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"{n} of {n + 1} nodes"):
        graphs.regression_edges(arrays["edge_index"], n + 1, "official")


# ---------------------------------------------------------------------------- splits


def test_a_class_split_takes_the_first_of_each_class_and_even_quantiles_make_classes_of_a_size() -> None:
    y, order = np.array([0, 1, 0, 1, 0, 1, -1, 0]), np.array([7, 6, 5, 4, 3, 2, 1, 0])
    split = graphs.class_split(y, order, n_per_class=1, n_development=5)
    nodes = {part: nodes.tolist() for part, nodes in split.items()}
    assert nodes == {"train": [5, 7], "valid": [3, 4], "test": [0, 1, 2]}, "node 6 has no label"
    with pytest.raises(InputError, match="class 0 has 2 of the 5"):
        graphs.class_split(y, order, n_per_class=3, n_development=5)
    refuses(InputError, "8 nodes for development", graphs.class_split, y, order, n_development=8)
    labels = graphs.even_quantiles(np.repeat(np.arange(2000, 2010), 7), 5)
    assert np.bincount(labels).tolist() == [14] * 5
    assert (np.diff(labels) >= 0).all()
    assert graphs.even_quantiles(np.array([1, 1, 1, 2]), 2).tolist() == [1, 1, 1, 1], "q = 1 is in the upper"


def test_orders_of_nodes_are_recorded_and_synthetic_cora_is_split_as_in_the_published_code() -> None:
    assert np.array_equal(graphs.node_order(2485, 4), splits.load_index("nodes-2485-4"))
    assert np.array_equal(np.sort(graphs.node_order(50, 1)), np.arange(50)), "a fixture"
    refuses(InputError, "5 recorded orders", graphs.node_order, 2485, 5)
    order = splits.load_index("syn-cora-123456")
    assert np.array_equal(order, np.random.RandomState(123456).choice(1490, 1490, replace=False))
    assert [len(nodes) for nodes in graphs.cut(order, 1490 // 2, 1117 - 745).values()] == [745, 372, 373]
