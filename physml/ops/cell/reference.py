"""The plain loop over a step. Axes: B batch, T time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from physml.base.errors import InputError

Step = Callable[[Any, tuple[Tensor, ...]], tuple[Tensor, tuple[Tensor, ...]]]


def cell(
    *tensors: Tensor, step: Step, n_inputs: int, program: object = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`step` at one time after the other; `tensors`: inputs (B, T, D) and states (B, H).

    The outputs lie time first in memory, as those of the other backends do: dropout draws in that order.
    """
    path, state = [], tensors[n_inputs:]
    for u in zip(*(x.unbind(1) for x in tensors[:n_inputs]), strict=True):
        output, state = returned(step(u[0] if n_inputs == 1 else u, state), len(state), step)
        path.append(output)
    return torch.stack(path).transpose(0, 1), state


def returned(result: Any, n_states: int, step: Step) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output and state of a step. InputError unless it gives one output and as many states as it got."""
    output, state = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(state, tuple | list) or len(state) != n_states:
        what = "a tensor" if hasattr(result, "shape") else type(result).__name__
        what = f"{len(state)} states" if isinstance(state, tuple | list) else what
        raise InputError(
            f"{getattr(step, '__qualname__', 'a step')} must return (output, state), the state a tuple of "
            f"{n_states}; got {what}."
        )
    return output, tuple(state)
