"""ZINC-12k: parts, inputs of both protocols, the error, and what is trivial."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from physml.config.build import build_net, parts_of
from physml.config.compose import compose
from physml.data.readers.zinc import ZINC, ZINC_SUBSTITUTE
from physml.data.store import Store
from physml.run.record import count_parameters
from physml.task.trivial import score_reference
from tasks.zinc import Zinc


def loaded(store: Store, **changes: Any) -> Zinc:
    task = Zinc(**({"molecules": "zinc", "protocol": "official"} | changes))
    task.load(store, 0)
    return task


@pytest.mark.parametrize("molecules", ["zinc", "zinc_substitute"])
def test_the_parts_are_those_of_the_set(store: Store, molecules: str) -> None:
    task = loaded(store, molecules=molecules)
    arrays = store.read({"zinc": ZINC, "zinc_substitute": ZINC_SUBSTITUTE}[molecules])
    assert list(task.sizes.values()) == arrays["n_graphs"].tolist()
    y = np.concatenate([next(task.batches(part, 1000)).target.numpy() for part in ("train", "valid", "test")])
    np.testing.assert_array_equal(y, arrays["y"])
    assert task.facts()["sizes"] == task.sizes and task.facts()["n_nodes"] == len(arrays["x"])


def test_an_atom_is_a_number_or_a_column(store: Store) -> None:
    official, paper = loaded(store), loaded(store, protocol="paper")
    assert (official.d_in, paper.d_in) == (1, 28)
    number = next(official.batches("valid", 3)).input
    column = next(paper.batches("valid", 3)).input
    assert number.shape == (len(column), 1) and number.max() > 1
    assert torch.equal(column.sum(1), torch.ones(len(column)))
    assert torch.equal(column.argmax(1), number[:, 0].long())


def test_the_error_is_absolute_and_does_not_depend_on_the_batch_size(store: Store) -> None:
    task = loaded(store)
    (batch,) = task.batches("test", 1000)
    off = torch.linspace(-1, 3, len(batch.target))
    output = (batch.target + off)[:, None]
    assert task.loss(output, batch).item() == pytest.approx(off.abs().mean().item(), rel=1e-5)

    def answer(b: Any) -> torch.Tensor:
        return (b.target + off[b.index])[:, None]

    for size in (1, 3, 1000):
        assert score_reference(task, answer, size=size)["mae"] == pytest.approx(
            off.abs().mean().item(), rel=1e-5
        )
    assert math.isnan(score_reference(task, lambda b: answer(b) * float("nan"))["mae"])


@pytest.mark.parametrize("protocol", ["official", "paper"])
def test_the_trivial_references(store: Store, protocol: str) -> None:
    task = loaded(store, protocol=protocol)
    references = task.references()
    train, test = (next(task.batches(p, 1000)).target for p in ("train", "test"))
    assert references["mean of train"]["mae"] == pytest.approx(
        (test - train.mean()).abs().mean().item(), rel=1e-5
    )
    median = (test - train.median()).abs().mean().item()
    assert references["median of train"]["mae"] == pytest.approx(median, rel=1e-5)
    # the fixture's target is linear in the numbers of atoms
    assert references["linear (numbers of atoms)"]["mae"] < 1e-4


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("zinc-graphcon_gcn", 97_901),  # as the official code counts them
        ("zinc-graphcon_gcn-kinds", 99_301),
        ("zinc-graphcon_gat", 98_891),
        ("zinc-gcn", 97_186),
        ("zinc-gat", 96_293),
        ("zinc-gcn_shared-20", 99_222),
    ],
)
def test_experiments_have_about_100_000_parameters(store: Store, name: str, n: int) -> None:
    config = compose([f"experiment=graphcon/{name}"]).config
    task = loaded(store, protocol=config["task"]["protocol"])
    assert count_parameters(build_net(parts_of(config), task)) == n


def test_one_shared_layer_is_a_plain_network(store: Store) -> None:
    """The baseline of Table 7: GraphCON with dt = alpha = gamma = 1 repeats one graph convolution."""
    config = compose(["experiment=graphcon/zinc-gcn_shared-5", "net.hidden=7"]).config
    task = loaded(store)
    torch.manual_seed(0)
    net: Any = build_net(parts_of(config), task)
    batch: Any = next(task.batches("train", 5))
    coupling = net.stack.forces[0].coupling
    x = net.encoder(batch.input)
    for _ in range(5):
        x = torch.relu(coupling(x, batch.edge_index))
    total = torch.zeros(5, 1).index_add(0, batch.batch, net.decoder(x))
    output = net(batch.input, batch.edge_index, batch=batch.batch)
    torch.testing.assert_close(output, total, rtol=1e-4, atol=1e-5 * total.abs().max().item())
