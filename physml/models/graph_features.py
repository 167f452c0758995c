"""Features of nodes that are mostly zeros, as sparse rows. Axes: N nodes, D features, H channels."""

import copy

import torch
from torch import Tensor

from physml.graphs import cached
from physml.models.graph_sums import csr, gather, starts
from physml.ops.dropout import dropout
from physml.ops.linear import linear as ops_linear
from physml.ops.rows_linear import rows_linear

SPARSE_WIDTH, SPARSE_SHARE = 256, 0.1  # worth it from so many features on, up to this share of non-zeros


class Rows:
    """The entries of features (N, D) that are not 0, row after row and column after column.

    Row i has those from start[i] to before start[i + 1], each in its `column` and of its `value`. `columns`
    tells where those of each column begin, (D + 1,), their rows, and where they stand in `value`.
    """

    def __init__(self, x: Tensor) -> None:
        row, self.column = x.nonzero(as_tuple=True)
        self.value, self.shape = x[row, self.column], (x.shape[0], x.shape[1])
        self.start = starts(row, x.shape[0])
        order = torch.argsort(self.column, stable=True)
        self.columns = starts(self.column, x.shape[1]), row[order], order

    def __len__(self) -> int:
        return self.shape[0]

    def dim(self) -> int:
        return 2

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    def dropped(self, p: float, training: bool) -> "Rows":
        """Behind dropout: masks are drawn for these entries alone, as the others stay 0."""
        other = copy.copy(self)
        other.value = dropout(self.value, p, training)
        return other

    def matrix(self) -> Tensor:
        return csr(self.start, self.column, self.value, self.shape)

    def transposed(self) -> Tensor:
        start, row, order = self.columns
        return csr(start, row, gather(self.value, order), self.shape[::-1])


Features = Tensor | Rows


def sparse_rows(x: Tensor) -> Rows | None:
    """Features on a CPU that are wide, given and mostly zeros, as rows, made once per tensor; else None."""
    if x.device.type != "cpu" or x.requires_grad or x.shape[1] < SPARSE_WIDTH:
        return None

    def make() -> Rows | None:
        few = int(torch.count_nonzero(x)) <= SPARSE_SHARE * x.numel()
        return Rows(x) if few and bool(torch.isfinite(x).all()) else None

    return cached("rows", x, (), make)


def dropped(x: Tensor, p: float, training: bool) -> Features:
    """x behind dropout, as rows where x is mostly zeros."""
    rows = sparse_rows(x)
    return dropout(x, p, training) if rows is None else rows.dropped(p, training)


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, by a sparse product where x is rows; weight (H, D), bias (H,) or of each row, (N, H)."""
    if isinstance(x, Tensor):
        return ops_linear(x, weight, bias)
    out = rows_linear(weight, x)
    return out if bias is None else out + bias
