"""UnICORNN in C, compiled at first use. Axes: B batch, T time, H hidden units.

The algorithm is in `unicornn.c`. Here its memory is laid out, time axis first, and autograd connected.
"""

from ctypes import CDLL, c_double, c_int, c_ssize_t, c_void_p
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.derivatives import Gradients, recorded
from physml.ops.native import call, library, pool
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Shapes, Tensors

SOURCE = Path(__file__).with_name("unicornn.c")
EVERY = 128  # steps between two states z that are kept
SMALL_STEP = 1 << 13  # numbers in (B, H)
WORTH_A_THREAD = 1 << 22  # numbers in (T, B, H) below which threads cost more than they bring: some 4 ms

refusal = partial(call.refusal, SOURCE)

_SERIES = (c_void_p, c_ssize_t, c_ssize_t)  # data, stride of time, stride of the batch
_KEPT = (c_void_p, c_void_p, c_ssize_t)  # the path of y, the kept z, every how many steps
_SIZES = (c_ssize_t, c_ssize_t, c_ssize_t, c_int)  # T, B, H, threads


@cache
def _typed(library: CDLL) -> CDLL:
    library.forward.argtypes = [*_SERIES, *[c_void_p] * 4, c_double, *_KEPT, *_SIZES]
    library.backward.argtypes = [
        *_SERIES,
        *[c_void_p] * 3,
        c_double,
        *_KEPT,
        *_SERIES,
        *[c_void_p] * 5,
        *_SIZES,
    ]
    return library


def _library(dtype: torch.dtype) -> CDLL:
    return _typed(library.load(SOURCE, dtype))


def pays(n_batch: int, n_steps: int, n_hidden: int, trained: bool) -> bool:
    """True if this backend is the fastest: one or two small steps forward take less time than a call of C."""
    return trained or n_steps > 2 or n_steps**3 * n_batch * n_hidden > SMALL_STEP


def _series(x: Tensor) -> Tensor:
    """(B, T, H) with units that lie together; a copy only if they do not, time first."""
    if x.stride(2) == 1 or x.shape[2] == 1:
        return x
    n_batch, n_steps, n_hidden = x.shape
    return pool.empty((n_steps, n_batch, n_hidden), x.dtype).transpose(0, 1).copy_(x)


def _as_series(x: Tensor | None) -> tuple[int | None, int, int]:
    return (None, 0, 0) if x is None else (x.data_ptr(), x.stride(1), x.stride(0))


def _sizes(push: Tensor) -> tuple[int, int, int, int]:
    n_batch, n_steps, n_hidden = push.shape
    threads = min(torch.get_num_threads(), n_batch) if push.numel() >= WORTH_A_THREAD else 1
    return n_steps, n_batch, n_hidden, threads


def _done(status: int) -> None:
    if status:
        raise MemoryError("UnICORNN's native kernel got no memory for its states.")


def _forward(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, alpha: float, every: int
) -> tuple[Tensor, Tensor]:
    """The path of y (T, B, H), and z after every so many steps and after the last (N, B, H)."""
    n_steps, n_batch, n_hidden, threads = _sizes(push)
    path = pool.empty((n_steps, n_batch, n_hidden), push.dtype)
    kept = push.new_empty(-(-n_steps // every), n_batch, n_hidden)
    status = _library(push.dtype).forward(
        *_as_series(push),
        *(x.data_ptr() for x in (y, z, w, step)),
        alpha,
        path.data_ptr(),
        kept.data_ptr(),
        every,
        *(n_steps, n_batch, n_hidden, threads),
    )
    _done(status)
    return path, kept


def kept_shapes(push: Tensor, *others: Tensor, **constants: Any) -> Shapes:
    """Shapes of the tensors that `run` saves for backward."""
    n_batch, n_steps, n_hidden = push.shape
    return (n_steps, n_batch, n_hidden), (-(-n_steps // EVERY), n_batch, n_hidden)


def run(push: Tensor, *others: Tensor, alpha: float) -> Run:
    """The forward pass, see `operators.Kernel`."""
    y, z, w, step = (x.contiguous() for x in others)
    path, kept = _forward(_series(push), y, z, w, step, alpha, EVERY)
    # Copies: a carried state must not keep the whole path alive.
    return path[-1].clone(), kept[-1].clone(), [path, kept], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, *, alpha: float
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`."""
    push, y, _, w, step = tensors
    push = _series(push)
    y, w, step = (x.contiguous() for x in (y, w, step))
    path, z_kept = kept
    d_outputs, d_y, d_z = incoming
    d_outputs = None if d_outputs is None else _series(d_outputs)
    d_push = pool.empty(path.shape, path.dtype) if needs[0] else None
    # The gradients of the last state become those of the first.
    d_y, d_z = (torch.zeros_like(y) if d is None else y.new_empty(y.shape).copy_(d) for d in (d_y, d_z))
    d_w, d_step = torch.empty_like(y), torch.empty_like(y)
    status = _library(push.dtype).backward(
        *_as_series(push),
        *(x.data_ptr() for x in (y, w, step)),
        alpha,
        path.data_ptr(),
        z_kept.data_ptr(),
        EVERY,
        *_as_series(d_outputs),
        None if d_push is None else d_push.data_ptr(),
        *(x.data_ptr() for x in (d_y, d_z, d_w, d_step)),
        *_sizes(push),
    )
    _done(status)
    d_push = None if d_push is None else d_push.transpose(0, 1)
    return d_push, d_y, d_z, d_w.sum(0), d_step.sum(0)


PASSES = Passes(run, gradients, reads=(0, 1, 3, 4))


def unicornn(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.unicornn`; differentiable once."""
    if recorded(push, y, z, w, step):
        return Recurrence.apply(PASSES, {"alpha": alpha}, push, y, z, w, step)
    y, z, w, step = (x.detach().contiguous() for x in (y, z, w, step))
    path, kept = _forward(_series(push.detach()), y, z, w, step, alpha, every=push.shape[1])
    return path.transpose(0, 1), path[-1].clone(), kept[-1]
