"""A linear map of features that are mostly zeros."""

from torch import Tensor

from physml.base.errors import InputError
from physml.graph.rows import Rows
from physml.ops.backend import Op, of_nothing
from physml.ops.rows_linear import autograd, reference

__all__ = ["rows_linear"]

_rows_linear = Op(__name__, reference=reference.rows_linear, torch=autograd.rows_linear)


def rows_linear(weight: Tensor, rows: Rows, *, backend: str = "auto") -> Tensor:
    """X W^T by the fastest backend that can; arguments as in `reference.rows_linear`."""
    if weight.dim() != 2 or weight.shape[1] != rows.shape[1]:  # C would read beyond the end
        raise InputError(
            f"features {tuple(rows.shape)} need a weight (H, {rows.shape[1]}); got {tuple(weight.shape)}."
        )
    backend = backend if len(rows.value) else of_nothing(backend, weight)
    return _rows_linear(weight, rows.value, rows=rows, backend=backend)
