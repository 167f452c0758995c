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
        output, state = returned(step(u[0] if n_inputs == 1 else u, state), state, step)
        path.append(output)
    return torch.stack(path).transpose(0, 1), state


def returned(result: Any, before: tuple[Any, ...], step: Step) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output and state of a step. InputError unless it gives one output and the states that it got."""
    pair = isinstance(result, tuple) and len(result) == 2
    output, state = result if pair else (result, None)
    name = getattr(step, "__qualname__", "a step")
    if not isinstance(state, tuple | list) or len(state) != len(before):
        what = state if pair else result
        what = "a tensor" if hasattr(what, "shape") else type(what).__name__
        what = f"a state that is {what}" if pair else what
        what = f"{len(state)} states" if isinstance(state, tuple | list) else what
        raise InputError(
            f"{name} must return (output, state), the state a tuple of {len(before)}; got {what}."
        )
    for i, (old, new) in enumerate(zip(before, state, strict=True)):
        if getattr(new, "ndim", 0) == 2 and new.shape[1] != old.shape[1]:
            raise InputError(
                f"{name} must return states as wide as it got them; state {i} had {old.shape[1]} units and "
                f'has {new.shape[1]}. @recurrent names how many: memory="d_memory".'
            )
    return output, tuple(state)
