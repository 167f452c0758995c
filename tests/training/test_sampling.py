"""Training on clusters of one graph: what a step sees, what an epoch goes through, and what is refused."""

import dataclasses
from typing import Any, ClassVar

import pytest
import run_harness as h
import torch
from refusals import refuses
from torch import Tensor

from physml.base.errors import ConfigError
from physml.config.identity import identity, payload
from physml.models.graph.graph_layers import GraphConvolution
from physml.task.batch import Batch
from physml.training.sampling import ClusterBatches, Clusters, neighbours_near

N, E = 60, 240
SAMPLE = "trainer.sample={_target_: physml.training.sampling.Clusters, n_parts: %d, per_batch: %d}"


class Whole:
    """A task with one random graph, of which every third node is of train."""

    readout = "node"
    in_rows: ClassVar[dict[str, str]] = {"cross_entropy": "lower", "noisy_cross_entropy": "lower"}

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self.batch = Batch(
            input=torch.randn(N, 3, generator=g, dtype=torch.double),
            target=torch.arange(N),
            index=torch.arange(0, N, 3),
            edge_index=torch.randint(0, N, (2, E), generator=g),
            edge_weight=torch.arange(E, dtype=torch.double),
        )

    def batches(self, part: str, size: int, rng: object = None) -> list[Batch]:
        return [self.batch]


def over(n_parts: int, per_batch: int) -> ClusterBatches:
    return Clusters(n_parts, per_batch).over(Whole())  # type: ignore[arg-type]


def epoch(batches: ClusterBatches, seed: int = 0) -> list[Batch]:
    return list(batches.batches("train", 1, torch.Generator().manual_seed(seed)))


def test_a_step_sees_the_graph_of_its_clusters_and_nothing_else() -> None:
    whole = Whole().batch
    for batch in epoch(over(6, 2)):
        nodes = batch.target.tolist()  # targets are the numbers of the nodes
        assert torch.equal(batch.input, whole.input[nodes])
        assert sorted(batch.target[batch.index].tolist()) == [i for i in sorted(nodes) if i % 3 == 0]
        edges = sorted(zip(*batch.target[batch.edge_index].tolist(), batch.edge_weight.tolist(), strict=True))
        every = zip(*whole.edge_index.tolist(), whole.edge_weight.tolist(), strict=True)
        assert edges == sorted(edge for edge in every if edge[0] in nodes and edge[1] in nodes) and edges


@pytest.mark.parametrize(("n_parts", "per_batch"), [(1, 1), (6, 2), (7, 3), (20, 1)])
def test_an_epoch_goes_through_all_nodes_once(n_parts: int, per_batch: int) -> None:
    batches = over(n_parts, per_batch)
    steps = epoch(batches)
    assert len(steps) == batches.steps_per_epoch(1)
    assert sorted(torch.cat([batch.target for batch in steps]).tolist()) == list(range(N))
    n_train = [len(batch.index) for batch in steps]
    assert min(n_train) >= 1 and sum(n_train) == N // 3
    if per_batch == 1:
        assert max(n_train) - min(n_train) <= 1  # equally many


def test_the_generator_alone_decides_and_neighbours_stand_near_each_other() -> None:
    def targets(seed: int) -> list[list[int]]:
        return [batch.target.tolist() for batch in epoch(over(6, 2), seed)]

    assert targets(1) == targets(1) != targets(2)
    whole, (part,) = Whole().batch, epoch(over(1, 1))
    layer = GraphConvolution(3, 2).double()

    def output(batch: Batch) -> Tensor:
        return layer(batch.input, batch.edge_index, batch.edge_weight)

    torch.testing.assert_close(output(part), output(whole)[part.target], rtol=1e-12, atol=1e-12)
    # A path whose nodes are numbered at random comes out as a path.
    number = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    path = torch.stack([number[:-1], number[1:]]).numpy()
    place = torch.empty(50, dtype=torch.long)
    place[torch.from_numpy(neighbours_near(path, 50))] = torch.arange(50)
    assert torch.equal((place[number[:-1]] - place[number[1:]]).abs(), torch.ones(49, dtype=torch.long))


def texas(*overrides: str) -> list[str]:
    return h.texas("trainer.epochs=3", *overrides)


def test_a_run_in_clusters_has_an_identity_of_its_own() -> None:
    plain, sampled = h.spec_of(texas()), h.spec_of(texas(SAMPLE % (4, 2)))
    assert "sample" not in payload(plain.config)["trainer"]
    assert identity(plain.config) != identity(sampled.config)
    record = h.make(sampled)
    assert record["status"] == "finished"
    assert [row["step"] for row in h.curve(sampled)] == ["2", "4", "6"]  # two steps an epoch
    assert h.numbers(h.make(sampled, force=True)) == h.numbers(record)


def test_clusters_refuse_what_they_cannot_cut() -> None:
    adding = ["model=lem", "task=adding", "profile=smoke", SAMPLE % (4, 2)]
    noisy = texas(SAMPLE % (4, 2), "+trainer.select.metric=noisy_cross_entropy")
    for says, overrides in (
        ("takes parts of one graph with targets at its nodes; Adding", adding),
        ("per_batch=5 is more than n_parts=4", texas(SAMPLE % (4, 5))),
        ("no metric noisy_cross_entropy", noisy),
    ):
        refuses(ConfigError, says, h.spec_of, overrides)
    with pytest.raises(ConfigError, match=r"10000 clusters need a training node each; .* has"):
        h.make(h.spec_of(texas(SAMPLE % (10000, 1))))
    task: Any = Whole()
    task.batch = dataclasses.replace(task.batch, mask=torch.ones(N))
    refuses(ConfigError, "batches of another kind with mask", Clusters(2).over(task).joined, [0])
