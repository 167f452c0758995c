"""Transforms that fail with a backward by hand: forward-mode derivatives, torch.func and torch.export."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

REASON = "forward-mode derivatives and transforms such as torch.func need backend reference"


def transformed(*values: object) -> bool:
    """True if a transform of torch.func or torch.export is active, or one of the values has a tangent.

    C reads the primal alone and so would drop a tangent silently; autograd Functions refuse transforms. What
    torch.export traces has no numbers that C could read.
    """
    if torch.compiler.is_exporting():
        return True
    if torch._C._are_functorch_transforms_active():
        return True
    if forward_ad._current_level < 0:
        return False
    return any(isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in values)
