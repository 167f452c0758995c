"""The plain loop over a step. Axes: B batch, T time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Any, tuple[Tensor, ...]], tuple[Tensor, tuple[Tensor, ...]]]


def cell(
    *tensors: Tensor, step: Step, n_inputs: int, program: object = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`step` at one time after the other; `tensors`: inputs (B, T, D) and states (B, H).

    The outputs lie time first in memory, as those of the other backends do: dropout draws in that order.
    """
    path, state = [], tensors[n_inputs:]
    for u in zip(*(x.unbind(1) for x in tensors[:n_inputs]), strict=True):
        output, state = step(u[0] if n_inputs == 1 else u, state)
        path.append(output)
    return torch.stack(path).transpose(0, 1), tuple(state)
