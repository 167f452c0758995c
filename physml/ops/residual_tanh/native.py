"""The map in C: residual_tanh.c. Axes, time first: T time, B batch, H units.

Here are the buffers and the autograd Function. Saved for the backward pass are the path, which is the output,
and all tanh (T, B, P); P is H rounded up to whole vectors.
"""

from ctypes import c_double
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.native import call
from physml.ops.native.library import load
from physml.ops.native.pool import empty
from physml.ops.once import once, recorded

SOURCE = Path(__file__).with_name("residual_tanh.c")
TILE = 40  # rows of the batch that a thread takes through time together
BLOCK = 384  # rows times steps in a block of the backward pass: they stay in cache
SMALL_STEP = 1 << 13  # numbers in (B, H)
PARALLEL = 2e7  # multiplications of a pass above which threads are worth being started

Number = Tensor | float


def refusal(drive: Tensor, h: Tensor, W: Tensor) -> str | None:
    """The reason why native code can't compute this case; None if it can."""
    return call.refusal(SOURCE, drive, h, W)


def pays(n_steps: int, n_batch: int, n_hidden: int, trained: bool) -> bool:
    """Whether it is the fastest: few steps are not worth packing large weights."""
    if n_steps == 1:
        return n_batch * n_hidden >= SMALL_STEP and n_batch >= n_hidden // 16
    return n_steps * (1 + n_batch // 4) > min(n_hidden // 64, 8)


def residual_tanh(drive: Tensor, h: Tensor, W: Tensor, keep: Number, gain: Number) -> Tensor:
    """`reference.residual_tanh` on a CPU, differentiable once. To be called without autocast."""
    tensors = [x for x in (drive, h, W, keep, gain) if isinstance(x, Tensor)]
    if recorded(*tensors):
        return ResidualTanhNative.apply(drive, h, W, keep, gain)
    with torch.no_grad():
        return forward(drive, h, W, keep, gain, saved=False)[0]


class ResidualTanhNative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive: Tensor, h: Tensor, W: Tensor, keep: Number, gain: Number) -> Tensor:
        path, tanhs = forward(drive, h, W, keep, gain, saved=True)
        ctx.save_for_backward(h, W, _matrix(keep), path, tanhs)
        ctx.numbers = _numbers(keep, gain)
        return path

    @staticmethod
    @once
    def backward(ctx: Any, d_path: Tensor) -> tuple[Tensor | None, ...]:
        return backward(ctx, d_path)


def forward(
    drive: Tensor, h: Tensor, W: Tensor, keep: Number, gain: Number, saved: bool
) -> tuple[Tensor, Tensor | None]:
    """The path, and all tanh (T, B, P) if they are to be saved."""
    library = load(SOURCE, drive.dtype)
    path, tanhs = empty(tuple(drive.shape), drive.dtype), None
    if saved:
        vector = library.residual_tanh_vector()
        tanhs = empty((*drive.shape[:2], -(-drive.shape[2] // vector) * vector), drive.dtype)
    K = _matrix(keep)
    given = [None if x is None else x.contiguous() for x in (drive, h, W, K)]
    n_threads, sizes = _plan(drive, K is not None)
    room = call.scratch(library, "residual_tanh", n_threads, sizes, drive, backward=False)
    library.residual_tanh_forward(
        n_threads, sizes, call.reals(*_numbers(keep, gain)), *map(call.pointer, (*given, path, tanhs, room))
    )
    return path, tanhs


def backward(ctx: Any, d_path: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of drive, h, W, keep and gain; None where none is wanted."""
    h, W, K, path, tanhs = ctx.saved_tensors
    want_drive, want_h, want_W, want_keep, want_gain = ctx.needs_input_grad
    d_path = call.in_rows(d_path)
    d_drive = empty(tuple(path.shape), path.dtype) if want_drive else None
    d_h = path.new_empty(h.shape)
    d_W = empty(tuple(W.shape), W.dtype) if want_W else None
    d_K = None if K is None or not want_keep else empty(tuple(K.shape), K.dtype)
    d_numbers = (c_double * 2)()
    given = [None if x is None else x.contiguous() for x in (h, W, K, path, tanhs)]
    n_threads, sizes = _plan(path, K is not None)
    library = load(SOURCE, path.dtype)
    room = call.scratch(library, "residual_tanh", n_threads, sizes, path, backward=True)
    library.residual_tanh_backward(
        n_threads,
        sizes,
        call.reals(*ctx.numbers),
        *map(call.pointer, (*given, d_path)),
        call.integers(*d_path.stride()[:2]),
        *map(call.pointer, (d_drive, d_h, d_W, d_K)),
        d_numbers,
        call.pointer(room),
    )
    d_keep = path.new_tensor(d_numbers[0]) if want_keep and K is None else d_K
    return d_drive, d_h if want_h else None, d_W, d_keep, path.new_tensor(d_numbers[1]) if want_gain else None


def _matrix(keep: Number) -> Tensor | None:
    return keep if isinstance(keep, Tensor) and keep.dim() == 2 else None


def _numbers(keep: Number, gain: Number) -> tuple[float, float]:
    return 0.0 if _matrix(keep) is not None else float(keep), float(gain)


def _plan(path: Tensor, matrix: bool) -> tuple[int, Any]:
    """Number of threads, and the sizes for C."""
    n_steps, n_batch, n_hidden = path.shape
    work = float(n_steps * n_batch) * n_hidden * n_hidden * (1 + matrix)
    n_threads = call.threads(n_batch, work, PARALLEL)
    n_tile = call.tile(n_batch, n_threads, TILE)
    n_block = max(1, min(n_steps, BLOCK // n_tile))
    return n_threads, call.integers(n_steps, n_batch, n_hidden, n_block, n_tile, matrix)
