"""Checks of the input and the state of a recurrence. Axes: B batch, T time, D features, H hidden units."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from physml.check import has_shape
from physml.errors import InputError


def sequence(u: Tensor, d_in: int, weight: Tensor) -> Tensor:
    """`u` itself, once its shape (B, T, D) and its dtype are right.

    Under autocast u may come in half precision; errors add up over the steps, so the steps stay in full.
    """
    has_shape("u", u, ("B", "T", d_in), hint="Batch comes first, then time; neither may be empty.")
    if u.dtype != weight.dtype:
        if not torch.is_autocast_enabled(u.device.type):
            raise InputError(
                f"u must have the dtype of the weights, {weight.dtype}; got {u.dtype}. "
                f"Convert one of the two, for example u.to({weight.dtype})."
            )
        u = u.to(weight.dtype)
    return u


def initial_state(
    state: tuple[Tensor, ...] | None, names: tuple[str, ...], u: Tensor, d_hidden: int | tuple[int, ...]
) -> tuple[Tensor, ...]:
    """The state before the first step: zero, or the one given, checked; a tuple of (B, H), H that of each."""
    sizes = (d_hidden,) * len(names) if isinstance(d_hidden, int) else d_hidden
    if state is None:
        return tuple(u.new_zeros(u.shape[0], size) for size in sizes)
    if not isinstance(state, tuple | list) or len(state) != len(names):
        what = f"{len(state)} entries" if isinstance(state, tuple | list) else type(state).__name__
        shapes = ", ".join(f"(B, {size})" for size in sizes)
        raise InputError(f"state must be a tuple ({', '.join(names)}) of shapes {shapes}; got {what}.")
    for name, x, size in zip(names, state, sizes, strict=True):
        has_shape(f"state {name}", x, (u.shape[0], size), hint="The state goes with the batch it came from.")
        if x.dtype != u.dtype:
            raise InputError(f"state {name} must have the dtype of u, {u.dtype}; got {x.dtype}.")
    return tuple(state)


def no_autocast(u: Tensor) -> AbstractContextManager[object]:
    """A context without autocast: a recurrence computes in the precision of its weights."""
    device = u.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


Clip = tuple[float, float] | None
