"""Tasks on the nodes of one graph: the batch, the parts, losses, scores and trivial references."""

from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from torch.nn import functional as F

from physml.base.errors import PhysmlError
from physml.data.store import Store
from physml.task.nodes import RIDGE, NodeClasses

N, D, C = 40, 6, 3
PARTS = ("train", "valid", "test")


class Small(NodeClasses):
    """A graph in memory: 40 nodes, of which the first five are of no part."""

    version = 1
    n_classes = d_out = C
    protocol = "clean"
    datasets = ()

    def __init__(self, **change: Any) -> None:
        rng = np.random.default_rng(0)
        self.arrays: dict[str, Any] = {
            "x": rng.normal(size=(N, D)).astype(np.float32),
            "edge_index": rng.integers(N, size=(2, 90)),
            "y": rng.integers(C, size=N),
            "split": {"train": np.arange(5, 25), "valid": np.arange(25, 32), "test": np.arange(32, 40)},
        } | change

    def data_facts(self, store: Store) -> dict[str, Any]:
        return {"version": 1, "sizes": self.sizes}

    def load(self, store: Store, split: int) -> None:
        a = self.arrays
        self.place(a["x"], a["edge_index"], a["y"], a["split"], store)


def loaded(store: Store, **change: Any) -> Small:
    return with_data(Small(**change), store)


def test_a_batch_is_the_whole_graph_and_the_nodes_of_its_part_on_any_device(store: Store) -> None:
    task = loaded(store)
    assert task.steps_per_epoch(1) == task.steps_per_epoch(1000) == 1
    assert (task.d_in, task.sizes) == (D, {"train": 20, "valid": 7, "test": 8})
    assert {k: task.facts()[k] for k in ("n_nodes", "n_edges")} == {"n_nodes": N, "n_edges": 90}
    for part, nodes in task.arrays["split"].items():
        batch = whole(task, part)
        assert batch.input.shape == (N, D) and batch.target.shape == (N,)
        assert torch.equal(batch.edge_index, torch.from_numpy(task.arrays["edge_index"]))
        assert torch.equal(batch.index, torch.from_numpy(nodes))
    task.to("meta")
    batch = whole(task, "train")
    moved = (batch.input, batch.target, batch.index, batch.edge_index)
    assert {t.device.type for t in moved if t is not None} == {"meta"}


def test_a_graph_may_lack_validation_nodes_and_the_linear_reference_is_ridge_regression(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = {"train": np.arange(5, 25), "test": np.arange(25, 40)}
    task = loaded(store, split=split)
    assert list(task.batches("valid", 1)) == [] and task.finish({}) == {}
    assert task.train_step_metrics(torch.zeros(N, C), whole(task, "train")) == {}
    assert set(task.references()) == {"majority class", "linear (features)"}
    task = loaded(store)
    x, nodes = task.arrays["x"].astype(np.float64), task.arrays["split"]["train"]
    target = np.stack([np.sin(np.arange(N)), np.arange(N) % 2], 1)
    center, mean = x[nodes].mean(0), target[nodes].mean(0)
    a = x[nodes] - center
    weight = np.linalg.inv(a.T @ a + RIDGE * np.eye(D)) @ a.T @ (target[nodes] - mean)
    want = (x - center) @ weight + mean
    assert np.allclose(task.ridge(torch.from_numpy(target)).numpy(), want, rtol=1e-9, atol=1e-12)
    # of many nodes, whose kernel no memory could hold, by D x D equations in blocks
    for name, n in {"KERNEL": 0, "ROWS": 3}.items():
        monkeypatch.setattr(f"physml.task.nodes.{name}", n)
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "diagonal", lambda _: pytest.fail("a kernel"))
        assert np.allclose(task.ridge(torch.from_numpy(target)).numpy(), want, rtol=1e-9, atol=1e-12)


def test_the_nodes_of_a_part_alone_move_its_loss_and_metrics_are_of_all_of_them(store: Store) -> None:
    task, output = loaded(store), torch.randn(N, C)
    batch = whole(task, "valid")
    other = output.clone()
    other[:25], other[32:] = 9.0, -9.0
    assert task.loss(output, batch) == task.loss(other, batch)
    assert task.score(output, batch) == task.score(other, batch)
    other[25:32] = torch.randn(7, C)
    assert task.score(output, batch) != task.score(other, batch)
    nodes = torch.arange(32, 40)
    y = torch.from_numpy(task.arrays["y"])
    metrics = task.finish(task.score(output, whole(task, "test")))
    assert metrics["accuracy"] == (output[nodes].argmax(1) == y[nodes]).double().mean().item()
    nats = F.cross_entropy(output[nodes], y[nodes]).item()
    assert metrics["cross_entropy"] == pytest.approx(nats, rel=1e-6)
    # the output of a training step tells the noisy loss of valid
    (name,) = metrics = task.train_step_metrics(output, whole(task, "train"))
    assert task.better[name] == "lower"
    clean = task.finish(task.score(output, whole(task, "valid")))["cross_entropy"]
    assert metrics[name] == pytest.approx(clean, rel=1e-6)  # the same outputs give the same number


def test_references_see_no_label_of_test(store: Store) -> None:
    y = Small().arrays["y"].copy()
    y[5:25], y[5] = 1, 0
    y[25:] = np.arange(15) % 2
    references = loaded(store, y=y).references()
    assert references["majority class"]["accuracy"] == np.mean(y[32:] == 1)
    prior = np.array([2 + 4 / 7, 20 + 3 / 7, 1]) / 24  # 4 and 3 of 7 in valid
    assert references["majority class"]["cross_entropy"] == pytest.approx(-np.log(prior[y[32:]]).mean())
    y[5:25], y[25:32] = np.arange(20) % 2, 1  # train has equally many
    assert loaded(store, y=y).references()["majority class"]["accuracy"] == np.mean(y[32:] == 1)
    y[5:25], y[5] = 1, 0
    y[25:] = np.arange(15) % 2
    y[:5] = -1  # a node of no part may have no label
    task = loaded(store, y=y)
    assert task.loss(torch.zeros(N, C), whole(task, "train")).item() == pytest.approx(np.log(C))
    assert task.references() == references and set(references) == {"majority class", "linear (features)"}
    separable = np.eye(C, dtype=np.float32)[Small().arrays["y"]] * 9
    assert loaded(store, x=separable).references()["linear (features)"]["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": np.zeros((N - 1, D), np.float32)}, rf"{N} nodes need features \({N}, D\); got \({N - 1},"),
        ({"x": np.zeros(N, np.float32)}, rf"{N} nodes need features"),
        (
            {"x": np.where(np.arange(N)[:, None] == 7, np.nan, np.ones((N, D)))},
            "node 7 has features that are",
        ),
        ({"x": np.full((N, D), 1e300)}, "node 0 has features that are NaN or infinite"),
        ({"split": {part: np.arange(3 * (part != "valid")) for part in PARTS}}, "part valid"),
        ({"y": np.full(N, C)}, f"part train: labels must be whole numbers from 0 to {C - 1}; got {C} to {C}"),
        ({"y": np.full(N, -1)}, "part train: labels must be"),
        ({"y": np.full(N, "a")}, "arrays must hold real numbers; got <U1"),
        ({"split": dict.fromkeys(PARTS, np.array([N]))}, f"part train: node {N} is none of {N}"),
        ({"split": dict.fromkeys(PARTS, np.array([0, -2]))}, f"part train: node -2 is none of {N}"),
        ({"split": {"train": np.arange(9)}}, "there is no part test; got train"),
        ({"split": dict.fromkeys(("train", "val"), np.arange(9))}, "got 'val'. Did you mean valid"),
    ],
)
def test_what_cannot_be_right_is_refused(store: Store, change: dict[str, Any], says: str) -> None:
    with pytest.raises(PhysmlError, match=says):
        loaded(store, **change)


def test_tensors_masks_and_other_types_give_the_same_and_nodes_in_two_parts_are_noted(store: Store) -> None:
    arrays, task = Small().arrays, loaded(store)
    masks = {part: np.isin(np.arange(N), nodes) for part, nodes in arrays["split"].items()}
    change = {"split": masks, "x": arrays["x"].astype(float), "y": arrays["y"].astype(np.int32)}
    change["edge_index"] = torch.from_numpy(arrays["edge_index"]).int()
    tensors = {name: torch.as_tensor(a) for name, a in change.items() if name != "split"}
    for other in (loaded(store, **change), loaded(store, **tensors)):
        for part in PARTS:
            for a, b in zip(vars(whole(task, part)).values(), vars(whole(other, part)).values(), strict=True):
                assert a is b or (a.dtype == b.dtype and torch.equal(a, b))
    split = arrays["split"] | {"test": np.arange(30, 40)}
    assert "notes" not in task.facts() and loaded(store, split=split).facts()["notes"] == [
        "2 of 10 nodes of test stand in train or valid too"
    ]
