"""ZINC-12k: parts, inputs of both protocols, the error, and what is trivial."""

from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import with_data

from physml.config.build import build_net, parts_of
from physml.config.compose import compose
from physml.data.readers.zinc import ZINC, ZINC_SUBSTITUTE
from physml.data.store import Store
from tasks.zinc import Zinc


def loaded(store: Store, **changes: Any) -> Zinc:
    return with_data(Zinc(**({"molecules": "zinc", "protocol": "official"} | changes)), store)


@pytest.mark.parametrize("molecules", ["zinc", "zinc_substitute"])
def test_the_parts_are_those_of_the_set(store: Store, molecules: str) -> None:
    task = loaded(store, molecules=molecules)
    arrays = store.read({"zinc": ZINC, "zinc_substitute": ZINC_SUBSTITUTE}[molecules])
    assert list(task.sizes.values()) == arrays["n_graphs"].tolist()
    y = np.concatenate([next(task.batches(part, 1000)).target.numpy() for part in ("train", "valid", "test")])
    np.testing.assert_array_equal(y, arrays["y"])
    assert task.facts()["sizes"] == task.sizes and task.facts()["n_nodes"] == len(arrays["x"])


def test_an_atom_is_a_number_or_a_column_and_the_error_is_absolute(store: Store) -> None:
    official, paper = loaded(store), loaded(store, protocol="paper")
    assert (official.d_in, paper.d_in) == (1, 28)
    number = next(official.batches("valid", 3)).input
    column = next(paper.batches("valid", 3)).input
    assert number.shape == (len(column), 1) and number.max() > 1
    assert torch.equal(column.sum(1), torch.ones(len(column)))
    assert torch.equal(column.argmax(1), number[:, 0].long())
    task = loaded(store)
    (batch,) = task.batches("test", 1000)
    off = torch.linspace(-1, 3, len(batch.target))
    output, error = (batch.target + off)[:, None], pytest.approx(off.abs().mean().item(), rel=1e-5)
    assert task.loss(output, batch).item() == error
    assert task.finish(task.score(output, batch))["mae"] == error


@pytest.mark.parametrize("protocol", ["official", "paper"])
def test_the_trivial_references(store: Store, protocol: str) -> None:
    task = loaded(store, protocol=protocol)
    references = task.references()
    train, test = (next(task.batches(p, 1000)).target for p in ("train", "test"))
    for name in ("mean", "median"):
        error = (test - getattr(train, name)()).abs().mean().item()
        assert references[f"{name} of train"]["mae"] == pytest.approx(error, rel=1e-5)
    # the fixture's target is linear in the numbers of atoms
    assert references["linear (numbers of atoms)"]["mae"] < 1e-4


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
