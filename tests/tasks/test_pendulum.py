"""The pendulum: its exact solution, what is drawn from it, and the losses."""

from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from scipy.integrate import solve_ivp

from physml.data.store import Store
from tasks.pendulum import Pendulum, PendulumWindows, released

SMALL: dict[str, Any] = {
    **{"n_train": 3, "n_valid": 2, "n_test": 4, "n_points": 9, "dt": 0.25, "ratio": 1.0, "amplitude": 2.4},
    **{"noise": 0.0, "data_seed": 1, "protocol": "clean"},
}
WINDOWS: dict[str, Any] = {
    **{"theta0": 2.4, "noise": 0.0, "n_points": 60, "n_train": 30, "n_valid": 15, "dt": 0.1, "ratio": 9.81},
    **{"n_features": 5, "steps": 3, "back_steps": 2, "lamb": 1.0, "nu": 0.1, "data_seed": 1},
    "protocol": "clean",
}


@pytest.mark.parametrize(("theta0", "ratio"), [(0.8, 9.81), (-2.4, 1.0), (3.1, 9.81)])
def test_the_solution_is_that_of_a_solver(theta0: float, ratio: float) -> None:
    t = np.linspace(0, 12, 50)

    def slope(_: float, y: np.ndarray) -> tuple[float, float]:
        return y[1], -ratio * np.sin(y[0])

    solution = solve_ivp(slope, (0, 12), (theta0, 0), "DOP853", t, rtol=1e-11, atol=1e-12).y.T
    assert np.abs(released(theta0, t, ratio) - solution).max() < 1e-7


def test_targets_are_the_next_points_and_noise_is_on_train_and_valid_alone(store: Store) -> None:
    clean, noisy = (with_data(Pendulum(**SMALL | {"noise": x}), store) for x in (0.0, 0.3))
    for part in ("train", "valid", "test"):
        a, b = (whole(task, part) for task in (clean, noisy))
        assert a.input.shape == (SMALL[f"n_{part}"], 8, 2)
        assert torch.equal(a.input[:, 1:], a.target[:, :-1])
        assert torch.equal(a.input, b.input) == (part == "test")
    swing = clean.exact(clean.swings()[:, 0, 0], 0.25 * np.arange(9))
    assert torch.allclose(swing.float(), clean.swings(), atol=1e-6)


def test_windows_lie_around_their_observation_and_their_loss_is_that_by_hand(store: Store) -> None:
    task = with_data(PendulumWindows(**WINDOWS | {"noise": 0.1}), store)
    assert task.sizes == {"train": 25, "valid": 10, "test": 10}
    batch = whole(task)
    behind, now, ahead = (batch.target.unflatten(1, (6, 5))[:, part] for part in (slice(2), 2, slice(3, 6)))
    assert torch.equal(batch.input[:, 0], now)
    assert torch.equal(ahead[:-1, 0], now[1:]) and torch.equal(behind[1:, 1], now[:-1])
    seen, clean = task.test_points()
    batch = whole(task, "test")
    assert torch.equal(batch.input[:, 0], seen[2:12])
    assert torch.equal(batch.target[:, 10:15], clean[2:12])
    assert seen.abs().max() <= 1 and not torch.equal(seen, clean)
    assert torch.linalg.matrix_rank(clean - clean.mean(0), atol=1e-4) == 2
    task = with_data(PendulumWindows(**WINDOWS), store)
    batch = next(iter(task.batches("train", 4)))
    output = torch.randn(4, 30, generator=torch.Generator().manual_seed(0))
    square = (output - batch.target).square().unflatten(1, (6, 5)).mean((0, 2))  # by point
    loss = float(square[3:].sum() + 3 * square[2] + 0.1 * square[:2].sum())
    assert float(task.loss(output, batch)) == pytest.approx(loss, rel=1e-5)
    metrics = task.finish(task.score(output, batch))
    assert metrics["rmse_now"] == pytest.approx(float(square[2].sqrt()), rel=1e-5)
    assert metrics["rmse_ahead"] == pytest.approx(float(square[3:].mean().sqrt()), rel=1e-5)
    alone = with_data(PendulumWindows(**WINDOWS | {"back_steps": 0, "nu": 0.0}), store)
    batch = next(iter(alone.batches("train", 4)))
    assert float(alone.loss(batch.target, batch)) == 0.0
