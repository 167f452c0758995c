"""Tasks whose items have one class each. Axes: B items of a batch, C classes."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.base.check import has_shape
from physml.base.errors import DataError, InputError
from physml.config.class_source import OWN_PACKAGES
from physml.data.files.labels import refuse_beyond
from physml.task.base import Better, Metrics, Part, Sums, Task
from physml.task.batch import Batch


def refuse_labels(task: "Classes", labels: Mapping[Part, Tensor]) -> None:
    """DataError for labels (N,) of a part that are hidden or no classes.

    In a task of a plugin, whose classes nobody has published, also for a class that train lacks, and for a
    train of one class.
    """
    task.require("n_classes", "d_out")
    name, n_classes = type(task).__name__, task.n_classes
    if task.d_out != (n_outputs := 1 if task.one_logit else n_classes):
        raise InputError(f"{name}: d_out must be {n_outputs}, as n_classes is {n_classes}; got {task.d_out}.")
    for part, y in labels.items():
        if part != "train" and len(y) and (y == -1).all():
            raise DataError(
                f"{name}, part {part}: all {len(y)} labels are -1: they are hidden, so nothing can be "
                "scored. Take items with labels."
            )
        if y.dtype != torch.int64 or y.min() < 0 or y.max() >= n_classes:
            raise DataError(
                f"{name}, part {part}: labels must be whole numbers from 0 to {n_classes - 1}; got "
                f"{y.min().item()} to {y.max().item()}, {y.dtype}."
            )
    if type(task).__module__.partition(".")[0] in OWN_PACKAGES:
        return
    known = labels["train"].unique()
    if len(known) < 2:
        raise DataError(
            f"{name}, part train: all {len(labels['train'])} items are of class {int(known[0])}; a task "
            "needs two classes or more."
        )
    for part, y in labels.items():
        if not torch.isin(y, known).all():
            refuse_beyond(part, y.tolist(), known.tolist(), name)


class Classes(Task):
    r"""Items with one class each.

    Loss: cross entropy of the C logits; where `one_logit`, of a single one, :math:`-\log \sigma(\pm z)`.
    Metrics: accuracy (a fraction) and cross_entropy (nats).

    Shapes: target (B,) int64; output (B, C), or (B, 1) where `one_logit`.
    """

    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Better] = {"accuracy": "higher", "cross_entropy": "lower"}
    one_logit: ClassVar[bool] = False

    n_classes: int

    def judged(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logits and the labels that count. InputError for an output of another shape."""
        has_shape("output", output, (len(batch.target), 1 if self.one_logit else self.n_classes))
        return output, batch.target

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return self._cross_entropy(*self.judged(output, batch), "mean")

    def score(self, output: Tensor, batch: Batch) -> Sums:
        logits, label = self.judged(output.detach(), batch)
        logits = logits.double()
        nats = self._cross_entropy(logits, label, "sum").item()
        answer = (logits[:, 0] > 0).long() if self.one_logit else logits.argmax(1)
        return {"right_n": (answer == label).sum().item(), "cross_entropy_sum": nats, "n": len(label)}

    def _cross_entropy(self, logits: Tensor, label: Tensor, reduction: str) -> Tensor:
        if not self.one_logit:
            return F.cross_entropy(logits, label, reduction=reduction)
        return F.binary_cross_entropy_with_logits(logits[:, 0], label.to(logits.dtype), reduction=reduction)

    def finish(self, sums: Sums) -> Metrics:
        """Metrics of the sums; none of a part without items, as where no item is held out."""
        if not sums:
            return {}
        return {
            "accuracy": sums["right_n"] / sums["n"],
            "cross_entropy": sums["cross_entropy_sum"] / sums["n"],
        }
