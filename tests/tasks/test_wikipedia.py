"""Traffic of Wikipedia pages: alignment, metrics, references; on the real data where they are at hand."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from refusals import refuses

from physml.base.errors import DataError
from physml.config import build
from physml.config.compose import compose
from physml.config.schema import checked
from physml.data import graphs
from physml.data.readers import musae, webkb
from physml.data.store import Store
from physml.task.trivial import score_reference
from physml.training.trainer import apply
from tasks.wikipedia import SETS, Wikipedia

NEEDED = musae.file_name("squirrel", "edges")
N = {"chameleon": 2277, "squirrel": 5201}


def loaded(store, graph="chameleon", protocol="official", split=0):
    return with_data(Wikipedia(graph=graph, protocol=protocol), store, split)


def test_the_official_graph_has_the_links_of_the_clean_one_under_other_numbers(store):
    """Node k of the official graph is the k-th page that the list of links names."""
    official, clean = (whole(loaded(store, protocol=p)) for p in ("official", "clean"))
    assert torch.equal(official.input, clean.input) and torch.equal(official.target, clean.target)
    assert not torch.equal(official.edge_index, clean.edge_index)
    met = list(dict.fromkeys(store.read(musae.CHAMELEON)["edge_index"].T.reshape(-1).tolist()))
    translated = torch.tensor(met)[official.edge_index]
    assert set(zip(*translated.tolist(), strict=True)) == set(zip(*clean.edge_index.tolist(), strict=True))


def test_metrics_and_references_are_those_of_plain_numpy(store):
    task = loaded(store)
    batch = whole(task, "test")
    assert batch.target.max() == 1 and batch.target.min() >= 0
    said = torch.linspace(0, 1, 60)[:, None]
    y, nodes = batch.target.numpy().astype(float), batch.index.numpy()
    mse = np.mean((said.numpy()[nodes, 0].astype(float) - y[nodes]) ** 2)
    metrics = task.finish(task.score(said, batch))
    expected = {"mse": mse, "nmse": mse / y.mean(), "nmse_variance": mse / y[nodes].var()}
    assert metrics == pytest.approx(expected, rel=1e-9)
    assert task.loss(said, batch).item() == pytest.approx(mse, rel=1e-5)
    # the constant is fitted on train, and the mean of a part has a variance score of 1
    train, test = whole(task, "train"), whole(task, "test")
    traffic, mean = test.target[test.index].double(), train.target[train.index].double().mean()
    constant = (traffic - mean).square().mean().item()
    assert task.references()["constant"]["mse"] == pytest.approx(constant, rel=1e-9)
    assert set(task.references()) == {"constant", "linear (features)"}
    own = score_reference(task, lambda b: traffic.mean().expand(60, 1))
    assert own["nmse_variance"] == pytest.approx(1, rel=1e-9)


def changed(monkeypatch, dataset, **arrays):
    """From here on, one data set has other arrays."""
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda s, d: {**read(s, d), **(arrays if d is dataset else {})})


def test_splits_of_another_graph_and_a_part_of_equal_values_are_refused(store, monkeypatch):
    y = np.zeros(60, np.int64)
    nodes = graphs.fixed_split(store.read(webkb.CHAMELEON), 0)["train"]
    y[nodes] = np.arange(1, 1 + len(nodes))
    with monkeypatch.context() as patched:
        changed(patched, musae.CHAMELEON, y=y)
        refuses(DataError, "part valid: all nodes have the same value", loaded, store)
    task = loaded(store)
    for values in ([-1.0, 1.0], [-2.0, 1.0], [1.0, np.inf]):  # a score is divided by their mean
        task._y = torch.tensor(values)
        refuses(DataError, "values must be finite, with a mean above 0", task.check_targets)
    changed(monkeypatch, webkb.CHAMELEON, y=np.zeros(59, np.int64))
    refuses(DataError, r"60 pages of MUSAE.* for 59.*physml data get musae_chameleon", loaded, store)


# ---------------------------------------------------------------------------- the real pages


@pytest.mark.parametrize(
    ("graph", "n_words", "n_edges", "sizes", "kept"),
    [("chameleon", 3132, 62_792, (1092, 729, 456), 0), ("squirrel", 3148, 396_846, (2496, 1664, 1041), 2)],
)
def test_sizes_are_as_published_and_the_splits_of_the_same_pages(real, graph, n_words, n_edges, sizes, kept):
    """Both sets of files have the same links, and geom-gcn's classes are intervals of this traffic.

    kept: pages that keep their number in the official graph.
    """
    for protocol in ("official", "clean"):
        task = loaded(real, graph, protocol)
        assert whole(task).input.shape == (N[graph], n_words)
        assert whole(task).edge_index.shape[1] == n_edges
        assert tuple(task.sizes[part] for part in ("train", "valid", "test")) == sizes
    pages, classes = (real.read(dataset) for dataset in SETS[graph])
    assert (graphs.met_order(pages["edge_index"]) == np.arange(N[graph])).sum() == kept
    a, b = (graphs.undirected(arrays["edge_index"]) for arrays in (pages, classes))
    assert np.array_equal(a, b)
    ends = [pages["y"][classes["y"] == c] for c in range(5)]
    assert all(lower.max() < upper.min() for lower, upper in pairwise(ends))


@pytest.mark.parametrize(
    ("graph", "level", "mean", "sd", "dead"),
    [("chameleon", 0.218, 0.207, 0.038, 0.235), ("squirrel", 0.156, 0.143, 0.039, 0.174)],
)
def test_a_constant_scores_what_is_printed_for_gat(real, graph, level, mean, sd, dead):
    """Mean and population sd over the 10 splits: the row GAT of Table 1, to the last digit. dead: zeros."""
    task = loaded(real, graph)
    batch = whole(task, "test")
    y = batch.target.double()
    assert (y.var(unbiased=False) / y.mean()).item() == pytest.approx(level, abs=5e-4)
    splits = real.read(SETS[graph][1])
    constant, zero = [], []
    for k in range(10):
        nodes = {part: torch.from_numpy(ids) for part, ids in graphs.fixed_split(splits, k).items()}
        tested = dataclasses.replace(batch, index=nodes["test"])
        for scores, value in ((constant, y[nodes["train"]].mean()), (zero, torch.zeros(()))):
            scores.append(task.finish(task.score(value.expand(len(y), 1), tested))["nmse"])
    assert np.mean(constant) == pytest.approx(mean, abs=5e-4)
    assert np.std(constant) == pytest.approx(sd, abs=5e-4)
    assert np.mean(zero) == pytest.approx(dead, abs=5e-4)


@pytest.mark.parametrize(("graph", "share"), [("chameleon", 0.465), ("squirrel", 0.409)])
def test_many_pages_that_test_have_a_twin_in_train(real, graph, share):
    """A twin: the same links and the same traffic, on split 0."""
    task = loaded(real, graph, "clean")
    train, test = whole(task, "train"), whole(task, "test")
    linked = [[] for _ in range(N[graph])]
    for a, b in test.edge_index.T.tolist():
        linked[a].append(b)
    kinds = [(tuple(sorted(linked[i])), y) for i, y in enumerate(test.target.tolist())]
    seen = {kinds[i] for i in train.index.tolist()}
    assert np.mean([kinds[i] in seen for i in test.index.tolist()]) == pytest.approx(share, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["g2_gcn", "g2_gat"])
def test_training_shuts_the_gates_of_g2_on_traffic(real, name):
    """With the settings of Table g2-1 all rates end near 0: no message passes, what is left is an MLP."""
    config, parts = checked(compose([f"experiment=g2/chameleon_regression-{name}", "tracker=none"]).config)
    task = with_data(parts.task.make(), real)
    torch.manual_seed(0)
    net, batch = build.build_net(parts, task), whole(task, "train")

    def largest():
        with torch.no_grad():
            steps = net.stack.steps(net.encode(batch.input), batch.edge_index)
            return max(rate.max().item() for _, rate in steps)

    optimizer, before = build.build_optimizer(parts, net), largest()
    for _ in range(config["trainer"]["epochs"]):
        optimizer.zero_grad()
        task.loss(apply(net, batch, None)[0], batch).backward()
        optimizer.step()
    assert largest() < 1e-6 < 1e-3 < before
