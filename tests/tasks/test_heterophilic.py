"""Heterophilic graphs: edges, features, protocols, and experiments that differ in one thing."""

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data

from physml.base.paths import CONF
from physml.config.compose import compose
from physml.config.load import read_yaml
from physml.data import graphs
from physml.data.readers.webkb import SIZES
from physml.data.store import Store
from physml.models.graph.graph_propagation import mean_spread
from tasks.heterophilic import FILTERED, Heterophilic

NEEDED = "geom-gcn"
LABELS_OF_TEXAS = [33, 1, 18, 101, 30]


def made(store: Store, graph: str, split: int = 0, **options: Any) -> Any:
    """The task, loaded; skips where its files are not at hand."""
    task = Heterophilic(**{"graph": graph, "edges": "stored", "protocol": "official", **options})
    if store.data is not None:
        files = [file.name for file in task.datasets[0].upstream.files if not file.optional]
        if absent := [name for name in files if not (store.data / name).exists()]:
            pytest.skip(f"{absent[0]} is not below PHYSML_DATA")
    return with_data(task, store, split)


def test_edges_go_as_asked_and_clean_is_there_for_the_graphs_that_were_cleaned(store: Store) -> None:
    """One way, unless they are asked to go both or the other way."""
    ways = ("stored", "undirected", "reversed")
    stored, both, other = (whole(made(store, "texas", edges=way)).edge_index for way in ways)
    links = {tuple(edge) for edge in stored.T.tolist()}
    assert len(links) == stored.shape[1] and (7, 7) in links, "no row twice; the loop stays"
    assert {tuple(edge) for edge in both.T.tolist()} == links | {(b, a) for a, b in links}
    assert both.shape[1] > stored.shape[1]
    assert torch.equal(other, stored.flip(0)) and not torch.equal(other, stored)
    for graph in FILTERED:
        assert made(store, graph, protocol="clean").datasets != made(store, graph).datasets


def test_rows_of_features_are_divided_by_their_sums_as_by_pyg(store: Store) -> None:
    """By PyG, on counts of words, where it, too, leaves a row of zeros as it is."""
    kinds = (None, "raw", "row_sum")
    raw, same, shares = (whole(made(store, "texas", features=features)).input for features in kinds)
    assert torch.equal(raw, same) and raw.dtype == shares.dtype == torch.float32
    torch.testing.assert_close(shares, raw / raw.sum(1, keepdim=True).clamp(min=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG calls torch.jit.script, which torch deprecates
        transforms = pytest.importorskip("torch_geometric.transforms")
        from torch_geometric.data import Data
    x = torch.tensor([[1.0, 0.0, 3.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    theirs = transforms.NormalizeFeatures()(Data(x=x.clone())).x
    ours = torch.from_numpy(graphs.row_sums_of_one(x.numpy()))
    assert torch.equal(ours, theirs) and (ours[1] == 0).all()


# ---------------------------------------------------------------------------- the real graphs


@pytest.mark.parametrize(("graph", "share"), [("chameleon", 0.621), ("squirrel", 0.576)])
def test_most_pages_receive_no_edge(graph: str, share: float, real: Store) -> None:
    batch = whole(made(real, graph))
    n = SIZES[graph][0]
    assert 1 - len(batch.edge_index[1].unique()) / n == pytest.approx(share, abs=5e-4)
    other = whole(made(real, graph, edges="reversed"))
    assert len(other.edge_index[1].unique()) == n, "every page links to some"


def test_reversed_edges_spread_by_the_lines_of_the_published_file(real) -> None:
    """A X with A[u, v] = 1 for a line "u v", read from the file by nothing of ours."""
    batch = whole(made(real, "chameleon", edges="reversed"))
    (path,) = real.data.glob("geom-gcn/new_data/chameleon/out1_graph_edges.txt")
    lines = {tuple(map(int, line.split())) for line in path.read_text().splitlines()[1:]}
    n = len(batch.target)
    A = np.zeros((n, n))
    for u, v in lines:
        A[u, v] = 1
    x = torch.randn(n, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    means = A @ x.numpy() / A.sum(1, keepdims=True)
    np.testing.assert_allclose(mean_spread(x, batch.edge_index)(x).numpy(), means, atol=1e-12)


def test_cornell_is_texas_but_for_its_links(real: Store) -> None:
    texas, cornell, other = (whole(made(real, g)) for g in ("texas", "cornell", "cornell_bingzhewei"))
    assert torch.bincount(texas.target).tolist() == LABELS_OF_TEXAS
    assert torch.equal(texas.input, cornell.input) and torch.equal(texas.target, cornell.target)
    assert texas.edge_index.shape != cornell.edge_index.shape
    # Gradient gating leaves nodes without an edge out as they are, with edges as stored.
    assert len(texas.edge_index[0].unique()) < len(texas.target)
    assert not torch.equal(texas.input, other.input)
    assert (*other.input.shape, other.edge_index.shape[1]) == (*SIZES["cornell_bingzhewei"][:2], 298)
    assert torch.bincount(other.target).tolist() != LABELS_OF_TEXAS


def doubles(task: Heterophilic) -> int:
    """Nodes with the label and the neighbours of another one."""
    batch = whole(task)
    rows: list[set[int]] = [set() for _ in batch.target]
    for a, b in batch.edge_index.T.tolist():
        rows[a].add(b)
        rows[b].add(a)
    keys = Counter((label, frozenset(row)) for label, row in zip(batch.target.tolist(), rows, strict=True))
    return sum(n for (_, row), n in keys.items() if row and n > 1)


@pytest.mark.parametrize(("graph", "n"), [("chameleon", 890), ("squirrel", 2223)])
def test_the_filtered_graphs_have_few_doubles_and_edges_both_ways(graph: str, n: int, real: Store) -> None:
    stored = whole(made(real, graph, protocol="clean")).edge_index
    task = made(real, graph, protocol="clean", edges="undirected")
    edges = {tuple(edge) for edge in whole(task).edge_index.T.tolist()}
    assert edges == {(b, a) for a, b in edges} and len(edges) == 2 * stored.shape[1]
    assert read_yaml(CONF / "task" / f"{graph}_filtered.yaml")["edges"] == "undirected"
    nodes = torch.cat([whole(task, part).index for part in ("train", "valid", "test")])
    assert nodes.sort().values.tolist() == list(range(n))
    assert doubles(task) < 0.05 * n
    assert doubles(made(real, graph)) > 0.45 * SIZES[graph][0]


@pytest.mark.parametrize(
    ("graph", "majority", "linear"),
    [
        ("texas", (58.92, 4.32), (80.54, 6.49)),
        ("wisconsin", (48.04, 6.63), (82.35, 3.28)),
        ("cornell", (58.92, 3.15), (82.16, 6.86)),
        ("cornell_bingzhewei", (42.70, 5.51), (73.24, 5.47)),
    ],
)
def test_what_sees_no_link_scores_over_the_ten_splits(graph: str, majority, linear, real: Store) -> None:
    """Mean and population deviation in percent, as docs/papers/graphcon.md has them."""
    references = [made(real, graph, split).references() for split in range(10)]
    for name, want in (("majority class", majority), ("linear (features)", linear)):
        values = 100 * np.array([scores[name]["accuracy"] for scores in references])
        assert (values.mean(), values.std()) == pytest.approx(want, abs=0.6)


def test_an_experiment_of_one_change_changes_one_thing() -> None:
    """What starts from another experiment differs from it in the keys that its name speaks of."""
    changes = {
        "g2/film-g2_sage-sum": {"model.aggregate"},
        "g2/squirrel-g2_sage-p4": {"model.p"},
        "g2/chameleon-g2_sage-shared_gate": {"model.gate_coupling"},
        "g2/film-g2_sage-single_rate": {"model.single_rate"},
        "g2/texas-sage-usual-reversed": {"task.edges"},
        "g2/chameleon-gcnii_star-source": {"model.variant"},
        "g2/wisconsin-g2_gat-heads_mean": {"model.heads"},
        "graphcon/texas-graphcon_gcn-no_residual": {"model.residual"},
        "graphcon/texas-graphcon_gcn-default_init": {"net.init"},
        "graphcon/texas-graphcon_gcn-undirected": {"task.edges"},
        "graphcon/texas-graphcon_gcn-clean_loss": {"trainer.select.metric", "trainer.stop.metric"},
        "graphcon/texas-graphcon_gcn-patience": {"trainer.stop._target_"},
    }
    for name, keys in changes.items():
        base = name.replace("_star", "") if "_star" in name else name.rpartition("-")[0]
        a, b = (flat(compose([f"experiment={e}", "tracker=none"]).config) for e in (base, name))
        differ = {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}
        named = {key: {d for d in differ if f"{d}.".startswith(f"{key}.")} for key in keys}
        assert all(named.values()), name
        about = {d for d in differ if d.split(".")[0] in ("experiment", "provenance")}
        assert differ == about.union(*named.values()), name


def flat(config: dict, prefix: str = "") -> dict:
    """Leaves of a config by their dotted keys."""
    if not isinstance(config, dict):
        return {prefix.rstrip("."): config}
    return {k: v for key, value in config.items() for k, v in flat(value, f"{prefix}{key}.").items()}
