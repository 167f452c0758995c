"""The map by torch. Axes: N rows, D channels in, H channels out."""

import torch
from torch import Tensor
from torch.nn import functional as F


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r""":math:`X W^\top + b`. Shapes: x (N, D), weight (H, D), bias (H,), or (N, H): of each row -> (N, H)."""
    if bias is not None and bias.dim() == 2:
        return torch.addmm(bias, x, weight.T)
    return F.linear(x, weight, bias)
