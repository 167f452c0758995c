"""The step of gradient gating: each node and channel moves at a rate of its own."""

from torch import Tensor

from physml.errors import InputError
from physml.ops.backend import Op
from physml.ops.gate import reference

__all__ = ["gate"]

_gate = Op(__name__, reference=reference.gate, torch=reference.gate)


def gate(
    x: Tensor, new: Tensor, total: Tensor, share: Tensor | None = None, *, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """(X, rates), by the fastest backend that can; `reference.gate` tells the arguments."""
    shapes = x.shape, new.shape, total.shape, (len(x), 1) if share is None else tuple(share.shape)
    if x.dim() != 2 or shapes != (x.shape, x.shape, x.shape, (len(x), 1)):  # C would read beyond the end
        raise InputError(
            "gate needs x, new and total (N, H) and share (N, 1); got "
            f"{', '.join(str(tuple(shape)) for shape in shapes)}."
        )
    return _gate(x, new, total, *([] if share is None else [share]), backend=backend)
