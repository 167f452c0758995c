r"""Hodgkin-Huxley: one-step-ahead prediction of a voltage. Axes: B batch, T time, N trajectories.

The system, with y the depolarisation in mV, time in ms, currents in microampere/cm^2:

.. math::
    y' &= u - 36 z_1^4 (y + 12) - 120 z_2^3 z_3 (y - 115) - 0.3 (y - 10.613) \\
    z_i' &= \alpha_i(y) - (\alpha_i(y) + \beta_i(y)) z_i

z_1 is the activation of potassium, z_2 and z_3 activation and inactivation of sodium. Its equations (5.4)
want a sum of products in place of :math:`F_y(z, t) \odot H(y, t)`; and beta_3 has exp(3 ..) where (5.5)
prints exp(1 ..).
"""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from physml.base.check import each, has_shape, positive
from physml.base.errors import InputError
from physml.data.store import Arrays
from physml.task.base import Better, Metrics, Sums
from physml.task.batch import Batch
from physml.task.trajectories import Solved, runge_kutta, totals
from physml.task.trivial import least_squares, linear, score_reference

SODIUM, POTASSIUM, LEAK = 120.0, 36.0, 0.3  # millisiemens/cm^2
V_SODIUM, V_POTASSIUM, V_LEAK = 115.0, -12.0, 10.613  # mV from rest
UNIT = 100.0  # mV: the data are voltages over it
STEP = 0.025  # ms, the step of the solver
LATE = 50  # steps left out of `rmse_late_mv`

# y / 100 mV of the first four of 128 training sequences at every 20th point, for data_seed 1234, t_end 100,
# 501 points. Steps of half the size move these by up to 2e-5.
FINGERPRINT = [
    [-0.123392, 0.723773, -0.080132, -0.004297, 0.06714, 0.409447],
    [0.048844, -0.023739, -0.055218, 0.021842, 0.105904, -0.100678],
    [-0.024909, 0.233484, -0.052656, 0.034013, 0.621107, -0.08282],
    [0.114143, -0.09483, -0.017153, 0.08044, 0.073046, -0.031703],
]
FINGERPRINT_TOLERANCE = 1e-4


def rates(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r""":math:`\alpha_i, \beta_i` of (5.5) in 1/ms, for depolarisations y in mV; each (3, ..)."""
    alpha = (0.1 * _over_exp((10 - y) / 10), _over_exp((25 - y) / 10), 0.07 * np.exp(-y / 20))
    beta = (0.125 * np.exp(-y / 80), 4 * np.exp(-y / 18), 1 / (1 + np.exp(3 - y / 10)))
    return np.stack(alpha), np.stack(beta)


def _over_exp(x: np.ndarray) -> np.ndarray:
    """x / (exp(x) - 1), which is 1 at 0."""
    small = np.abs(x) < 1e-6
    safe = np.where(small, 1.0, x)
    return np.where(small, 1 - x / 2, safe / np.expm1(safe))


def slope(state: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The right-hand side. state (4, ..): y in mV, z_1, z_2, z_3; u: the current."""
    y, z = state[0], state[1:]
    alpha, beta = rates(y)
    ions = POTASSIUM * z[0] ** 4 * (y - V_POTASSIUM) + SODIUM * z[1] ** 3 * z[2] * (y - V_SODIUM)
    return np.concatenate([(u - ions - LEAK * (y - V_LEAK))[None], alpha - (alpha + beta) * z])


def at_rest(y: np.ndarray) -> np.ndarray:
    """Gates that do not change at the voltage y, (3, ..)."""
    alpha, beta = rates(y)
    return alpha / (alpha + beta)


def trajectories(
    y0: np.ndarray, u: np.ndarray, n_points: int, t_end: float, *, step: float = STEP
) -> np.ndarray:
    """y and the gates at `n_points` uniform points on [0, t_end], (N, n_points, 4).

    By the classical Runge-Kutta method of order 4 in steps of at most `step` ms. Gates start as at y = 0.

    Args:
        y0: (N,), depolarisations at t = 0 in mV.
        u: (N,), constant currents.
        n_points: from 0 to t_end.
        t_end: ms.
        step: ms.
    """
    each(positive, t_end=t_end, step=step)
    if n_points < 2:
        raise InputError(f"n_points must be at least 2; got {n_points}.")
    between = int(np.ceil(t_end / (n_points - 1) / step - 1e-9))
    h = t_end / (n_points - 1) / between
    state = np.concatenate([y0[None], np.repeat(at_rest(np.zeros(1)), len(y0), axis=1)])
    path = [state]
    for _ in range(n_points - 1):
        for _ in range(between):
            state = runge_kutta(lambda state: slope(state, u), state, h)
        path.append(state)
    return np.stack(path).transpose(2, 0, 1)


class HodgkinHuxley(Solved):
    r"""Predict the next voltage of a firing neuron from all voltages before it (teacher forced).

    The depolarisation at the start is uniform on [-20, 20] mV. The current is constant in time, unseen by the
    model and uniform on [8, 20] microampere/cm^2, for which the neuron fires every 11 to 16 ms. `n_points`
    uniform points on [0, `t_end`] ms. Input (B, T, 1): y / 100 mV at points 0..T-1; target (B, T, 1): at
    points 1..T, with T = n_points - 1. Loss: MSE.

    Metrics (absolute RMSE in mV; lower is better):
      rmse_mv: over all sequences and steps.
      rmse_late_mv: over steps 51 and later, where the period has been seen.

    Defined in: target, metric and split: here; no paper has this task.

    Source: Hodgkin and Huxley, J. Physiol. 117, 1952, for the system; LEM, https://arxiv.org/abs/2110.04744,
    appendix C, compares it with the model but has no such task: sizes and currents are chosen here.

    Args: n_train, n_valid, n_test: sequences; n_points: points of a trajectory; t_end: end of time in ms;
        data_seed: of starts and currents; protocol: "clean".
    """

    name: ClassVar[str] = "hodgkin_huxley"
    late: ClassVar[int] = LATE
    protocols: ClassVar[tuple[str, ...]] = ("clean",)
    metric: ClassVar[str] = "rmse_mv"
    better: ClassVar[Better] = {"rmse_mv": "lower", "rmse_late_mv": "lower"}
    scoring: ClassVar[dict[str, str]] = {"rmse_mv": "clean", "rmse_late_mv": "clean"}

    def make(self) -> Arrays:
        rng = np.random.RandomState(self.data_seed)
        arrays = {}
        for part, n in self.sizes.items():
            y0, u = rng.uniform(-20, 20, n), rng.uniform(8, 20, n)
            arrays[part] = trajectories(y0, u, self.n_points, self.t_end)[..., 0] / UNIT
        return arrays

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        error = (output.detach() - batch.target).double().square().squeeze(-1) * UNIT**2  # (B, T)
        return totals({"rmse_mv": error, "rmse_late_mv": error[:, LATE:]})

    def references(self) -> dict[str, Metrics]:
        """Constant train mean; the last value; a linear autoregression on the last two values."""
        train = self._paths["train"].squeeze(-1)
        mean = train[:, 1:].mean()
        windows = train[:, :-1].unfold(1, 2, 1).reshape(-1, 2)
        fit = least_squares(windows, train[:, 2:].reshape(-1, 1))

        def predicted(batch: Batch) -> Tensor:
            y = batch.input.squeeze(-1)
            later = linear(y.unfold(1, 2, 1), fit).squeeze(-1)
            return torch.cat([y[:, :1], later], 1).unsqueeze(-1)

        return {
            "constant": score_reference(self, lambda batch: mean.expand_as(batch.target)),
            "persistence": score_reference(self, lambda batch: batch.input),
            "linear_2": score_reference(self, predicted),
        }

    def fingerprint(self) -> str:
        if (self.data_seed, self.t_end, self.n_points) != (1234, 100.0, 501) or self.sizes["train"] != 128:
            return "none for these arguments"
        return self.compared(FINGERPRINT, 20, FINGERPRINT_TOLERANCE)
