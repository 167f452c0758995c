"""Trivial references: what a constant, the last value or a linear map scores on the same data.

Axes: N fitted items, D features, O outputs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from physml.task.base import Metrics, Part, Sums, Task
from physml.task.batch import Batch


def score_reference(
    task: Task, predict: Callable[[Batch], Tensor], part: Part = "test", size: int = 256
) -> Metrics:
    """The metrics of `predict`, a function of a batch in place of a model, by the task's own score."""
    total: Sums = {}
    for batch in task.batches(part, size):
        for name, value in task.score(predict(batch), batch).items():
            total[name] = total.get(name, 0.0) + value
    return task.finish(total)


def least_squares(x: Tensor, y: Tensor) -> Tensor:
    """Weights A (D + 1, O) of the linear map with intercept that minimises |[x, 1] A - y|, in float64.

    Shapes: x (N, D), y (N, O). Solved on the CPU: the driver that stands a singular x exists only there.
    """
    return torch.linalg.lstsq(_with_one(x).cpu(), y.double().cpu(), driver="gelsd").solution


def linear(x: Tensor, a: Tensor) -> Tensor:
    """[x, 1] A with A (D + 1, O) of `least_squares`; x (..., D) -> (..., O), in the type of x."""
    return (_with_one(x) @ a.to(x.device)).to(x.dtype)


def _with_one(x: Tensor) -> Tensor:
    x = x.double()
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)
