"""A layer of UnICORNN, one step without gradients: steps.c. Axes: B batch, D features, H hidden units."""

from pathlib import Path

import torch
from torch import Tensor

from physml.ops.backend import note
from physml.ops.native import call
from physml.ops.native.stepping import POINTER, REAL, SIZE, fit, function

SOURCE = Path(__file__).with_name("steps.c")
KINDS = (*[POINTER] * 11, *[SIZE] * 4, REAL, REAL)


def step(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    w: Tensor,
    V: Tensor,
    b: Tensor,
    c: Tensor,
    skip: tuple[Tensor, Tensor] | None,
    *,
    dt: float,
    alpha: float,
    backend: str,
) -> tuple[Tensor, Tensor] | None:
    """`reference.unicornn` for one input, projection included; None where C is not fit for it.

    Args:
        x: (B, D), what comes from below.
        y, z: (B, H), the state before.
        w, V, b, c: (H), (H, D), (H), (H).
        skip: x of the layer that a skip comes from, (B, D'), and its Lambda, (H, D').
    Returns: y and z, each (B, H).
    """
    others = (y, z, w, V, b, c) if skip is None else (y, z, w, V, b, c, *skip)
    if x.dim() != 2 or not fit(backend, x, others):
        return None
    (n_batch, d_in), n_hidden = x.shape, len(w)
    state, units = (n_batch, n_hidden), (n_hidden,)
    if not n_batch or not d_in or y.shape != state or z.shape != state or V.shape != (n_hidden, d_in):
        return None
    if w.shape != units or b.shape != units or c.shape != units:
        return None
    skipped, Lambda, d_skip = None, None, 0
    if skip is not None:
        d_skip = skip[0].shape[-1]
        if skip[0].shape != (n_batch, d_skip) or skip[1].shape != (n_hidden, d_skip):
            return None
        skipped, Lambda = skip[0].data_ptr(), skip[1].data_ptr()
    if (compute := function(SOURCE, "unicornn_step", KINDS, x.dtype)) is None:
        return None
    x = x.contiguous()
    y_new, z_new = torch.empty_like(y), torch.empty_like(y)
    code = compute(
        x.data_ptr(),
        V.data_ptr(),
        b.data_ptr(),
        skipped,
        Lambda,
        w.data_ptr(),
        c.data_ptr(),
        y.data_ptr(),
        z.data_ptr(),
        y_new.data_ptr(),
        z_new.data_ptr(),
        n_batch,
        d_in,
        d_skip,
        n_hidden,
        dt,
        alpha,
    )
    call.check(code, "UnICORNN")
    note("native")
    return y_new, z_new
