"""LEM, a few steps without gradients: steps.c. Axes: B batch, T time, D features, H hidden units."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.backend import note
from physml.ops.native import call, pool
from physml.ops.native.stepping import FLAG, POINTER, REAL, SIZE, fit, function
from physml.ops.sequence import Clip

SOURCE = Path(__file__).with_name("steps.c")
KINDS = (POINTER, SIZE, SIZE, *[POINTER] * 9, *[SIZE] * 4, FLAG, FLAG, REAL, REAL, REAL)


def step(
    u: Tensor,
    y: Tensor,
    z: Tensor,
    W: Tensor,
    Wy: Tensor,
    V: Tensor,
    b: Tensor,
    *,
    dt: float,
    clip: Clip,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """`reference.lem` for one input u (B, D): the output, y and z, each (B, H); None where C does not fit."""
    others = (y, z, W, Wy, V, b)
    if u.dim() != 2 or not fit(backend, u, others):
        return None
    (n_batch, d_in), n_hidden, n_first = u.shape, Wy.shape[0], W.shape[0]
    n_rows = n_first + n_hidden
    if not n_batch or not d_in or n_first not in (n_hidden, 3 * n_hidden):
        return None
    if (
        y.shape != (n_batch, n_hidden)
        or z.shape != y.shape
        or V.shape != (n_rows, d_in)
        or b.shape != (n_rows,)
    ):
        return None
    if W.shape[1] != n_hidden or Wy.shape[1] != n_hidden:
        return None
    if (compute := function(SOURCE, "lem_steps", KINDS, u.dtype)) is None:
        return None
    output, y_new, z_new = torch.empty_like(y), torch.empty_like(y), torch.empty_like(y)
    _run(compute, u, (u.stride(0), 0), (n_batch, 1), others, (output, y_new, z_new), dt, clip)
    note("native")
    return output, y_new, z_new


def few_steps(u: Tensor, *others: Tensor, dt: float, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.lem` for a few steps; the caller has checked shapes and dtypes."""
    u, (n_batch, n_steps, _), n_hidden = call.in_rows(u), u.shape, others[0].shape[1]
    others = tuple(x.contiguous() for x in others)
    path = pool.empty((n_steps, n_batch, n_hidden), u.dtype)
    y, z = torch.empty_like(others[0]), torch.empty_like(others[0])
    compute = function(SOURCE, "lem_steps", KINDS, u.dtype)
    _run(compute, u, u.stride()[:2], (n_batch, n_steps), others, (path, y, z), dt, clip)
    return path.transpose(0, 1), y, z


def _run(
    compute: Any,
    u: Tensor,
    strides: tuple[int, ...],
    sizes: tuple[int, int],
    others: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    dt: float,
    clip: Clip,
) -> None:
    n_batch, n_steps = sizes
    n_hidden = others[0].shape[1]
    low, high = clip or (0.0, 0.0)
    code = compute(
        u.data_ptr(),
        *strides,
        *[x.data_ptr() for x in others],
        *[x.data_ptr() for x in outputs],
        n_steps,
        n_batch,
        u.shape[-1],
        n_hidden,
        others[2].shape[0] > n_hidden,
        clip is not None,
        dt,
        low,
        high,
    )
    call.check(code, "LEM")
