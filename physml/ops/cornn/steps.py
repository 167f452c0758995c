"""coRNN, a few steps without gradients: steps.c. Axes: B batch, T time, D features, H hidden units."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.backend import note
from physml.ops.cornn.autograd import Constants, constants
from physml.ops.native import call, pool
from physml.ops.native.stepping import POINTER, REAL, SIZE, fit, function

SOURCE = Path(__file__).with_name("steps.c")
KINDS = (POINTER, SIZE, SIZE, *[POINTER] * 9, *[SIZE] * 4, *[REAL] * 4)


def step(
    u: Tensor,
    y: Tensor,
    z: Tensor,
    W: Tensor,
    Wcal: Tensor,
    V: Tensor,
    b: Tensor,
    *,
    dt: float,
    gamma: float,
    epsilon: float,
    damping: str,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """`reference.cornn` for one input u (B, D): output, y and z, each (B, H); None where C does not fit."""
    others = (y, z, W, Wcal, V, b)
    if u.dim() != 2 or not fit(backend, u, others):
        return None
    (n_batch, d_in), n_hidden = u.shape, len(b)
    state, square = (n_batch, n_hidden), (n_hidden, n_hidden)
    if not n_batch or not d_in or y.shape != state or z.shape != state or b.dim() != 1:
        return None
    if W.shape != square or Wcal.shape != square or V.shape != (n_hidden, d_in):
        return None
    if (compute := function(SOURCE, "cornn_steps", KINDS, u.dtype)) is None:
        return None
    output, y_new, z_new = torch.empty_like(y), torch.empty_like(y), torch.empty_like(y)
    numbers = constants(dt, gamma, epsilon, damping)
    _run(compute, u, (u.stride(0), 0), (n_batch, 1), others, (output, y_new, z_new), numbers)
    note("native")
    return output, y_new, z_new


def few_steps(u: Tensor, *others: Tensor, numbers: Constants) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.cornn` for a few steps; the caller has checked shapes and dtypes."""
    u, (n_batch, n_steps, _), n_hidden = call.in_rows(u), u.shape, others[0].shape[1]
    others = tuple(x.contiguous() for x in others)
    path = pool.empty((n_steps, n_batch, n_hidden), u.dtype)
    y, z = torch.empty_like(others[0]), torch.empty_like(others[0])
    compute = function(SOURCE, "cornn_steps", KINDS, u.dtype)
    _run(compute, u, u.stride()[:2], (n_batch, n_steps), others, (path, y, z), numbers)
    return path.transpose(0, 1), y, z


def _run(
    compute: Any,
    u: Tensor,
    strides: tuple[int, ...],
    sizes: tuple[int, int],
    others: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    numbers: Constants,
) -> None:
    n_batch, n_steps = sizes
    code = compute(
        u.data_ptr(),
        *strides,
        *[x.data_ptr() for x in others],
        *[x.data_ptr() for x in outputs],
        n_steps,
        n_batch,
        u.shape[-1],
        others[0].shape[1],
        *numbers,
    )
    call.check(code, "coRNN")
