"""A linear map of all nodes, in C on processors on which torch's products are slow."""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from physml.ops.backend import Op, resolved
from physml.ops.linear import reference

__all__ = ["linear"]

VECTOR = 16  # numbers: the widest vector that any processor has
WORTH = 2**20  # N D H below which the call takes longer than what is gained

_linear = Op(__name__, reference=reference.linear, torch=reference.linear)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, backend: str = "auto") -> Tensor:
    """x W^T + b, differentiable as often as wanted; arguments as in `reference.linear`.

    "auto" is C for x (N, D) in float32 on a CPU of AMD's, large enough, D and H multiples of 16: elsewhere
    torch's own products are as fast. With `runtime.backend=native` it is C on any CPU, for these sizes.
    """
    requested = resolved(backend)
    in_c = _suits(x, weight) and (requested == "native" or (requested == "auto" and slow_products()))
    if backend == "auto" and not in_c:
        return reference.linear(x, weight, bias)
    tensors = (x, weight) if bias is None else (x, weight, bias)
    return _linear(*tensors, backend=backend)


def _suits(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.dim() == 2
        and len(x) * weight.numel() >= WORTH
        and not any(size % VECTOR for size in weight.shape)
    )


@cache
def slow_products() -> bool:
    """True if MKL, which torch multiplies with, leaves the widest vectors of this processor unused."""
    if not torch.backends.mkl.is_available():
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
