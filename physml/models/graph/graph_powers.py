"""Powers with slopes that stay finite, without slow powers. Axes: N nodes, E edges, H channels."""

from typing import Any

import torch
from torch import Tensor

from physml.ops.backend import resolved
from physml.ops.derivatives import once, transformed
from physml.ops.gradient_sum.autograd import FLOOR, powers, slopes


def power(x: Tensor, p: float, floor: float = FLOOR) -> Tensor:
    """x^p of x >= 0, with slopes that stay finite at 0, where they are set to 0.

    floor: the least x whose slope is taken, but for the backend reference, which has all derivatives.
    """
    if transformed(x) or resolved("auto") == "reference":
        none = x == 0
        return torch.where(none, 0.0**p, torch.where(none, 1.0, x) ** p)
    return _Power.apply(x, p, floor)


class _Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, floor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.p, ctx.floor = p, floor
        return powers(x.clone(), p)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return grad * slopes(x.clone(), ctx.p, ctx.floor), None, None
