"""Tasks on the nodes of one graph that is seen whole: some nodes train, others validate or test.

Axes: N nodes, E edge rows, D features, C classes.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import has_shape, positive
from physml.base.errors import DataError
from physml.data import graphs
from physml.data.datasets import Arrays
from physml.data.store import Store
from physml.task.base import Better, Metrics, Part, Readout, Sums, Task, features, positions, tensor
from physml.task.batch import Batch
from physml.task.classes import Classes, refuse_labels
from physml.task.trivial import score_reference

RIDGE = 1.0  # weight of the squared map in the linear reference
KERNEL = 10_000  # nodes up to which its equations are as many as those that train
ROWS = 2**18  # of features that are turned to float64 at once


class OneGraph(Task):
    """A batch is the whole graph; `index` says which of its nodes are of the part.

    A subclass sets `d_out` and `protocol`, and calls `place` in `load`.
    """

    readout: ClassVar[Readout] = "node"

    def place(
        self,
        x: np.ndarray | Tensor,
        edge_index: np.ndarray | Tensor,
        y: np.ndarray | Tensor,
        split: Mapping[str, np.ndarray | Tensor],
        store: Store,
    ) -> None:
        """Take the graph and one split of its nodes; DataError where they cannot be right.

        Shapes: x (N, D), edge_index (2, E), y (N,), of each part a mask (N,) or the positions of its nodes.
        """
        name = type(self).__name__
        self._x, self._y, self._edge_index = features(name, x), tensor(y), tensor(edge_index).long()
        n = len(self._y)
        if self._x.dim() != 2 or len(self._x) != n:
            raise DataError(f"{name}: {n} nodes need features ({n}, D); got {tuple(self._x.shape)}.")
        self.n_nodes, self.d_in = self._x.shape
        self._nodes = positions(name, "node", split, n)
        self.sizes = {part: len(nodes) for part, nodes in self._nodes.items()}
        self.check_targets()
        self._facts = {**self.data_facts(store), "n_nodes": n, "n_edges": self._edge_index.shape[1]}
        self.tell_shared(self._nodes, "nodes")

    def place_published(self, arrays: Arrays, k: int, edges: str, store: Store) -> None:
        """Take a graph with its k-th published split; `edges`: one of `graphs.DIRECTIONS`."""
        edge_index = graphs.directed(arrays["edge_index"], edges)
        x, split = graphs.dense_features(arrays), graphs.fixed_split(arrays, k)
        self.place(x, edge_index, arrays["y"], split, store)

    def check_targets(self) -> None:
        """DataError where the targets of some part can't be right. Called when all are placed."""

    def to(self, device: str) -> None:
        self._x, self._y = self._x.to(device), self._y.to(device)
        self._edge_index = self._edge_index.to(device)
        self._nodes = {part: nodes.to(device) for part, nodes in self._nodes.items()}

    def steps_per_epoch(self, size: int) -> int:
        return 1

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        positive("size", size)
        if part not in self.sizes:
            return
        yield Batch(input=self._x, target=self._y, index=self._nodes[part], edge_index=self._edge_index)

    def ridge(self, target: Tensor) -> Tensor:
        """The output of a linear map of the features for every node, fitted to `target` on train.

        Ridge regression around the means of train, in float64, of weight `RIDGE`: N x N equations of the
        nodes that train, or D x D ones, block by block, where these are too many.
        Shapes: target (N, O) -> (N, O).
        """
        nodes = self._nodes["train"]
        if len(nodes) > max(KERNEL, self.d_in):
            return _ridge_by_features(self._x, nodes, target)
        x = self._x.double()
        center, mean = x[nodes].mean(0), target[nodes].double().mean(0)
        centred = x[nodes] - center
        kernel = centred @ centred.T
        kernel.diagonal().add_(RIDGE)
        weight = torch.linalg.solve(kernel, target[nodes].double() - mean)
        return (x - center) @ (centred.T @ weight) + mean


def _ridge_by_features(x: Tensor, nodes: Tensor, target: Tensor) -> Tensor:
    parts = nodes.split(ROWS)
    center = sum(x[n].double().sum(0) for n in parts) / len(nodes)
    mean = target[nodes].double().mean(0)
    gram = RIDGE * torch.eye(x.shape[1], dtype=torch.float64, device=x.device)
    right = torch.zeros(x.shape[1], target.shape[1], dtype=torch.float64, device=x.device)
    for n in parts:
        centred = x[n].double() - center
        gram += centred.T @ centred
        right += centred.T @ (target[n].double() - mean)
    weight = torch.linalg.solve(gram, right)
    return torch.cat([(block.double() - center) @ weight + mean for block in x.split(ROWS)])


class NodeClasses(Classes, OneGraph):
    r"""One class for each node.

    Loss and metrics are those of `Classes`, over the nodes of a part. And noisy_cross_entropy, of valid
    alone: that of the outputs of the training step, so with dropout, and with the weights before the step;
    official code that makes one forward pass per epoch selects by it.

    Shapes: input (N, D), edge_index (2, E), target (N,) int64; output (N, C).
    """

    better: ClassVar[Better] = {**Classes.better, "noisy_cross_entropy": "lower"}

    def check_targets(self) -> None:
        refuse_labels(self, {part: self._y[at] for part, at in self._nodes.items()})

    def judged(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, label = super().judged(output, batch)
        return logits[batch.index], label[batch.index]

    def train_step_metrics(self, output: Tensor, batch: Batch) -> Metrics:
        if (nodes := self._nodes.get("valid")) is None:
            return {}
        return {"noisy_cross_entropy": F.cross_entropy(output[nodes], batch.target[nodes]).item()}

    def references(self) -> dict[str, Metrics]:
        """The label prior of train, whose answer is the majority class; a linear map of the features.

        All labels of valid count as one of train, so that they decide between classes of which train has
        equally many: with 20 nodes of each the answer is else the first class, whatever its size.
        """
        nodes = self._nodes["train"]
        train, valid = (
            torch.bincount(self._y[at], minlength=self.n_classes).double()
            for at in (nodes, self._nodes.get("valid", nodes))
        )
        count = train + valid / valid.sum()
        prior = ((count + 1) / (count + 1).sum()).log()
        known = F.one_hot(self._y.clamp(min=0), self.n_classes)
        linear = self.ridge(known).clamp(1e-3, 1).log()
        return {
            "majority class": score_reference(
                self, lambda b: prior.to(b.input.device).expand(len(b.target), -1)
            ),
            "linear (features)": score_reference(self, lambda b: linear),
        }


class TwoClasses(NodeClasses):
    """Nodes of class 0 and 1, of which few may be 1: scored by the area under the ROC curve too."""

    metric: ClassVar[str] = "roc_auc"
    better: ClassVar[Better] = {"roc_auc": "higher", **NodeClasses.better}
    n_classes = d_out = 2

    def score(self, output: Tensor, batch: Batch) -> Sums:
        """A part is one batch, so that its pairs are all of it."""
        logits, label = self.judged(output.detach().double(), batch)
        ordered, pairs = ordered_pairs(logits[:, 1] - logits[:, 0], label == 1)
        return super().score(output, batch) | {"ordered_sum": ordered, "pair_n": pairs}

    def finish(self, sums: Sums) -> Metrics:
        metrics = super().finish(sums)
        if not metrics:
            return {}
        auc = sums["ordered_sum"] / sums["pair_n"] if sums["pair_n"] else float("nan")
        return {"roc_auc": auc, **metrics}


def ordered_pairs(score: Tensor, positive: Tensor) -> tuple[float, int]:
    """Pairs of a positive and another in which the positive has the greater score, ties by half; all pairs.

    A score that is no number makes the first of the two NaN.
    Shapes: score (N,), positive (N,) bool.
    """
    _, group, size = torch.unique(score, return_inverse=True, return_counts=True)
    below = torch.cumsum(size, 0) - size
    middle = below[group].double() + (size[group] - 1).double() / 2  # those below, and half of its equals
    n = int(positive.sum())
    ordered = middle[positive].sum().item() - n * (n - 1) / 2
    return float("nan") if score.isnan().any() else ordered, n * (len(score) - n)


class NodeValues(OneGraph):
    r"""One number for each node.

    Loss: mean squared error. With :math:`e` that of a part, the metrics are

    .. math:: \mathrm{mse} = e, \qquad \mathrm{nmse} = e \Big/ \tfrac1N \sum_{i=1}^N y_i, \qquad
        \mathrm{nmse\_variance} = e / \mathrm{Var}(y\ \text{of the part})

    nmse is what the official code of gradient gating calls so: the mean is taken over all nodes and not
    squared, so it has the unit of y. By nmse_variance the best constant of a part scores 1 in any unit.

    Shapes: input (N, D), edge_index (2, E), target (N,) float32; output (N, 1).
    """

    metric: ClassVar[str] = "nmse"
    better: ClassVar[Better] = {"nmse": "lower", "nmse_variance": "lower", "mse": "lower"}

    d_out: int = 1

    def check_targets(self) -> None:
        self._mean = self._y.double().mean().item()
        if not torch.isfinite(self._y).all() or self._mean <= 0:
            raise DataError(f"{type(self).__name__}: values must be finite, with a mean above 0.")
        for part, nodes in self._nodes.items():
            if (self._y[nodes] == self._y[nodes[0]]).all():
                raise DataError(f"{type(self).__name__}, part {part}: all nodes have the same value.")

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (len(batch.target), 1))
        return F.mse_loss(output[batch.index, 0], batch.target[batch.index])

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (len(batch.target), 1))
        answer, y = output.detach()[batch.index, 0].double(), batch.target[batch.index].double()
        return {
            "square_sum": (answer - y).square().sum().item(),
            "y_sum": y.sum().item(),
            "y_square_sum": y.square().sum().item(),
            "n": len(y),
        }

    def finish(self, sums: Sums) -> Metrics:
        if not sums:
            return {}
        mse = sums["square_sum"] / sums["n"]
        variance = sums["y_square_sum"] / sums["n"] - (sums["y_sum"] / sums["n"]) ** 2
        return {"nmse": mse / self._mean, "nmse_variance": mse / variance, "mse": mse}

    def references(self) -> dict[str, Metrics]:
        """The mean of train, for every node; a linear map of the features."""
        mean = self._y[self._nodes["train"]].double().mean()
        linear = self.ridge(self._y[:, None])
        return {
            "constant": score_reference(self, lambda b: mean.expand(len(b.target), 1)),
            "linear (features)": score_reference(self, lambda b: linear),
        }
