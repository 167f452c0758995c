r"""One or two driven oscillators, the neurons of a coRNN, without training. Axes: T time, m neurons.

.. math:: y'' = \sigma(W y + \mathcal{W} y' + V u + b) - \gamma y - \epsilon y'

Source: Rusch and Mishra, coRNN, ICLR 2021, https://arxiv.org/abs/2010.00951, supplement C, Figure 6.
"""

from collections.abc import Callable

import numpy as np

from physml.base.check import one_of, positive
from physml.base.errors import InputError

BOUND = 1e3  # a path that leaves it has blown up

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "duffing": lambda x: x - x**3 / 3,
}


def signal(
    *, dt: float, horizon: float, frequency: float | None = None, steps: np.ndarray | None = None
) -> np.ndarray:
    """The input: cos(frequency t), or steps: rows of a time and the value from then on; 0 before the first.

    Shape: (1, T, 2), of t = dt, 2 dt, .. up to the horizon, and u(t).
    """
    positive("dt", dt)
    if not horizon >= dt:
        raise InputError(f"horizon must be at least dt = {dt}; got {horizon}.")
    if (frequency is None) == (steps is None):
        raise InputError(f"the input needs either frequency or steps; got {frequency} and {steps}.")
    t = dt * np.arange(1, round(horizon / dt) + 1)
    if frequency is not None:
        return np.stack([t, np.cos(frequency * t)], 1)[None]
    table = np.asarray(steps, float)
    if table.ndim != 2 or table.shape[1] != 2 or not (np.diff(table[:, 0]) > 0).all():
        raise InputError(
            f"steps must be pairs of a time and a value, with rising times; got {table.tolist()}."
        )
    times, values = table.T
    # Without the half step, rounding of n dt would decide on which side of a jump a time lies.
    at = np.searchsorted(times, t + dt / 2, side="right")
    return np.stack([t, np.concatenate([[0.0], values])[at]], 1)[None]


def response(
    *,
    W: np.ndarray,
    Wcal: np.ndarray,
    V: np.ndarray,
    b: np.ndarray,
    gamma: float,
    epsilon: float,
    activation: str,
    y0: float,
    z0: float,
    neuron: int,
    dt: float,
    horizon: float,
    frequency: float | None = None,
    steps: np.ndarray | None = None,
) -> np.ndarray:
    r"""The hidden state of one neuron over time, by the scheme of coRNN, explicit in the damping:

    .. math::
        z_n &= z_{n-1} + \Delta t\,[\sigma(W y_{n-1} + \mathcal{W} z_{n-1} + V u_n + b)
               - \gamma y_{n-1} - \epsilon z_{n-1}] \\
        y_n &= y_{n-1} + \Delta t\, z_n

    Its error is of first order in dt. All neurons start from y0 and z0; V and b hold one number for each; the
    first neuron is 1. Once y or z of any neuron lies beyond 1000, all that follows is NaN.

    Shapes: W, Wcal (m, m); V, b (m,); numbers where m = 1 -> (1, T, 2), of t = dt, 2 dt, .. and y(t).
    """
    one_of("activation", activation, ACTIVATIONS)
    path = signal(dt=dt, horizon=horizon, frequency=frequency, steps=steps)[0]
    V, b = np.atleast_1d(V), np.atleast_1d(b)
    W, Wcal = np.atleast_2d(W), np.atleast_2d(Wcal)
    m = len(b)
    if V.shape != (m,) or W.shape != (m, m) or Wcal.shape != (m, m):
        got = ", ".join(str(part.shape) for part in (W, Wcal, V, b))
        raise InputError(f"W, Wcal, V and b must have shapes (m, m), (m, m), (m,) and (m,); got {got}.")
    if not 1 <= neuron <= m:
        raise InputError(f"neuron must lie in [1, {m}]; got {neuron}.")
    sigma = ACTIVATIONS[activation]
    y, z = np.full(m, float(y0)), np.full(m, float(z0))
    out = np.full((len(path), 2), np.nan)
    out[:, 0] = path[:, 0]
    for n, u in enumerate(path[:, 1]):
        z = z + dt * (sigma(W @ y + Wcal @ z + V * u + b) - gamma * y - epsilon * z)
        y = y + dt * z
        if not (np.abs(y).max() <= BOUND and np.abs(z).max() <= BOUND):
            break
        out[n, 1] = y[neuron - 1]
    return out[None]
