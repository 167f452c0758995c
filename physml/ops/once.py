"""Gradients written by hand know no derivative of their own."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from physml.errors import InputError

Gradients = tuple[Tensor | None, ...]


class _End(torch.autograd.Function):
    """Identity that refuses to be differentiated."""

    @staticmethod
    def forward(ctx: FunctionCtx, anchor: Tensor, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients

    @staticmethod
    def backward(ctx: FunctionCtx, *_: Tensor) -> Gradients:
        raise InputError(
            "a second derivative went through a backward that is written by hand and has none. "
            "Build the model with backend='reference'."
        )


def once(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """For the `backward` of an autograd Function: right first derivatives, an InputError for second ones.

    Like `torch.autograd.function.once_differentiable`, but the gradients also depend on the saved weights,
    so the error comes even when the incoming gradient is a constant, where torch's decorator lets a
    wrong zero pass.
    """

    @wraps(backward)
    def wrapped(ctx: Any, *gradients: Tensor | None) -> Gradients:
        with torch.no_grad():
            result = backward(ctx, *gradients)
        if not torch.is_grad_enabled():
            return result
        anchor = torch.zeros((), requires_grad=True)
        ended = iter(_End.apply(anchor, *(g for g in result if g is not None)))
        return tuple(None if g is None else next(ended) for g in result)

    return wrapped
