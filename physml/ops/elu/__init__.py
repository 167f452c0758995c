"""ELU, the activation of graph attention, in a fraction of the time that torch takes on a CPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops.backend import Op
from physml.ops.elu import autograd

__all__ = ["elu"]

_elu = Op(__name__, reference=F.elu, torch=autograd.elu)


def elu(x: Tensor, *, backend: str = "auto") -> Tensor:
    r""":math:`x` where it is positive, else :math:`e^x - 1`, without the loss of digits near 0.

    Differentiable twice. In float32 by the fastest backend that can; else torch's, slow in float32 alone.
    """
    if x.dtype != torch.float32 or x.numel() == 0:
        return F.elu(x)
    return _elu(x, backend=backend)
