"""Features of nodes that are mostly zeros, as sparse rows. Axes: N nodes, D features, H channels."""

import copy

from torch import Tensor

from physml.graph.rows import Rows, sparse_rows
from physml.ops.derivatives import transformed
from physml.ops.dropout import dropout
from physml.ops.linear import linear as ops_linear
from physml.ops.rows_linear import rows_linear

Features = Tensor | Rows


def dropped(x: Tensor, p: float, training: bool) -> Features:
    """x behind dropout, as rows where x is mostly zeros."""
    rows = None if transformed(x) else sparse_rows(x)  # rows would lose the tangents of zeros
    if rows is None:
        return dropout(x, p, training)
    other = copy.copy(rows)
    other.value = dropout(rows.value, p, training)  # masks for these entries alone: the others stay 0
    return other


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, by a sparse product where x is rows; weight (H, D), bias (H,) or of each row, (N, H)."""
    if isinstance(x, Tensor):
        return ops_linear(x, weight, bias)
    out = rows_linear(weight, x)
    return out if bias is None else out + bias
