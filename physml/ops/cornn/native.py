"""coRNN in C: cornn.c. Axes: B batch, T time, D features, H hidden units.

Here are the buffers and the autograd Function. Saved for the backward pass are the forces (T, B, P) and the
states before each block of steps; P is H rounded up to whole vectors. The path of y is not needed.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.base.check import has_shape
from physml.base.errors import InputError
from physml.ops.cornn.autograd import Constants, constants
from physml.ops.cornn.steps import STEPS
from physml.ops.derivatives import Gradients, recorded
from physml.ops.native import call
from physml.ops.native.library import of_this_run
from physml.ops.native.pool import empty
from physml.ops.native.stepping import few
from physml.ops.native.stepping import pays as pays
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Shapes, Tensors

SOURCE = Path(__file__).with_name("cornn.c")
NAMES = ("y", "z", "W", "Wcal", "V", "b")
TILE = 40  # rows of the batch that a thread takes through time together
BLOCK = 384  # rows times steps in a block of the backward pass: their operands stay in cache
PARALLEL = 2e7  # multiplications of a pass above which threads are worth being started

refusal = partial(call.refusal, SOURCE, load=of_this_run)


def cornn(*tensors: Tensor, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.cornn` for fixed dt, gamma and epsilon on a CPU; differentiable once."""
    if any(isinstance(x, Tensor) for x in named.values()):
        raise InputError(
            "backend='native' has no gradients for dt, gamma and epsilon: they must be numbers. "
            "Use 'auto' or 'reference'."
        )
    if recorded(*tensors):
        return Recurrence.apply(PASSES, named, *tensors)
    _check(tensors)
    numbers = constants(**named)
    (n_batch, n_steps, _), n_hidden = tensors[0].shape, len(tensors[3])
    with torch.no_grad():
        if few(n_batch * n_steps, n_hidden):
            return STEPS.few(tensors[0], tensors[1:], numbers)
        path, y, z = forward(tensors, numbers, saved=False)[0]
        return path.transpose(0, 1), y, z


def _check(tensors: Sequence[Tensor]) -> None:
    """InputError unless shapes and dtypes fit together."""
    has_shape("u", tensors[0], ("B", "T", "D"), hint="Batch comes first, then time; neither may be empty.")
    (n_batch, _, d_in), n_hidden = tensors[0].shape, len(tensors[3])
    state, square = (n_batch, n_hidden), (n_hidden, n_hidden)
    call.fits(tensors[0], NAMES, tensors[1:], (state, state, square, square, (n_hidden, d_in), (n_hidden,)))


def forward(
    tensors: Sequence[Tensor], numbers: Constants, saved: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, ...], int]:
    """Path, last y and z; what is saved: forces, states before blocks (blocks, B, 2P); steps in a block."""
    u, *others = tensors
    library = of_this_run(SOURCE, u.dtype)
    n_batch, n_steps, d_in = u.shape
    n_hidden = len(others[-1])
    n_threads, n_tile, n_block = _split(u, n_hidden)
    outputs = empty((n_steps, n_batch, n_hidden), u.dtype)
    y_last, z_last = u.new_empty(n_batch, n_hidden), u.new_empty(n_batch, n_hidden)
    kept: tuple[Tensor, ...] = ()
    if saved:
        vector = library.cornn_vector()
        n_padded = -(-n_hidden // vector) * vector
        kept = (
            empty((n_steps, n_batch, n_padded), u.dtype),
            empty((-(-n_steps // n_block), n_batch, 2 * n_padded), u.dtype),
        )
    u = call.in_rows(u)
    contiguous = [x.contiguous() for x in others]
    sizes = call.integers(n_batch, n_steps, d_in, n_hidden, n_block, n_tile)
    room = call.scratch(library, "cornn", n_threads, sizes, u, backward=False)
    buffers = (outputs, y_last, z_last, *(kept or (None, None)), room)
    library.cornn_forward(
        n_threads,
        sizes,
        call.reals(*numbers),
        call.pointer(u),
        call.integers(*u.stride()[:2]),
        *map(call.pointer, (*contiguous, *buffers)),
    )
    return (outputs, y_last, z_last), kept, n_block


def _split(u: Tensor, n_hidden: int) -> tuple[int, int, int]:
    """Threads, rows in a tile, and steps in a block."""
    n_batch, n_steps, d_in = u.shape
    work = n_batch * n_steps * n_hidden * (2 * n_hidden + d_in)  # multiplications of a forward pass
    n_threads = call.threads(n_batch, work, PARALLEL)
    n_tile = call.tile(n_batch, n_threads, TILE)
    return n_threads, n_tile, max(1, min(n_steps, BLOCK // n_tile))


def kept_shapes(u: Tensor, y: Tensor, *others: Tensor, **constants: Any) -> Shapes:
    """Shapes of the tensors that `run` saves for backward."""
    (n_batch, n_steps, _), n_hidden = u.shape, y.shape[1]
    vector = of_this_run(SOURCE, u.dtype).cornn_vector()
    n_padded = -(-n_hidden // vector) * vector
    n_blocks = -(-n_steps // _split(u, n_hidden)[2])
    return (n_steps, n_batch, n_hidden), (n_steps, n_batch, n_padded), (n_blocks, n_batch, 2 * n_padded)


def run(*tensors: Tensor, **named: Any) -> Run:
    """The forward pass, see `operators.Kernel`."""
    _check(tensors)
    (path, y, z), kept, n_block = forward(tensors, constants(**named), saved=True)
    return y, z, [path, *kept], n_block


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, **named: Any
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`. `number`: steps in a block."""
    (u, _, _, W, Wcal, V, b), (_, forces, states), (d_outputs, *d_last) = tensors, kept, incoming
    library = of_this_run(SOURCE, u.dtype)
    n_batch, n_steps, d_in = u.shape
    n_hidden = len(W)
    n_threads, n_tile, _ = _split(u, n_hidden)
    u = call.in_rows(u)
    d_outputs = None if d_outputs is None else call.in_rows(d_outputs)
    contiguous = [None if x is None else x.contiguous() for x in (W, Wcal, V, b, forces, states)]
    d_last = [None if x is None else x.contiguous() for x in d_last]
    want_u, want_y, want_z, *want_weights = needs
    d_u = empty((n_steps, n_batch, d_in), u.dtype) if want_u else None
    d_y, d_z = u.new_empty(n_batch, n_hidden), u.new_empty(n_batch, n_hidden)
    shapes = ((n_hidden, n_hidden), (n_hidden, n_hidden), (n_hidden, d_in), (n_hidden,))
    d_weights = [
        empty(shape, u.dtype) if want else None for shape, want in zip(shapes, want_weights, strict=True)
    ]
    sizes = call.integers(n_batch, n_steps, d_in, n_hidden, number, n_tile)
    room = call.scratch(library, "cornn", n_threads, sizes, u, backward=True)
    library.cornn_backward(
        n_threads,
        sizes,
        call.reals(*constants(**named)),
        call.pointer(u),
        call.integers(*u.stride()[:2], *((0, 0) if d_outputs is None else d_outputs.stride()[:2])),
        *map(call.pointer, (*contiguous, d_outputs, *d_last, d_u, d_y, d_z, *d_weights, room)),
    )
    d_input = None if d_u is None else d_u.transpose(0, 1)
    return d_input, d_y if want_y else None, d_z if want_z else None, *d_weights


PASSES = Passes(run, gradients, reads=(0, 3, 4, 5, 6), reads_path=False)
