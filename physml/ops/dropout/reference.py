"""Dropout by torch."""

from torch import Tensor
from torch.nn import functional as F


def dropout(x: Tensor, p: float) -> Tensor:
    return F.dropout(x, p)
