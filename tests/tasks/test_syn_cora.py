"""Synthetic Cora: graphs, splits, homophily; on the real graphs where they are at hand."""

import numpy as np
import torch
from loaded_tasks import whole, with_data

from physml.data.readers import syn_cora
from physml.graph.measures import edge_homophily
from tasks.syn_cora import SynCora

PARTS = ("train", "valid", "test")
NEEDED = syn_cora.file_name(1.0, 3)


def loaded(store, homophily=0.3, split=0):
    return with_data(SynCora(homophily=homophily, protocol="official"), store, split)


def test_half_trains_a_quarter_validates_features_tell_the_class_and_homophily_is_of_the_links(store):
    task = loaded(store)
    assert task.sizes == {"train": 50, "valid": 25, "test": 25}
    assert torch.cat([whole(task, part).index for part in PARTS]).sort().values.tolist() == list(range(100))
    references = task.references()
    assert references["linear (features)"]["accuracy"] > references["majority class"]["accuracy"]
    batches = [whole(loaded(store, level)) for level in (0.0, 0.5, 1.0)]
    h = [edge_homophily(batch.edge_index, batch.target) for batch in batches]
    assert h[0] < 0.4 < h[1] < 0.8 < h[2]  # some links of the stand-in are there at every level


def test_the_real_parts_are_cut_from_the_recorded_order(real):
    order = np.random.RandomState(123_456).permutation(1490)
    task = loaded(real, 0.99, 2)
    assert whole(task).input.shape == (1490, 1433) and task.d_out == 5
    assert task.sizes == {"train": 745, "valid": 372, "test": 373}
    assert whole(task, "train").index.tolist() == sorted(order[:745].tolist())
    assert whole(task, "test").index.tolist() == sorted(order[1117:].tolist())
