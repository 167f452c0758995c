"""Before and after all steps of a recurrence.

Axes: B batch, T time, D features, H hidden units, R rows of pre-activations.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def rows(u: Tensor) -> Tensor:
    """u (B, T, D) as (T B, D), time first, in float32."""
    return u.float().transpose(0, 1).flatten(0, 1)


def drive(u: Tensor, V: Tensor, b: Tensor) -> Tensor:
    """V u + b of all steps, (T, B, R), in memory of its own and float32.

    `F.linear` chooses its way by what needs a gradient, and the ways differ in the last bit; this one
    does not.
    """
    x = torch.addmm(b.float(), rows(u), V.float().t())
    return x.view(u.shape[1], u.shape[0], -1)


def of_last_states(path: Tensor, incoming: Sequence[Tensor | None]) -> Tensor:
    """The gradients (2, B, H) of the last y and z in float32, 0 where none comes in; path (T + 1, B, H)."""
    states = path.new_zeros(2, *path.shape[1:])
    for state, gradient in zip(states, incoming, strict=True):
        if gradient is not None:
            state.copy_(gradient)
    return states


def of_inputs(
    delta: Tensor, u: Tensor, V: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of u, V and b, from those of the pre-activations (T, B, R)."""
    flat, (need_u, need_V, need_b) = delta.flatten(0, 1), needs
    return (
        (flat @ V.float()).view(*delta.shape[:2], -1).transpose(0, 1) if need_u else None,
        flat.t() @ rows(u) if need_V else None,
        flat.sum(0) if need_b else None,
    )


def in_dtype(dtype: torch.dtype, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if x is None else x.to(dtype) for x in gradients)
