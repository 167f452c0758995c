"""The plain loop. Axes, time first: T time, B batch, H units."""

import torch
from torch import Tensor


def residual_tanh(drive: Tensor, h: Tensor, W: Tensor, keep: Tensor | float, gain: Tensor | float) -> Tensor:
    r"""The path of :math:`h_n = K h_{n-1} + g\, \tanh(W h_{n-1} + d_n)`.

    Shapes: drive d (T, B, H), h (B, H), W (H, H), keep K a matrix (H, H) or a number, gain g a number ->
    (T, B, H). Numbers may be tensors without axes.
    """
    path = []
    for push in drive.unbind(0):
        step = gain * torch.tanh(torch.addmm(push, h, W.t()))
        kept = h @ keep.t() if isinstance(keep, Tensor) and keep.dim() == 2 else keep * h
        h = kept + step
        path.append(h)
    return torch.stack(path)
