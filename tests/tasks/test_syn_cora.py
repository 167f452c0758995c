"""Synthetic Cora: graphs, splits, homophily; on the real graphs where they are at hand."""

import numpy as np
import pytest
import torch

from physml.data import graphs
from physml.data.readers import syn_cora
from physml.graph.measures import edge_homophily
from tasks.syn_cora import SynCora

PARTS = ("train", "valid", "test")
NEEDED = syn_cora.file_name(1.0, 3)


def loaded(store, homophily=0.3, split=0):
    task = SynCora(homophily=homophily, protocol="official")
    task.load(store, split)
    return task


def batch_of(task, part="test"):
    return next(task.batches(part, 1))


def test_half_trains_a_quarter_validates(store):
    task = loaded(store)
    assert task.sizes == {"train": 50, "valid": 25, "test": 25}
    nodes = torch.cat([batch_of(task, part).index for part in PARTS])
    assert nodes.sort().values.tolist() == list(range(100))


def test_homophily_is_that_of_the_links(store):
    h = []
    for level in (0.0, 0.5, 1.0):
        batch = batch_of(loaded(store, level))
        h.append(edge_homophily(batch.edge_index, batch.target))
    assert h[0] < 0.4 < h[1] < 0.8 < h[2]  # some links of the stand-in are there at every level


def test_linear_reference_beats_the_majority(store):
    references = loaded(store).references()
    assert references["linear (features)"]["accuracy"] > references["majority class"]["accuracy"]


def test_the_real_graphs_have_about_the_homophily_of_their_name(real):
    arrays = real.read(syn_cora.SYN_CORA)
    for number, level in enumerate(arrays["homophily"]):
        graph = graphs.one(arrays, number)
        edge_index, y = torch.from_numpy(graph["edge_index"]), torch.from_numpy(graph["y"])
        assert edge_homophily(edge_index, y) == pytest.approx(level, abs=0.03)


def test_real_sizes(real):
    task = loaded(real, 0.99, 2)
    assert batch_of(task).input.shape == (1490, 1433) and task.d_out == 5
    assert task.sizes == {"train": 745, "valid": 372, "test": 373}


def test_the_real_parts_are_cut_from_the_recorded_order(real):
    order = np.random.RandomState(123_456).permutation(1490)
    task = loaded(real)
    assert batch_of(task, "train").index.tolist() == sorted(order[:745].tolist())
    assert batch_of(task, "test").index.tolist() == sorted(order[1117:].tolist())
