"""The map as it is printed. Axes: N rows, D columns, E entries that are not 0, H channels."""

import torch
from torch import Tensor

from physml.graph.rows import Rows


def rows_linear(weight: Tensor, value: Tensor, rows: Rows) -> Tensor:
    r""":math:`X W^\top`, with a gradient of W alone: the features are given.

    Shapes: weight (H, D), value (E,) the entries of X, rows (N, D) where they stand -> (N, H).
    """
    X = value.new_zeros(rows.shape)
    row = torch.repeat_interleave(torch.arange(rows.shape[0]), rows.start.diff())
    X[row, rows.column] = value
    return X @ weight.T
