"""LEM in C: lem.c, called from torch. Axes: B batch, T time, D features, H hidden units.

One call per pass. Here memory is laid out and autograd is served; all arithmetic is in lem.c.
"""

import ctypes
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.base.check import has_shape
from physml.ops.derivatives import Gradients, recorded
from physml.ops.lem.steps import STEPS, numbers
from physml.ops.native import call, pool
from physml.ops.native.library import of_this_run
from physml.ops.native.stepping import few
from physml.ops.native.stepping import pays as pays
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Shapes, Tensors, outputs_of
from physml.ops.sequence import Clip

SOURCE = Path(__file__).with_name("lem.c")
SIZES = ("n_batch", "n_steps", "d_in", "n_hidden", "gated", "clipped", "group", "block", "n_threads")
TENSORS = ("u", "y", "z", "W", "Wy", "V", "b")
KEPT = ("path", "kept")
LAST = ("last_y", "last_z")
INCOMING = ("d_outputs", "d_last_y", "d_last_z")
STRIDES = ("u_batch", "u_step", "u_feature", "d_batch", "d_step", "d_unit")

refusal = partial(call.refusal, SOURCE, load=of_this_run)

ROWS = 32  # of the batch in a group: whole register tiles, and their states stay in the nearest cache
NEAR = 1 << 21  # bytes of weights up to which a cache gives them fast enough to be read for every group
MANY_ROWS = 128  # in a group if there are more
BLOCK = 1 << 16  # numbers in a block of steps of the backward pass: with what it reads, half of an L2 cache
FAR = (
    1 << 23
)  # bytes of weights from which on their gradients are not in a near cache when a block adds to them
FAR_ROWS = 256  # rows times steps in such a block, at least
MIN_WORK = 5e8  # multiplications in a pass, some 5 ms, that are worth a second thread


class Call(ctypes.Structure):
    """`lem_call` of lem.c."""

    _fields_ = (
        *[(name, ctypes.c_int64) for name in SIZES],
        *[(name, ctypes.c_double) for name in ("dt", "low", "high")],
        *[(name, ctypes.c_void_p) for name in (*TENSORS, *KEPT, *LAST, "room", *INCOMING)],
        *[(f"d_{name}", ctypes.c_void_p) for name in TENSORS],
        *[(name, ctypes.c_int64) for name in STRIDES],
    )

    def point(self, names: Iterable[str], tensors: Iterable[Tensor | None]) -> None:
        """The caller keeps the tensors until the call is done."""
        for name, x in zip(names, tensors, strict=True):
            setattr(self, name, None if x is None else x.data_ptr())

    def run(self, library: ctypes.CDLL, backward: bool, dtype: torch.dtype) -> None:
        library.lem_room.restype = ctypes.c_size_t
        room = pool.empty((library.lem_room(ctypes.byref(self), backward),), dtype)
        self.room = room.data_ptr()
        (library.lem_backward if backward else library.lem_forward)(ctypes.byref(self))


def _call(tensors: tuple[Tensor | None, ...], dt: float, clip: Clip, n_threads: int) -> Call:
    """The arguments of both passes. `tensors`: those of TENSORS; all but u contiguous."""
    u, _, _, W, Wy, V, _ = tensors
    assert u is not None and W is not None and Wy is not None and V is not None
    (n_batch, n_steps, d_in), (n_rows, n_hidden) = u.shape, (V.shape[0], Wy.shape[0])
    if n_steps * n_batch * n_rows * (n_hidden + d_in) < MIN_WORK:
        n_threads = 1
    size = n_rows * (n_hidden + d_in) * u.element_size()
    group = min(-(-n_batch // n_threads), ROWS if size <= NEAR else MANY_ROWS)
    least = -(-FAR_ROWS // group) if size > FAR else 1
    low, high = clip or (0.0, 0.0)
    arguments = Call(
        n_batch=n_batch,
        n_steps=n_steps,
        d_in=d_in,
        n_hidden=n_hidden,
        gated=W.shape[0] > n_hidden,
        clipped=clip is not None,
        group=group,
        block=max(least, BLOCK // (group * (n_rows + 2 * n_hidden + d_in))),
        n_threads=n_threads,
        dt=dt,
        low=low,
        high=high,
    )
    arguments.point(TENSORS, tensors)
    arguments.u_batch, arguments.u_step, arguments.u_feature = u.stride()
    return arguments


def _forward(
    tensors: tuple[Tensor, ...], dt: float, clip: Clip, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """States y (T, B, P), P being H in whole vectors; what else a backward pass needs; the last y and z."""
    u, *others = tensors
    others = [x.contiguous() for x in others]
    (n_batch, n_steps, _), n_hidden = u.shape, others[0].shape[1]
    library = of_this_run(SOURCE, u.dtype)
    vector = library.lem_vector()
    width = -(-n_hidden // vector) * vector
    arguments = _call((u, *others), dt, clip, torch.get_num_threads())
    path = pool.empty((n_steps, n_batch, width), u.dtype)
    last_y, last_z = u.new_empty(n_batch, n_hidden), u.new_empty(n_batch, n_hidden)
    kept = (
        pool.empty((n_steps * n_batch, library.lem_kept(n_hidden, arguments.gated)), u.dtype)
        if keep
        else None
    )
    arguments.point((*KEPT, *LAST), (path, kept, last_y, last_z))
    arguments.run(library, False, u.dtype)
    return path, kept, last_y, last_z


def kept_shapes(u: Tensor, y: Tensor, z: Tensor, W: Tensor, *others: Tensor, **constants: Any) -> Shapes:
    """Shapes of the tensors that `run` saves for backward."""
    (n_batch, n_steps, _), n_hidden = u.shape, int(y.shape[1])  # a symbol while torch traces
    library = of_this_run(SOURCE, u.dtype)
    vector = library.lem_vector()
    row = library.lem_kept(n_hidden, bool(W.shape[0] > n_hidden))
    return (n_steps, n_batch, -(-n_hidden // vector) * vector), (n_steps * n_batch, row)


def run(*tensors: Tensor, dt: float, clip: Clip) -> Run:
    """The forward pass, see `operators.Kernel`."""
    _check(tensors)
    n_threads = torch.get_num_threads()
    path, kept, y, z = _forward(tensors, dt, clip, keep=True)
    assert kept is not None
    return y, z, [path, kept], n_threads


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, *, dt: float, clip: Clip
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`.

    `number`: threads of the forward pass, which orders what is kept.
    """
    u, *weights = tensors[:-1]
    y, z, W, Wy, V = (x.contiguous() for x in weights)
    d_outputs, *d_last = incoming
    d_last = [None if x is None else x.contiguous() for x in d_last]
    arguments = _call((u, y, z, W, Wy, V, None), dt, clip, number)
    arguments.point(KEPT, kept)
    arguments.point(INCOMING, (d_outputs, *d_last))
    if d_outputs is not None:
        arguments.d_batch, arguments.d_step, arguments.d_unit = d_outputs.stride()
    (n_batch, n_steps, d_in), n_rows = u.shape, V.shape[0]
    shapes = ((n_steps, n_batch, d_in), y.shape, z.shape, W.shape, Wy.shape, V.shape, (n_rows,))
    results = [
        pool.empty(tuple(shape), u.dtype) if needed or name in ("y", "z") else None
        for name, shape, needed in zip(TENSORS, shapes, needs, strict=True)
    ]
    arguments.point([f"d_{name}" for name in TENSORS], results)
    arguments.run(of_this_run(SOURCE, u.dtype), True, u.dtype)
    d_u, *others = results
    return None if d_u is None else d_u.transpose(0, 1), *others


PASSES = Passes(run, gradients, reads=(0, 1, 2, 3, 4, 5))


def lem(*tensors: Tensor, dt: float, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.lem` in C; differentiable once. Errors: InputError where shapes or dtypes do not match."""
    if recorded(*tensors):
        return Recurrence.apply(PASSES, {"dt": dt, "clip": clip}, *tensors)
    _check(tensors)
    (n_batch, n_steps, _), n_hidden = tensors[0].shape, tensors[1].shape[1]
    with torch.no_grad():
        if few(n_batch * n_steps, n_hidden):
            return STEPS.few(tensors[0], tensors[1:], numbers(tensors[3], tensors[4], dt, clip))
        path, _, y, z = _forward(tensors, dt, clip, keep=False)
    return outputs_of(path, tensors), y, z


def _check(tensors: tuple[Tensor, ...]) -> None:
    """InputError unless shapes and dtypes fit together: C would read beyond the end of a smaller tensor."""
    u, _, _, W, Wy, *_ = tensors
    has_shape("u", u, ("B", "T", "D"), hint="Batch comes first, then time; neither may be empty.")
    (n_batch, _, d_in), n_hidden = u.shape, Wy.shape[0]
    n_first = 3 * n_hidden if W.shape[0] > n_hidden else n_hidden
    n_rows = n_first + n_hidden
    state = (n_batch, n_hidden)
    shapes = (state, state, (n_first, n_hidden), (n_hidden, n_hidden), (n_rows, d_in), (n_rows,))
    call.fits(u, TENSORS[1:], tensors[1:], shapes)
