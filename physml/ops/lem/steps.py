"""LEM, a few steps without gradients: steps.c. Axes: B batch, T time, D features, H hidden units."""

from pathlib import Path

from torch import Tensor

from physml.ops.native.stepping import FLAG, REAL, Steps, fit
from physml.ops.sequence import Clip

STEPS = Steps(Path(__file__).with_name("steps.c"), "lem_steps", (FLAG, FLAG, REAL, REAL, REAL), "LEM")


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
    return STEPS.one(u, others, numbers(W, Wy, dt, clip))


def numbers(W: Tensor, Wy: Tensor, dt: float, clip: Clip) -> tuple[float, ...]:
    """The numbers of C: 1 with gates, 1 with clipped ones, dt and the range."""
    return len(W) > len(Wy), clip is not None, dt, *(clip or (0.0, 0.0))
