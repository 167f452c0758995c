"""The map as sparse products. Axes: N rows, D columns, E entries that are not 0, H channels."""

from typing import Any

import torch
from torch import Tensor

from physml.graph.rows import Rows
from physml.ops.derivatives import once


def rows_linear(weight: Tensor, value: Tensor, rows: Rows) -> Tensor:
    """`reference.rows_linear`, differentiable once."""
    return _RowsLinear.apply(weight, rows)


class _RowsLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return rows.matrix() @ weight.T

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return (ctx.rows.transposed() @ grad).T, None
