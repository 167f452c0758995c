"""The nonlinear pendulum without friction: one step ahead, and windows of many observed variables.

Axes: N trajectories, P points, B batch, K points of a window, D variables.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import count, each, has_shape, non_negative, one_of, positive, seed
from physml.base.errors import InputError
from physml.data.store import Arrays, Store
from physml.task.base import Better, Metrics, Part, Readout, Sums, Task
from physml.task.batch import Batch
from physml.task.trajectories import Trajectories, roots, totals
from physml.task.trivial import least_squares, linear, score_reference


def released(theta0: float, t: np.ndarray, ratio: float) -> np.ndarray:
    r"""Angle and angular velocity of a pendulum that is released from rest at theta0: exact.

    .. math::
        \theta'' = -\tfrac g\ell \sin\theta, \qquad \sin\tfrac{\theta(t)}2 = k\,\mathrm{cd}(\omega t, k^2),
        \qquad \theta'(t) = -2 k \omega \sqrt{1 - k^2}\,\mathrm{sd}(\omega t, k^2)

    with k = sin(theta0 / 2), omega = (g / l)^(1/2).

    Args:
        theta0: of -pi to pi.
        t: (P,).
        ratio: g / l.
    Shapes: (P, 2).
    """
    from scipy.special import ellipj, ellipk  # not needed where the data are cached

    k, omega = np.sin(theta0 / 2), np.sqrt(ratio)
    sn, cn, dn, _ = ellipj(np.mod(omega * t, 4 * ellipk(k**2)), k**2)
    return np.stack([2 * np.arcsin(k * cn / dn), -2 * k * omega * np.sqrt(1 - k**2) * sn / dn], -1)


class Pendulum(Trajectories):
    r"""Predict angle and angular velocity one time step ahead, at every point of a swing.

    .. math:: \theta'' = -\tfrac g\ell \sin\theta, \qquad \theta'(0) = 0

    Input (B, T, 2): theta, theta' at points 0..T-1; target (B, T, 2): at points 1..T, T = n_points - 1, a
    time `dt` apart. theta(0) is uniform on [-amplitude, amplitude]. The solution is exact. Nothing is
    normalised. With `noise` normal numbers are added to train and valid; test is the pendulum itself. Loss:
    MSE.

    Metric: rmse over both variables, all steps and trajectories.

    Defined in: target: talk, slide "Example: Nonlinear Pendulum", whose picture is a trajectory predicted
    step by step; metric and split: none printed; chosen here.

    Source: talk of M. Mahoney (January 2022), "Example: Nonlinear Pendulum", after Queiruga et al., 2020,
    https://arxiv.org/abs/2008.02389. Neither prints its constants: those of the config are chosen here.

    Args: n_train, n_valid, n_test: trajectories; n_points: of each; dt: time between points; ratio: g / l;
        amplitude: greatest angle at the start, below pi; noise: standard deviation; data_seed: of angles and
        noise; protocol: "clean".
    """

    name: ClassVar[str] = "pendulum"
    moving = ("sizes", "n_points", "dt", "ratio", "amplitude", "noise", "data_seed")
    metric: ClassVar[str] = "rmse"
    better: ClassVar[Better] = {"rmse": "lower"}

    def __init__(
        self,
        *,
        n_train: int,
        n_valid: int,
        n_test: int,
        n_points: int,
        dt: float,
        ratio: float,
        amplitude: float,
        noise: float,
        data_seed: int,
        protocol: str,
    ) -> None:
        one_of("protocol", protocol, ("clean",))
        each(count, n_train=n_train, n_valid=n_valid, n_test=n_test)
        if n_points < 2:
            raise InputError(f"n_points must be at least 2, one to predict from; got {n_points}.")
        each(positive, dt=dt, ratio=ratio)
        _below_pi("amplitude", amplitude)
        non_negative("noise", noise)
        seed("data_seed", data_seed)
        self.d_in = self.d_out = 2
        self.protocol = protocol
        self.sizes = {"train": n_train, "valid": n_valid, "test": n_test}
        self.n_points, self.dt, self.ratio, self.amplitude = n_points, float(dt), float(ratio), amplitude
        self.noise, self.data_seed = float(noise), data_seed

    def make(self) -> Arrays:
        rng = np.random.default_rng(self.data_seed)
        t, arrays = self.dt * np.arange(self.n_points), {}
        for part, n in self.sizes.items():
            angles = rng.uniform(-self.amplitude, self.amplitude, n)
            arrays[part] = np.stack([released(angle, t, self.ratio) for angle in angles])
        for part in ("train", "valid"):
            arrays[part] += self.noise * rng.normal(size=arrays[part].shape)
        return arrays

    def swings(self) -> Tensor:
        """The trajectories of test, without noise: (N, P, 2)."""
        return self._paths["test"]

    def exact(self, theta0: Tensor, t: np.ndarray) -> Tensor:
        """Exact motion of pendulums released from rest, at times t (P,): (N, P, 2), float64."""
        return torch.from_numpy(np.stack([released(angle, t, self.ratio) for angle in theta0.tolist()]))

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        return totals({"rmse": (output.detach().double() - batch.target).square()})

    def finish(self, sums: Sums) -> Metrics:
        return roots(sums, self.better)

    def references(self) -> dict[str, Metrics]:
        """The last point; a linear map of it, fitted on train."""
        train = self._paths["train"]
        fitted = least_squares(train[:, :-1].reshape(-1, 2), train[:, 1:].reshape(-1, 2))
        return {
            "persistence": score_reference(self, lambda batch: batch.input),
            "linear": score_reference(self, lambda batch: linear(batch.input, fitted)),
        }

    def fingerprint(self) -> str:
        return "none: the solution is exact"


class PendulumWindows(Task):
    r"""A pendulum seen through many variables: from one observation those before and after it.

    .. math::
        x_t = Q\, [(\theta_t, \theta'_t) + \text{noise}], \qquad Q \in \mathbb R^{D \times 2},\ Q^T Q = I

    scaled by one affine map, so that all observations lie in [-1, 1]. One swing of `n_points`, released from
    rest at theta0: the first `n_train` points train, the next `n_valid` validate, the rest test.

    Input (B, 1, D): x_t. Target (B, K D): x from t - back_steps to t + steps, K = back_steps + 1 + steps. In
    test the target is without noise, the input not. Loss:

    .. math::
        \sum_{k=1}^{steps} |\hat x_{t+k} - x_{t+k}|^2 + \lambda\, steps\, |\hat x_t - x_t|^2
        + \nu \sum_{k=1}^{back} |\hat x_{t-k} - x_{t-k}|^2

    with means over the variables. Metrics: rmse_ahead over the `steps` next observations; rmse_now.

    Defined in: target: talk, slide "High-dimensional Nonlinear Pendulum with no Friction", "over a time
    horizon of 1000 steps", theta0 = 0.8 and 2.4, clean and noisy; metric: "prediction errors", ibid., drawn
    relative to the observations; split: not in the talk: the first part of one swing trains.

    Source: Azencot et al., ICML 2020, https://arxiv.org/abs/2003.02236, and its code; talk of M. Mahoney
    (January 2022), "High-dimensional Nonlinear Pendulum with no Friction".
    Departures: a part of what the code tests on validates here; noise and clean observations are scaled
    alike, in the code each by its own extremes; Q is that of numpy's `default_rng`.

    Args: theta0: angle at the start, below pi; noise: standard deviation, before scaling; n_points, n_train,
        n_valid: points; dt: time between them; ratio: g / l; n_features: D; steps, back_steps: of a window;
        lamb, nu: factors of the loss; data_seed: of Q and noise; protocol: "clean".
    """

    readout: ClassVar[Readout] = "last"
    metric: ClassVar[str] = "rmse_ahead"
    better: ClassVar[Better] = {"rmse_ahead": "lower", "rmse_now": "lower"}

    def __init__(
        self,
        *,
        theta0: float,
        noise: float,
        n_points: int,
        n_train: int,
        n_valid: int,
        dt: float,
        ratio: float,
        n_features: int,
        steps: int,
        back_steps: int,
        lamb: float,
        nu: float,
        data_seed: int,
        protocol: str,
    ) -> None:
        one_of("protocol", protocol, ("clean",))
        _below_pi("theta0", theta0)
        each(positive, dt=dt, ratio=ratio)
        each(non_negative, noise=noise, back_steps=back_steps, lamb=lamb, nu=nu)
        each(count, n_features=n_features, steps=steps)
        seed("data_seed", data_seed)
        width = back_steps + 1 + steps
        parts = {"n_train": n_train, "n_valid": n_valid, "what n_points leaves": n_points - n_train - n_valid}
        for name, n in parts.items():
            if n < width:
                raise InputError(f"{name} must hold a window of {width} points; got {n}.")
        if n_features < 2:
            raise InputError(f"n_features must be at least 2, for angle and velocity; got {n_features}.")
        self.theta0, self.noise, self.dt, self.ratio = float(theta0), float(noise), float(dt), float(ratio)
        self.n_points, self.data_seed, self.protocol = n_points, data_seed, protocol
        self.steps, self.back_steps, self.lamb, self.nu = steps, back_steps, float(lamb), float(nu)
        self.d_in, self.d_out = n_features, width * n_features
        self._cuts: dict[Part, tuple[int, int]] = {
            "train": (0, n_train),
            "valid": (n_train, n_train + n_valid),
            "test": (n_train + n_valid, n_points),
        }
        self.sizes = {part: end - start - width + 1 for part, (start, end) in self._cuts.items()}

    def load(self, store: Store, split: int) -> None:
        rng = np.random.default_rng(self.data_seed)
        swing = released(self.theta0, self.dt * np.arange(self.n_points), self.ratio)
        Q = np.linalg.qr(rng.normal(size=(self.d_in, 2)))[0]
        clean = swing @ Q.T
        seen = (swing + self.noise * rng.normal(size=swing.shape)) @ Q.T
        low, size = seen.min(), np.ptp(seen)
        self._seen, self._clean = (torch.from_numpy(2 * (x - low) / size - 1).float() for x in (seen, clean))

    def to(self, device: str) -> None:
        self._seen, self._clean = self._seen.to(device), self._clean.to(device)

    def test_points(self) -> tuple[Tensor, Tensor]:
        """All observations of test with and without noise: (P, D) each."""
        start, end = self._cuts["test"]
        return self._seen[start:end], self._clean[start:end]

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        positive("size", size)
        start, end = self._cuts[part]
        points = (self._clean if part == "test" else self._seen)[start:end]
        windows = points.unfold(0, self.back_steps + 1 + self.steps, 1).transpose(1, 2)  # (N, K, D)
        now = self._seen[start:end][self.back_steps :]
        for index in self.selections(part, size, rng):
            index = index.to(points.device)
            yield Batch(input=now[index].unsqueeze(1), target=windows[index].flatten(1), index=index)

    def _windows(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, K D) as past, now and ahead: (B, back, D), (B, 1, D), (B, steps, D)."""
        x = x.unflatten(1, (-1, self.d_in))
        past, now, ahead = x.split([self.back_steps, 1, self.steps], 1)
        return past, now, ahead

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        pairs = list(zip(self._windows(output), self._windows(batch.target), strict=True))
        (past, now, ahead) = (F.mse_loss(a, b) if a.numel() else a.new_zeros(()) for a, b in pairs)
        return self.steps * (ahead + self.lamb * now) + self.nu * self.back_steps * past

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        _, now, ahead = self._windows((output.detach().double() - batch.target).square())
        return totals({"rmse_ahead": ahead, "rmse_now": now})

    def finish(self, sums: Sums) -> Metrics:
        return roots(sums, self.better)

    def references(self) -> dict[str, Metrics]:
        """The observation itself for all of the window; the mean of train."""
        start, end = self._cuts["train"]
        mean = self._seen[start:end].mean(0)
        width = self.back_steps + 1 + self.steps
        return {
            "persistence": score_reference(self, lambda batch: batch.input[:, 0].repeat(1, width)),
            "constant": score_reference(self, lambda batch: mean.repeat(len(batch.target), width)),
        }

    def facts(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "sizes": dict(self.sizes),
            "sha256": {},
            "fingerprint": "none: the solution is exact",
        }


def _below_pi(name: str, angle: float) -> None:
    positive(name, angle)
    if not angle < np.pi:
        raise InputError(f"{name} must lie below pi, where a pendulum stands on its head; got {angle}.")
