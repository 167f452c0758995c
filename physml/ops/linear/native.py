"""The map in C: linear.c. Axes: N rows, D channels in, H channels out."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.linear import VECTOR
from physml.ops.native import call, pool
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("linear.c")
PARALLEL = 1e8  # products above which threads are worth being started


def refusal(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> str | None:
    """The reason why native code can't compute this case; None if it can."""
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        return f"in C it takes x (N, D) and weight (H, D); got {tuple(x.shape)} and {tuple(weight.shape)}"
    if any(size % VECTOR for size in weight.shape):
        return f"in C it takes D and H in {VECTOR}s; got weight {tuple(weight.shape)}"
    if bias is not None and tuple(bias.shape) not in ((len(weight),), (len(x), len(weight))):
        return f"in C it takes a bias (H,) or (N, H); got {tuple(bias.shape)}"
    return call.refusal(SOURCE, x, weight, *([] if bias is None else [bias]))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """On a CPU; differentiable as often as wanted, from the second time on by torch."""
    return LinearNative.apply(x, weight, bias)


class LinearNative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        x_contiguous, weight = x.contiguous(), weight.contiguous()
        out = pool.empty((len(x), len(weight)), x.dtype)
        own = None if bias is None else bias.contiguous()
        ctx.sizes = call.integers(*x.shape, len(weight))
        ctx.of_all = bias is not None and bias.dim() == 1
        stride = call.integers(0 if ctx.of_all else len(weight))
        ctx.work = float(len(x)) * weight.numel()
        code = load(SOURCE, x.dtype).linear_forward(
            call.threads(len(x), ctx.work, PARALLEL),
            ctx.sizes,
            *map(call.pointer, (x_contiguous, weight, own)),
            stride,
            call.pointer(out),
        )
        call.check(code, "linear map")
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (x, weight), needs = ctx.saved_tensors, ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True
            to_x = grad @ weight if needs[0] else None
            to_weight = grad.T @ x if needs[1] else None
        else:
            grad = grad.contiguous()
            to_x = _to_x(ctx, grad, weight.contiguous()) if needs[0] else None
            to_weight = _to_weight(ctx, grad, x.contiguous()) if needs[1] else None
        to_bias = (grad.sum(0) if ctx.of_all else grad) if needs[2] else None
        return to_x, to_weight, to_bias


def _to_x(ctx: Any, grad: Tensor, weight: Tensor) -> Tensor:
    to_x = pool.empty((len(grad), weight.shape[1]), grad.dtype)
    code = load(SOURCE, grad.dtype).linear_to_x(
        call.threads(len(grad), ctx.work, PARALLEL),
        ctx.sizes,
        *map(call.pointer, (grad, weight, to_x)),
    )
    call.check(code, "linear map")
    return to_x


def _to_weight(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
    to_weight = grad.new_empty(grad.shape[1], x.shape[1])
    load(SOURCE, grad.dtype).linear_to_weight(
        call.threads(grad.shape[1] // VECTOR, ctx.work, PARALLEL),
        ctx.sizes,
        *map(call.pointer, (grad, x, to_weight)),
    )
    return to_weight
