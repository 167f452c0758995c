"""The plain loop. Axes, time first: T time, B batch, H units."""

import torch
from torch import Tensor


def modrelu(drive: Tensor, h: Tensor, W: Tensor, b: Tensor) -> Tensor:
    r"""The path of :math:`h_n = \mathrm{sign}(p_n) \max(|p_n| + b, 0)` with :math:`p_n = W h_{n-1} + d_n`.

    Shapes: drive d (T, B, H), h (B, H), W (H, H), b (H,) -> (T, B, H).
    """
    path = []
    for push in drive.unbind(0):
        p = torch.addmm(push, h, W.t())
        h = torch.sign(p) * torch.relu(p.abs() + b)
        path.append(h)
    return torch.stack(path)
