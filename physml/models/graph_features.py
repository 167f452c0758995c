"""Features of nodes that are mostly zeros, as sparse rows. Axes: N nodes, D features, H channels."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from physml.graphs import cached
from physml.models.graph_sums import csr, gather, starts

SPARSE_WIDTH, SPARSE_SHARE = 256, 0.1  # worth it from so many features on, up to this share of non-zeros


class Rows:
    """The entries of features (N, D) that are not 0, row after row and column after column."""

    def __init__(self, x: Tensor) -> None:
        row, column = x.nonzero(as_tuple=True)
        self.value, self.shape = x[row, column], (x.shape[0], x.shape[1])
        self.order = torch.argsort(column, stable=True)
        self._there = starts(row, x.shape[0]), column
        self._back = starts(column, x.shape[1]), row[self.order]

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
        other.value = F.dropout(self.value, p, training)
        return other

    def matrix(self) -> Tensor:
        return csr(*self._there, self.value, self.shape)

    def transposed(self) -> Tensor:
        return csr(*self._back, gather(self.value, self.order), self.shape[::-1])


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
    return F.dropout(x, p, training) if rows is None else rows.dropped(p, training)


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, by a sparse product where x is rows; weight (H, D), bias (H,)."""
    if isinstance(x, Tensor):
        return F.linear(x, weight, bias)
    out: Tensor = _RowsTimes.apply(weight, x)
    return out if bias is None else out + bias


class _RowsTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return rows.matrix() @ weight.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return (ctx.rows.transposed() @ grad).T, None
