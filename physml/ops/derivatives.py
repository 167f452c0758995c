"""Backward passes written by hand: what they have no derivative for, and which transforms fail with them."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from physml.base.errors import InputError

Gradients = tuple[Tensor | None, ...]
REASON = "forward-mode derivatives and transforms such as torch.func need backend reference"


def recorded(*tensors: Tensor) -> bool:
    """True if autograd records an op of these tensors, so that a backward pass may follow."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def once(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """For the `backward` of an autograd Function: InputError where a graph of it is requested.

    `torch.autograd.function.once_differentiable` raises later, and only where the incoming gradient has a
    graph. But the result also depends on the saved weights: with a constant incoming gradient, as below every
    loss, it lets a second derivative pass that has terms missing.
    """

    @wraps(backward)
    def wrapped(ctx: Any, *gradients: Tensor | None) -> Gradients:
        if torch.is_grad_enabled():  # that is create_graph=True
            raise InputError(
                "create_graph=True needs second derivatives, which the fast backends do not have. The loop "
                "of a recurrence has them: set runtime.backend=reference, or backend='reference' of a layer."
            )
        return backward(ctx, *gradients)

    return wrapped


def transformed(*values: object) -> bool:
    """True if a transform of torch.func or torch.export is active, or one of the values has a tangent.

    C reads the primal alone and so would drop a tangent silently; autograd Functions refuse transforms. What
    torch.export traces has no numbers that C could read.
    """
    if torch.compiler.is_exporting():
        return True
    if torch._C._are_functorch_transforms_active():
        return True
    if forward_ad._current_level < 0:
        return False
    return any(isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in values)
