"""The input's part of a pre-activation, for all steps. Axes: B batch, T time, D features, H hidden units."""

from torch import Tensor
from torch.nn import functional as F


def drive(u: Tensor, V: Tensor, b: Tensor | None = None) -> Tensor:
    """V u + b with time first, (T, B, H), so that each step reads memory that lies together.

    Shapes: u (B, T, D), V (H, D), b (H,).
    """
    return F.linear(u.transpose(0, 1), V, b)
