"""A tanh step added to a linear one: Lipschitz RNN, AntisymmetricRNN, FastRNN."""

from torch import Tensor

from physml.ops.backend import Op
from physml.ops.residual_tanh import autograd, reference

__all__ = ["residual_tanh"]

_residual_tanh = Op(__name__, reference=reference.residual_tanh, torch=autograd.residual_tanh)


def residual_tanh(
    drive: Tensor, h: Tensor, W: Tensor, keep: Tensor | float, gain: Tensor | float, *, backend: str = "auto"
) -> Tensor:
    """The path (T, B, H), by the fastest backend that can; arguments as in `reference.residual_tanh`."""
    return _residual_tanh(drive, h, W, keep=keep, gain=gain, backend=backend)
