"""The plain loop. Axes, time first: T time, B batch, H units."""

import torch
from torch import Tensor


def fastgrnn(drive: Tensor, h: Tensor, U: Tensor, shift: Tensor, zeta: Tensor, nu: Tensor) -> Tensor:
    r"""The path of a gated update where gate and candidate differ in their bias alone.

    .. math::
        p_n &= U h_{n-1} + d_n, \qquad g = \sigma(p_n), \qquad c = \tanh(p_n + s) \\
        h_n &= g \circ h_{n-1} + (\zeta (1 - g) + \nu) \circ c

    Shapes: drive d (T, B, H), h (B, H), U (H, H), shift s (H,), zeta and nu without axes -> (T, B, H).
    """
    path = []
    for push in drive.unbind(0):
        p = torch.addmm(push, h, U.t())
        g, c = torch.sigmoid(p), torch.tanh(p + shift)
        h = g * h + (zeta * (1 - g) + nu) * c
        path.append(h)
    return torch.stack(path)
