"""Batches of many graphs: what is in them, and that a network answers as for the graphs one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from refusals import refuses
from torch import Generator, nn

from physml.base.errors import DataError, InputError
from physml.config.compose import compose
from physml.data import graphs
from physml.data.datasets import Arrays
from physml.data.readers.zinc import ZINC
from physml.data.store import Store
from physml.models.graph.g2 import GradientGating
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution, MeanConvolution
from physml.models.graph.graph_net import GraphNet
from physml.models.graph.graphcon import GraphCON
from physml.task.base import Part
from physml.task.graphs import ManyGraphs, Runs, parts_in_order
from physml.training.evaluate import apply
from tasks.zinc import Zinc

PARTS: tuple[Part, ...] = ("train", "valid", "test")


def zinc() -> Zinc:
    return Zinc(molecules="zinc", protocol="official")


@pytest.fixture(scope="module")
def task(store: Store) -> Zinc:
    return with_data(zinc(), store)


def placed(
    store: Store, n_graphs: tuple[int, int, int] = (1, 1, 1), parts: Any = None, **changes: Any
) -> ManyGraphs:
    """Three graphs of 2, 3 and 1 nodes; the last has no edge, the second a loop and an edge twice."""
    arrays = {
        "edge_index": np.array([[0, 1, 0, 2, 2, 1], [1, 0, 1, 2, 0, 2]], np.uint8),
        "node_offsets": np.array([0, 2, 5, 6]),
        "edge_offsets": np.array([0, 2, 6, 6]),
        **changes,
    }
    task, x = zinc(), np.arange(6, dtype=np.float32)[:, None]
    parts = parts or parts_in_order(np.array(n_graphs))
    task.place(x, arrays, np.array([0.1, 0.2, 0.3], np.float32), parts, store)
    return task


def test_a_batch_is_its_graphs_side_by_side(store: Store) -> None:
    batch = placed(store).joined(torch.tensor([2, 1, 0]))
    assert batch.input[:, 0].tolist() == [5, 2, 3, 4, 0, 1]
    assert batch.batch is not None and batch.batch.tolist() == [0, 1, 1, 1, 2, 2]
    assert batch.edge_index is not None and batch.edge_index.dtype == torch.int64
    assert batch.edge_index.tolist() == [[1, 3, 3, 2, 4, 5], [2, 3, 1, 3, 5, 4]]
    assert batch.target.tolist() == pytest.approx([0.3, 0.2, 0.1])
    # a narrow type of stored edges does not overflow
    n, task = 300, zinc()
    many: Arrays = {
        "edge_index": np.tile(np.array([[0], [1]], np.uint8), n),
        "node_offsets": 2 * np.arange(n + 1),
        "edge_offsets": np.arange(n + 1),
    }
    x, y = np.zeros((2 * n, 1), np.float32), np.zeros(n, np.float32)
    task.place(x, many, y, {"train": np.arange(n), "test": np.arange(n)}, store)
    batch = task.joined(torch.arange(n))
    assert batch.edge_index is not None
    assert batch.edge_index[0].tolist() == list(range(0, 2 * n, 2))


def test_what_is_not_there_is_named(store: Store) -> None:
    x, y = np.zeros((2, 1), np.float32), np.zeros(1, np.float32)
    says = "arrays must have edge_offsets; got edge_index, node_offsets"
    arrays = {"edge_index": np.zeros((2, 0), int), "node_offsets": np.array([0, 2])}
    refuses(InputError, says, zinc().place, x, arrays, y, {}, store)


def test_parts_may_be_masks_and_graphs_in_two_parts_are_noted(store: Store) -> None:
    task = placed(store, parts={"train": np.array([True, False, True]), "test": np.array([1, 2])})
    assert task.sizes == {"train": 2, "test": 2}
    assert [b.target.tolist() for b in task.batches("train", 5)] == [pytest.approx([0.1, 0.3])]
    assert task.facts()["notes"] == ["1 of 2 graphs of test stand in train or valid too"]
    with pytest.raises(DataError, match=r"part train: a mask must have shape \(3,\); got \(2,\)"):
        placed(store, parts={"train": np.array([True, False]), "test": np.array([1])})


@pytest.mark.parametrize("size", [3, 1000])
def test_every_graph_is_in_one_batch_as_stored(task: Zinc, store: Store, size: int) -> None:
    arrays = store.read(ZINC)
    first = 0
    for part in PARTS:
        seen = []
        for batch in task.batches(part, size, Generator().manual_seed(0)):
            assert batch.index is not None and batch.batch is not None and batch.edge_index is not None
            for k, position in enumerate(batch.index.tolist()):
                graph = graphs.one(arrays, first + position)
                nodes = (batch.batch == k).nonzero().squeeze(1)
                assert batch.input[nodes, 0].tolist() == graph["x"][:, 0].tolist()
                own = batch.edge_index[:, torch.isin(batch.edge_index[0], nodes)] - nodes[0]
                assert own.tolist() == graph["edge_index"].tolist()
                assert batch.target[k].item() == graph["y"]
                seen.append(position)
        assert (sorted(seen) if part == "train" else seen) == list(range(task.sizes[part]))
        first += task.sizes[part]


def graphcon(layer: nn.Module, **keys: Any) -> GraphCON:
    return GraphCON(layer, 3, dt=1.0, gamma=1.1, alpha=0.2, **keys)


STACKS = {
    "graphcon": lambda h: graphcon(GraphConvolution(h, h), activation="relu", residual="official-v2"),
    "graphcon-gat": lambda h: graphcon(GraphAttention(h, h, n_heads=2), activation="elu", heads="official"),
    "g2": lambda h: GradientGating(MeanConvolution(h, h), 3, p=2.0, activation="relu", aggregate="sum"),
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
def test_a_network_answers_as_for_the_graphs_one_by_one(task: Zinc, stack: str, pool: Any) -> None:
    torch.manual_seed(0)
    net = GraphNet(STACKS[stack], 1, 1, "graph", hidden=8, pool=pool).double()
    batch: Any = whole(task)
    assert batch.index.tolist() == list(range(24)), "shuffled by a generator alone"

    def answers(size: int) -> torch.Tensor:
        doubles = (replace(b, input=b.input.double()) for b in task.batches("train", size))
        return torch.cat([apply(net, b)[0] for b in doubles])

    for size in (1, 7):
        torch.testing.assert_close(answers(1000), answers(size), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_graphs": (3, 0, 0)}, "part valid: there are no graphs"),
        ({"node_offsets": np.array([0, 2, 2, 6])}, "graph 1 has no node"),
        ({"node_offsets": np.array([0, 2, 5, 7])}, "7 nodes need 1 features each; got \\(6, 1\\)"),
        ({"edge_offsets": np.array([0, 2, 5, 5])}, "edge_offsets must cut 6 edges into 3 graphs"),
        ({"edge_index": np.array([[0, 1, 2, 4, 4, 3], [1, 0, 3, 4, 2, 4]])}, "names node 4, .* from 0 on"),
        ({"edge_index": np.array([[0, 1, 0, 2, 2, 1], [1, -1, 1, 2, 0, 2]])}, "names node -1"),
        ({"parts": {"train": np.array([0]), "test": np.array([3])}}, "part test: graph 3 is none of 3"),
        ({f"{of}_offsets": np.array([0, 2, 6]) for of in ("node", "edge")}, "expected 2 targets, .*; got 3"),
    ],
)
def test_what_cannot_be_right_is_told(store: Store, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        placed(store, **changes)


def test_parts_in_order_rows_of_graphs_without_rows_and_the_net_of_graphs() -> None:
    parts = {part: graphs.tolist() for part, graphs in parts_in_order(np.array([2, 0, 3])).items()}
    assert parts == {"train": [0, 1], "valid": [], "test": [2, 3, 4]}
    runs = Runs(np.array([0, 0, 3, 3]))
    assert runs.rows(torch.tensor([0, 2])).tolist() == []
    assert runs.rows(torch.tensor([1, 0, 1])).tolist() == [0, 1, 2, 0, 1, 2]
    assert compose(["model=graphcon_gcn", "task=zinc"]).config["net"]["pool"] == "sum"
