"""The step as it is printed. Axes: N nodes, H channels."""

import torch
from torch import Tensor


def gate(x: Tensor, new: Tensor, total: Tensor, share: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r""":math:`(1 - \tau) X + \tau \hat X` and the rates :math:`\tau = \tanh(s\, t)`; s = 1 without shares.

    Exact at both ends: X where the rate is 0, the new features where it is 1.

    Shapes: x (N, H) X, new (N, H), total (N, H) t, share (N, 1) s, without a gradient -> (N, H), (N, H).
    """
    rate = torch.tanh(total if share is None else total * share)
    return torch.lerp(x, new, rate), rate
