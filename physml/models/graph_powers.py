"""Powers with slopes that stay finite, without slow powers. Axes: N nodes, E edges, H channels."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from physml.ops.gradient_sum.function import FLOOR, powers, slopes


def power(x: Tensor, p: float, floor: float = FLOOR) -> Tensor:
    """x^p of x >= 0, with slopes that stay finite at 0, where they are set to 0."""
    return _Power.apply(x, p, floor)


class _Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, floor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.p, ctx.floor = p, floor
        return powers(x.clone(), p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return grad * slopes(x.clone(), ctx.p, ctx.floor), None, None


def p_norm(d: Tensor, p: float) -> Tensor:
    r""":math:`\|d\|_p` of each row of d (E, H), with slope 0 where the row is 0."""
    return _PNorm.apply(d, p)


class _PNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, d: Tensor, p: float) -> Tensor:
        top = d.abs().amax(1, keepdim=True)  # the powers of what is scaled by it can't run out of range
        safe = torch.where(top > 0, top, 1)
        norm = (top * powers((d / safe).abs_(), p).sum(1, keepdim=True) ** (1 / p)).squeeze(1)
        ctx.save_for_backward(d, norm)
        ctx.p = p
        return norm

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (d, norm), p = ctx.saved_tensors, ctx.p
        share = (d / torch.where(norm > 0, norm, 1)[:, None]).abs_()  # (|d| / norm)^(p-1) follows
        return grad[:, None] * d.sign() * slopes(share, p) / p, None
