"""Training on parts of one large graph. Axes: N nodes, E edges."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from physml.base.check import count
from physml.base.errors import ConfigError
from physml.task.base import Metrics, Part, Task
from physml.task.batch import Batch


class Clusters:
    r"""Each training step sees a few clusters of the graph, with all edges between their nodes.

    The nodes are cut once into `n_parts` clusters of equally many training nodes. Each epoch goes through all
    clusters in an order of its own, `per_batch` at a time. Edges to other clusters are missing in that step,
    also in the degrees. Evaluation sees the whole graph.

    Source: Cluster-GCN, Chiang et al., KDD 2019, https://arxiv.org/abs/1905.07953.
    Departure: clusters are runs of the order of reverse Cuthill-McKee, where neighbours are near each other,
    instead of the parts that METIS finds (PyG's `ClusterData`, which needs pyg-lib or torch-sparse).

    Args:
        n_parts: clusters; at most as many as there are training nodes.
        per_batch: clusters of a step.
    """

    version: ClassVar[int] = 1

    def __init__(self, n_parts: int, per_batch: int = 1) -> None:
        count("n_parts", n_parts)
        count("per_batch", per_batch)
        if per_batch > n_parts:
            raise ConfigError(f"trainer.sample: per_batch={per_batch} is more than n_parts={n_parts}.")
        self.n_parts, self.per_batch = n_parts, per_batch

    def over(self, task: Task) -> "ClusterBatches":
        """Training batches of a task with one graph; ConfigError for another."""
        if task.readout != "node":
            raise ConfigError(
                "trainer.sample takes parts of one graph with targets at its nodes; "
                f"{type(task).__name__} has none. Set trainer.sample=null."
            )
        return ClusterBatches(task, self.n_parts, self.per_batch)


class ClusterBatches:
    """In place of a task where batches of train are drawn."""

    def __init__(self, task: Task, n_parts: int, per_batch: int) -> None:
        self.task, self.n_parts, self.per_batch = task, n_parts, per_batch
        # What a step says of other nodes than its own, such as those of valid, is not known here.
        self.in_rows = {n: better for n, better in task.in_rows.items() if not n.startswith("noisy_")}

    def steps_per_epoch(self, size: int) -> int:
        return -(-self.n_parts // self.per_batch)

    def train_step_metrics(self, output: Tensor, batch: Batch) -> Metrics:
        return {}

    def batches(self, part: Part, size: int, rng: Generator) -> Iterator[Batch]:
        """One pass over the clusters."""
        for chosen in torch.randperm(self.n_parts, generator=rng).split(self.per_batch):
            yield self.joined(sorted(chosen.tolist()))

    def joined(self, clusters: list[int]) -> Batch:
        """The graph of these clusters, in the order of the nodes."""
        parts = self._parts
        ranks = torch.cat([torch.arange(*parts.nodes[k : k + 2].tolist()) for k in clusters])
        rows = torch.cat([torch.arange(*parts.edges[k : k + 2].tolist()) for k in clusters])
        place = torch.full((len(parts.order),), -1)
        place[ranks] = torch.arange(len(ranks))
        sender, receiver = place[parts.sender[rows]], place[parts.receiver[rows]]
        inside = sender >= 0
        nodes = parts.order[ranks].to(self._whole.input.device)
        weight = self._whole.edge_weight
        if weight is not None:
            weight = weight[parts.row[rows][inside].to(weight.device)]
        return replace(
            self._whole,
            input=self._whole.input[nodes],
            target=self._whole.target[nodes],
            index=parts.train[ranks].nonzero().squeeze(1).to(nodes.device),
            edge_index=torch.stack([sender[inside], receiver[inside]]).to(nodes.device),
            edge_weight=weight,
        )

    @cached_property
    def _whole(self) -> Batch:
        batch = next(iter(self.task.batches("train", 1)))
        known = {"input", "target", "index", "edge_index", "edge_weight", "carry"}
        other = [name for name, value in vars(batch).items() if name not in known and value is not None]
        if batch.edge_index is None or batch.index is None or other:
            raise ConfigError(
                f"trainer.sample takes parts of one graph; {type(self.task).__name__} has batches of "
                f"another kind{' with ' + ', '.join(other) if other else ''}. Set trainer.sample=null."
            )
        if len(batch.index) < self.n_parts:
            raise ConfigError(
                f"trainer.sample: {self.n_parts} clusters need a training node each; "
                f"{type(self.task).__name__} has {len(batch.index)}. Set trainer.sample.n_parts lower."
            )
        return batch

    @cached_property
    def _parts(self) -> "_Parts":
        whole = self._whole
        assert whole.index is not None and whole.edge_index is not None
        train = np.zeros(len(whole.input), dtype=bool)
        train[whole.index.cpu().numpy()] = True
        return _Parts(whole.edge_index.cpu(), train, self.n_parts)


class _Parts:
    """Clusters as runs of an order of nodes, known by their places in it; edges sorted by receiver."""

    def __init__(self, edge_index: Tensor, train: Any, n_parts: int) -> None:
        order = neighbours_near(edge_index.numpy(), len(train))
        seen = np.cumsum(train[order])  # training nodes up to each
        cuts = np.searchsorted(seen, np.arange(1, n_parts) * seen[-1] // n_parts) + 1
        nodes = np.concatenate([[0], cuts, [len(train)]])
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        sender, receiver = rank[edge_index.numpy()]
        row = np.argsort(receiver, kind="stable")
        self.order, self.train = torch.from_numpy(order), torch.from_numpy(train[order])
        self.sender, self.receiver = torch.from_numpy(sender[row]), torch.from_numpy(receiver[row])
        self.row = torch.from_numpy(row)  # of each edge in the list
        self.nodes, self.edges = nodes, np.searchsorted(receiver[row], nodes)  # where each cluster begins


def neighbours_near(edge_index: Any, n: int) -> Any:
    """An order of the nodes in which neighbours, edges taken both ways, stand near each other, (N,) int64."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    sender, receiver = edge_index
    A = csr_matrix((np.ones(len(sender), dtype=np.float32), (receiver, sender)), (n, n))
    return reverse_cuthill_mckee((A + A.T).tocsr(), symmetric_mode=True).astype(np.int64)
