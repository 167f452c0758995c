"""The map in C: rows_linear.c. Axes: N rows, D columns, H channels."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.graph.rows import Rows
from physml.ops.derivatives import once
from physml.ops.native import call
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("rows_linear.c")
PARALLEL = 4e6  # products above which threads are worth being started

refusal = partial(call.refusal, SOURCE)


def rows_linear(weight: Tensor, value: Tensor, rows: Rows) -> Tensor:
    """`reference.rows_linear` on a CPU, differentiable once."""
    return RowsLinearNative.apply(weight, value, rows)


class RowsLinearNative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, value: Tensor, rows: Rows) -> Tensor:
        weight, (n, d), h = weight.contiguous(), rows.shape, len(weight)
        ctx.value, ctx.rows, ctx.sizes = value, rows, call.integers(n, d, h)
        ctx.n_threads = call.threads(h, float(value.numel()) * h, PARALLEL)
        out = weight.new_empty(n, h)
        code = load(SOURCE, weight.dtype).rows_linear_forward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (rows.start, rows.column, value, weight, out))
        )
        call.check(code, "linear map of rows")
        return out

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows, grad = ctx.rows, grad.contiguous()
        to_weight = grad.new_empty(grad.shape[1], rows.shape[1])
        code = load(SOURCE, grad.dtype).rows_linear_backward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (*rows.columns, ctx.value, grad, to_weight))
        )
        call.check(code, "linear map of rows")
        return to_weight, None, None
