"""coRNN, a few steps without gradients: steps.c. Axes: B batch, T time, D features, H hidden units."""

from pathlib import Path

from torch import Tensor

from physml.ops.cornn.autograd import constants
from physml.ops.native.stepping import REAL, Steps, fit

STEPS = Steps(Path(__file__).with_name("steps.c"), "cornn_steps", (REAL,) * 4, "coRNN")


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
    return STEPS.one(u, others, constants(dt, gamma, epsilon, damping))
