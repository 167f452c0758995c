"""Lorenz-96: the equations, the order of the solver, the NRMSE, the trivial references."""

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from scipy.integrate import solve_ivp

from physml.base.paths import CONF
from physml.config.load import read_yaml
from physml.task.trivial import score_reference
from tasks.lorenz96 import Lorenz96, slope, trajectories

OURS = ("_target_", "smoke", "forcing", "n_train", "n_valid", "n_test")
PAPER = {k: v for k, v in read_yaml(CONF / "task" / "lorenz96.yaml").items() if k not in OURS}


@pytest.fixture(scope="module", params=[0.9, 8.0])
def task(request, store) -> Lorenz96:
    return with_data(Lorenz96(forcing=request.param, n_train=64, n_valid=16, n_test=64, **PAPER), store)


def states(n: int = 7) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 5)) * 3


def test_the_right_hand_side_is_the_published_one_and_its_quadratic_part_conserves_energy() -> None:
    # Written out for i = 1..5, with indices that wrap around.
    for x in states():
        a, b, c, d, e = x
        want = [(b - d) * e - a, (c - e) * a - b, (d - a) * b - c, (e - b) * c - d, (a - c) * d - e]
        assert slope(x[None], 8.0)[0] == pytest.approx(np.array(want) + 8, rel=1e-13)
    # d/dt |x|^2 / 2 = -|x|^2 + F sum(x): the advection neither makes nor takes energy.
    # The divergence of the vector field is -5 everywhere.
    x, h = states(100), 1e-6
    assert (x * slope(x, 8.0)).sum(1) == pytest.approx(-(x**2).sum(1) + 8.0 * x.sum(1), rel=1e-10)
    for x in states():
        change = slope(x + h * np.eye(5), 8.0) - slope(x - h * np.eye(5), 8.0)
        assert np.trace(change) / (2 * h) == pytest.approx(-5, rel=1e-6)


def test_the_solver_has_order_four_and_at_forcing_8_its_step_is_part_of_the_data() -> None:
    start = 8 + np.random.default_rng(1).uniform(-0.5, 0.5, (3, 5))
    end = {n: trajectories(start, 8.0, 2, 0.5, n)[:, -1] for n in (25, 50, 100, 1600)}
    error = {n: np.abs(end[n] - end[1600]).max() for n in (25, 50, 100)}
    assert error[25] / error[50] == pytest.approx(16, rel=0.25)
    assert error[50] / error[100] == pytest.approx(16, rel=0.25)
    ours = trajectories(start, 8.0, 101, 0.01, 4)[0]
    t, tight = np.linspace(0, 1, 101), {"rtol": 1e-12, "atol": 1e-12}
    theirs = solve_ivp(lambda _, x: slope(x[None], 8.0)[0], (0, 1), start[0], "DOP853", t, **tight)
    assert np.abs(ours - theirs.y.T).max() < 1e-4
    for forcing, low, high in ((0.9, 0.0, 1e-7), (8.0, 1.0, 100.0)):
        start = forcing + np.random.default_rng(2).uniform(-0.5, 0.5, (16, 5))
        once, twice = (trajectories(start, forcing, 1500, 0.01, steps)[:, -1] for steps in (1, 2))
        assert low <= np.abs(once - twice).max() <= high


def test_starts_and_parts_and_a_target_that_is_the_state_25_points_later(task):
    batches = {part: next(task.batches(part, 1000)) for part in ("train", "valid", "test")}
    assert [len(b.input) for b in batches.values()] == [64, 16, 64]
    starts = torch.cat([b.input[:, 0] for b in batches.values()])
    draws = np.random.RandomState(1234).uniform(-0.5, 0.5, (144, 5))
    assert starts.numpy() == pytest.approx(task.forcing + draws, abs=1e-6)
    batch = batches["test"]
    assert batch.input.shape == batch.target.shape == (64, 1975, 5)
    assert torch.equal(batch.input[:, 25:], batch.target[:, :-25])


def test_nrmse_by_an_independent_computation_and_trivial_references_near_the_measured_ones(task):
    rng = np.random.default_rng(0)
    want = next(task.batches("test", 1000)).target.double().numpy()
    got = (want + rng.normal(size=want.shape)).astype(np.float32)
    metrics = score_reference(task, lambda batch: torch.from_numpy(got)[batch.index], size=7)
    expected = np.sqrt(((got - want) ** 2).mean()) / np.sqrt((want**2).mean())
    assert metrics == pytest.approx({"nrmse": expected}, rel=1e-6)
    # Measured on other trajectories, the linear map fitted and scored on the same ones.
    want = {
        0.9: {"constant": 0.147, "persistence": 0.050, "linear": 0.0070},
        8.0: {"constant": 0.85, "persistence": 0.99, "linear": 0.63},
    }[task.forcing]
    errors = {name: metrics["nrmse"] for name, metrics in task.references().items()}
    assert errors == pytest.approx(want, rel=0.2 if task.forcing < 1 else 0.02)


def test_the_fingerprint_matches_and_notices_another_step(task, store, monkeypatch):
    assert task.facts()["fingerprint"] == "matches"
    if task.forcing == 8.0:
        x0 = task._paths["train"][:4, 0].double().numpy()
        path = torch.from_numpy(trajectories(x0, 8.0, 501, 0.01, 4)).float()
        monkeypatch.setitem(task._paths, "train", torch.cat([path, path[:, -1:].expand(-1, 1499, -1)], 1))
        assert task.facts()["fingerprint"].startswith("differs by ")
    other = with_data(Lorenz96(forcing=7.5, n_train=4, n_valid=1, n_test=1, **PAPER), store)
    assert other.facts()["fingerprint"] == "none for these arguments"
