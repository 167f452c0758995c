"""A tanh step added to a linear one: Lipschitz RNN, AntisymmetricRNN, FastRNN."""

from typing import Any, cast

from torch import Tensor

from physml.ops.backend import Op
from physml.ops.residual_tanh import function, reference

__all__ = ["residual_tanh"]

# The result is one tensor, not the three of other recurrences.
_residual_tanh = Op(
    __name__, reference=cast(Any, reference.residual_tanh), torch=cast(Any, function.residual_tanh)
)


def residual_tanh(
    drive: Tensor, h: Tensor, W: Tensor, keep: Tensor | float, gain: Tensor | float, *, backend: str = "auto"
) -> Tensor:
    """The path (T, B, H), by the fastest backend that can; `reference.residual_tanh` tells the arguments."""
    path: Any = _residual_tanh(drive, h, W, keep=keep, gain=gain, backend=backend)
    return cast(Tensor, path)
