"""Checks of the input and the state of a recurrence. Axes: B batch, T time, D features, H hidden units."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from physml.base.check import has_shape
from physml.base.errors import InputError


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


def is_step(u: Tensor) -> bool:
    """True if u (B, T, D) is one step that nothing traces."""
    return not torch.compiler.is_compiling() and isinstance(u, Tensor) and u.dim() == 3 and u.shape[1] == 1


def pair_of(state: object, u: Tensor, d_hidden: int) -> tuple[Tensor, Tensor] | None:
    """The two tensors of a state, zeros for None; None if it is no pair of tensors."""
    if not isinstance(u, Tensor) or u.dim() != 2:
        return None
    if state is None:
        return u.new_zeros(len(u), d_hidden), u.new_zeros(len(u), d_hidden)
    if not isinstance(state, tuple | list) or len(state) != 2:
        return None
    y, z = state
    return (y, z) if isinstance(y, Tensor) and isinstance(z, Tensor) else None


def one_step(layer: nn.Module, d_in: int, u: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The output (B, H) and the state after one input u (B, D), by the layer's `forward`."""
    has_shape("u", u, ("B", d_in), hint="One step: batch comes first, then features.")
    outputs, state = layer.forward(u.unsqueeze(1), state)
    return outputs.squeeze(1), state


def no_autocast(u: Tensor) -> AbstractContextManager[object]:
    """A context without autocast: a recurrence computes in the precision of its weights."""
    device = u.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def reversed_within(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Sequences (B, T, D) from their last step to their first one; padding stays behind shorter ones."""
    if lengths is None:
        return x.flip(1)
    step, n = torch.arange(x.shape[1], device=x.device), lengths.to(x.device)[:, None]
    return _at(x, torch.where(step < n, n - 1 - step, step))


def zero_behind(x: Tensor, lengths: Tensor) -> Tensor:
    """Sequences (B, T, D) with zeros in place of all padding."""
    padding = torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device)[:, None]
    return x.masked_fill(padding[..., None], 0)


def held_at_end(x: Tensor, lengths: Tensor) -> Tensor:
    """Sequences (B, T, D) whose last true step stands in place of all padding."""
    step, n = torch.arange(x.shape[1], device=x.device), lengths.to(x.device)[:, None]
    return _at(x, torch.minimum(step, n - 1))


def _at(x: Tensor, step: Tensor) -> Tensor:
    """x (B, T, D) at the steps (B, T)."""
    return x.gather(1, step[..., None].expand_as(x))


Clip = tuple[float, float] | None
