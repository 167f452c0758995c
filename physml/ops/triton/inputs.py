"""The input's part of a recurrence. Axes: B batch, T time, D features, R rows of pre-activations."""

import torch
from torch import Tensor


def rows(u: Tensor) -> Tensor:
    """u (B, T, D) as (T B, D), time first, in float32."""
    return u.float().transpose(0, 1).flatten(0, 1)


def drive(u: Tensor, V: Tensor, b: Tensor) -> Tensor:
    """V u + b of all steps, (T, B, R), in memory of its own and float32.

    `F.linear` chooses its way by what needs a gradient, and the ways differ in the last bit; this one
    does not.
    """
    x = torch.addmm(b.float(), rows(u), V.float().t())
    return x.view(u.shape[1], u.shape[0], -1)
