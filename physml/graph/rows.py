"""Node features that are mostly zeros, as sparse rows. Axes: N nodes, D features, H channels."""

import torch
from torch import Tensor

from physml.graph.cache import cached
from physml.graph.edges import csr, gather, starts

SPARSE_WIDTH, SPARSE_SHARE = 256, 0.1  # worth it from so many features on, up to this share of non-zeros


class Rows:
    """The entries of features (N, D) that are not 0, row after row and column after column.

    Row i has those from start[i] to before start[i + 1], each in its `column` and of its `value`. `columns`
    holds where those of each column begin, (D + 1,), their rows, and their places in `value`.
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

    def matrix(self) -> Tensor:
        return csr(self.start, self.column, self.value, self.shape)

    def transposed(self) -> Tensor:
        start, row, order = self.columns
        return csr(start, row, gather(self.value, order), self.shape[::-1])


def sparse_rows(x: Tensor) -> Rows | None:
    """Features on a CPU that are wide, given and mostly zeros, as rows; else None.

    Made once per tensor; a change of x through NumPy or `.data` is not seen, so pass a clone after one.
    """
    if x.device.type != "cpu" or x.requires_grad or x.shape[1] < SPARSE_WIDTH:
        return None

    def make() -> Rows | None:
        few = int(torch.count_nonzero(x)) <= SPARSE_SHARE * x.numel()
        return Rows(x) if few and bool(torch.isfinite(x).all()) else None

    return cached("rows", x, (), make)
