"""Products with a fixed sparse matrix, whose entries are the weights of edges."""

from torch import Tensor

from physml.ops.backend import Op
from physml.ops.spread import reference

__all__ = ["spread"]

_spread = Op(__name__, reference=reference.spread, torch=reference.spread)


def spread(x: Tensor, weight: Tensor, start: Tensor, other: Tensor, *, backend: str = "auto") -> Tensor:
    """A X by the fastest backend that can, without gradients; arguments as in `reference.spread`."""
    if not len(weight):
        return x.new_zeros(x.shape)
    return _spread(x, weight, start=start, other=other, backend=backend)
