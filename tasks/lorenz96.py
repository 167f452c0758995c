"""Lorenz-96: the state 25 steps ahead. Axes: B batch, N trajectories, T time, D = 5 cyclic variables."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from physml.base.check import each, has_shape, one_of, positive, seed
from physml.base.errors import InputError
from physml.data.store import Arrays
from physml.task.base import Better, Metrics, Sums
from physml.task.batch import Batch
from physml.task.trajectories import Trajectories, runge_kutta
from physml.task.trivial import least_squares, linear, score_reference

D = 5

# x_1 of the first four training trajectories at points 0, 100, .., 500, for data_seed 1234 and one substep,
# by forcing. At F = 8, rounding moves these by 1e-8, another step size by 1e-3 and more.
FINGERPRINT = {
    0.9: [
        [0.591519, 0.736481, 0.990066, 1.083613, 0.836903, 0.679705],
        [0.672593, 0.623713, 1.005884, 1.202269, 0.812994, 0.530207],
        [0.757817, 0.903583, 1.085637, 0.952642, 0.704008, 0.754680],
        [0.961196, 0.544841, 0.643950, 0.974203, 1.139942, 0.841921],
    ],
    8.0: [
        [7.691519, 6.608454, -0.268274, -4.569812, -2.786412, 8.122890],
        [7.772593, 3.428797, 6.522522, 0.145984, -1.943704, 7.124539],
        [7.857817, 10.716383, 10.250020, 0.146377, 4.503385, 4.070281],
        [8.061196, -6.252052, 4.371646, -0.145552, 5.363110, 3.439316],
    ],
}
FINGERPRINT_TOLERANCE = 1e-5


class Lorenz96(Trajectories):
    r"""Predict the state `ahead` points later, at every point, from all states up to it.

    .. math:: x_i' = (x_{i+1} - x_{i-2})\, x_{i-1} - x_i + F, \qquad i = 1, \dots, 5 \text{ (cyclic)}

    x(0) uniform on [F - 1/2, F + 1/2]^5; `n_points` points, `spacing` apart, the first at t = 0. With
    T = n_points - ahead, input (B, T, 5): points 0..T-1; target (B, T, 5): points ahead..n_points-1.
    Nothing is normalised. Loss: MSE. Metric: nrmse = RMSE / RMS of the target over the whole part.

    Defined in: target: coRNN paper, supplement A, "the 25-th next state of a trajectory"; metric: "RMSE
    divided by the root mean square of the target trajectory", ibid. and Table 6; split: "128 trajectories of
    length 2000 for each of the training, validation and test sets", ibid.

    Source: Rusch and Mishra, coRNN, ICLR 2021, https://arxiv.org/abs/2010.00951, supplement A, Table 6.
    Its text is all there is: no code was published.
    Choices, because the text does not say: classical Runge-Kutta of order 4 with the fixed step
    spacing / substeps; a read-out at every point; no normalisation; MSE as the loss.

    The solver is part of the data at F = 8. The system is chaotic there, and a difference between two
    trajectories grows by about e^(1.3 t): rounding errors (another machine) from 1e-15 to at most 1e-3 at the
    end, t = 20; but the error of the method, 1e-3 after one unit of time, to the size of the attractor. So
    another solver or step gives other trajectories with the same statistics, and scores agree only as
    averages. At F = 0.9 all solvers agree to 1e-8. There a linear map of the current state scores 0.8e-2,
    below every printed model: that column measures optimisation.

    Args: forcing: F; n_train, n_valid, n_test: trajectories; n_points: points of a trajectory; spacing: time
        between points; substeps: Runge-Kutta steps per point; ahead: points to look ahead; data_seed: of the
        initial values, drawn for train, valid and test in this order; protocol: "paper".
    """

    name: ClassVar[str] = "lorenz96"
    moving = ("forcing", "sizes", "n_points", "spacing", "substeps", "data_seed")
    metric: ClassVar[str] = "nrmse"
    better: ClassVar[Better] = {"nrmse": "lower"}

    def __init__(
        self,
        *,
        forcing: float,
        n_train: int,
        n_valid: int,
        n_test: int,
        n_points: int,
        spacing: float,
        substeps: int,
        ahead: int,
        data_seed: int,
        protocol: str,
    ) -> None:
        one_of("protocol", protocol, ("paper",))
        self.sizes = {"train": n_train, "valid": n_valid, "test": n_test}
        each(positive, n_train=n_train, n_valid=n_valid, n_test=n_test)
        each(positive, spacing=spacing, substeps=substeps, ahead=ahead)
        seed("data_seed", data_seed)
        if n_points <= ahead:
            raise InputError(f"n_points must be above ahead = {ahead}; got {n_points}.")
        self.d_in = self.d_out = D
        self.protocol = protocol
        self.forcing, self.spacing, self.substeps = float(forcing), float(spacing), substeps
        self.n_points, self.ahead, self.data_seed = n_points, ahead, data_seed

    def make(self) -> Arrays:
        rng = np.random.RandomState(self.data_seed)
        starts = {part: self.forcing + rng.uniform(-0.5, 0.5, (n, D)) for part, n in self.sizes.items()}
        return {
            part: trajectories(x0, self.forcing, self.n_points, self.spacing, self.substeps)
            for part, x0 in starts.items()
        }

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        target = batch.target.double()
        error = output.detach().double() - target
        square, scale = torch.stack([error.square().sum(), target.square().sum()]).tolist()
        return {"error_sum": square, "target_sum": scale}

    def finish(self, sums: Sums) -> Metrics:
        return {"nrmse": (sums["error_sum"] / sums["target_sum"]) ** 0.5}

    def references(self) -> dict[str, Metrics]:
        """Constant train mean of each variable; the current state; a linear map of the current state."""
        train = self._paths["train"]
        now, later = train[:, : -self.ahead].reshape(-1, D), train[:, self.ahead :].reshape(-1, D)
        mean, a = later.mean(0), least_squares(now, later)
        return {
            "constant": score_reference(self, lambda batch: mean.expand_as(batch.target)),
            "persistence": score_reference(self, lambda batch: batch.input),
            "linear": score_reference(self, lambda batch: linear(batch.input, a)),
        }

    def fingerprint(self) -> str:
        usual = (self.data_seed, self.spacing, self.substeps) == (1234, 0.01, 1)
        if not usual or self.forcing not in FINGERPRINT or self.n_points < 501 or self.sizes["train"] < 4:
            return "none for these arguments"
        return self.compared(FINGERPRINT[self.forcing], 100, FINGERPRINT_TOLERANCE)


def trajectories(x0: np.ndarray, forcing: float, n_points: int, spacing: float, substeps: int) -> np.ndarray:
    """Points 0, spacing, .. of all trajectories at once. Shapes: x0 (N, D) -> (N, n_points, D)."""
    h = spacing / substeps
    path = np.empty((n_points, *x0.shape))
    path[0] = x = x0
    for i in range(1, n_points):
        for _ in range(substeps):
            x = runge_kutta(lambda x: slope(x, forcing), x, h)
        path[i] = x
    return path.transpose(1, 0, 2)


def slope(x: np.ndarray, forcing: float) -> np.ndarray:
    """x' of each state in the rows of x (N, D)."""
    i = np.arange(x.shape[1])
    after, before, before2 = x[:, (i + 1) % D], x[:, i - 1], x[:, i - 2]
    return (after - before2) * before - x + forcing
