"""Hodgkin-Huxley: the solver against another one, what a neuron does, the equations as printed."""

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from scipy.integrate import solve_ivp

from physml.base.errors import InputError
from physml.task.trivial import score_reference
from tasks import hodgkin_huxley
from tasks.hodgkin_huxley import HodgkinHuxley, at_rest, rates, slope, trajectories

FULL = {"n_points": 501, "t_end": 100.0, "data_seed": 1234, "protocol": "clean"}
SHORT = {**FULL, "n_points": 101, "t_end": 20.0}


@pytest.fixture(scope="module")
def task(store) -> HodgkinHuxley:
    return with_data(HodgkinHuxley(n_train=8, n_valid=2, n_test=5, **SHORT), store)


def spikes(y: np.ndarray) -> np.ndarray:
    """The points at which y comes up through 50 mV."""
    return np.flatnonzero((y[1:] > 50) & (y[:-1] <= 50))


def reference(y0: float, u: float, t: np.ndarray) -> np.ndarray:
    """The equations of 1952, written for the voltage below rest, V = -y, as there; at tight tolerance."""

    def right(_t: float, x: np.ndarray) -> list[float]:
        V, n, m, h = x.tolist()
        an, bn = 0.01 * (V + 10) / (np.exp((V + 10) / 10) - 1), 0.125 * np.exp(V / 80)
        am, bm = 0.1 * (V + 25) / (np.exp((V + 25) / 10) - 1), 4 * np.exp(V / 18)
        ah, bh = 0.07 * np.exp(V / 20), 1 / (np.exp((V + 30) / 10) + 1)
        current = 36 * n**4 * (V - 12) + 120 * m**3 * h * (V + 115) + 0.3 * (V + 10.613)
        return [-u - current, an * (1 - n) - bn * n, am * (1 - m) - bm * m, ah * (1 - h) - bh * h]

    start = [-y0, *at_rest(np.zeros(1))[:, 0]]
    solution = solve_ivp(right, (0, t[-1]), start, method="DOP853", t_eval=t, rtol=1e-11, atol=1e-12).y
    return np.concatenate([-solution[:1], solution[1:]]).T


def test_the_solver_agrees_with_another_one_to_an_error_of_fourth_order():
    t = np.linspace(0, 30, 61)
    paths = trajectories(np.array([7.3, -15.0]), np.array([9.0, 19.0]), 61, 30.0)
    for i, (y0, u) in enumerate([(7.3, 9.0), (-15.0, 19.0)]):
        exact = reference(y0, u, t)
        np.testing.assert_allclose(paths[i, :, 0], exact[:, 0], atol=5e-3)
        np.testing.assert_allclose(paths[i, :, 1:], exact[:, 1:], atol=2e-5)
        assert len(spikes(paths[i, :, 0])) >= 2
    start, exact = (np.array([5.0]), np.array([10.0])), reference(5.0, 10.0, np.linspace(0, 10, 11))
    coarse, fine = (np.abs(trajectories(*start, 11, 10.0, step=h)[0] - exact).max() for h in (0.05, 0.025))
    assert 12 < coarse / fine < 40


def test_it_rests_without_a_current_and_fires_with_one():
    """Hodgkin and Huxley: an action potential of about 100 mV, more often with a larger current."""
    y = trajectories(np.zeros(3), np.array([0.0, 8.0, 20.0]), 401, 40.0)[..., 0]
    assert np.abs(y[0]).max() < 0.02
    assert 95 < y[1].max() < 110 and 95 < y[2].max() < 110
    slow, fast = (np.diff(spikes(path))[-1] * 0.1 for path in y[1:])
    assert 15 < slow < 17 and 11 < fast < 12.5
    # gates are regular where their formula is not
    for at in (10.0, 25.0):
        around = rates(np.array([at - 1e-5, at, at + 1e-5]))[0]
        np.testing.assert_allclose(around[:, 1], around.mean(1), rtol=1e-8)


def test_5_4_as_printed_cannot_hold_these_equations():
    """For one voltage (5.4) is F(z) H(y) - G(y) y: differences over z would be products, a matrix of rank 1.

    Sodium and potassium have different reversal potentials, so it is of rank 2: a sum of two products.
    """
    rng = np.random.default_rng(0)
    y, z = rng.uniform(-10, 100, 7), rng.uniform(0, 1, (3, 6))
    state = np.concatenate([np.broadcast_to(y, (6, 7))[None], np.repeat(z[..., None], 7, 2)])
    right = slope(state, np.zeros(()))[0]
    values = np.linalg.svd(right[1:] - right[0], compute_uv=False)
    assert values[1] > 1e-2 * values[0]
    assert values[2] < 1e-12 * values[0]


def test_5_5_as_printed_does_not_fire_at_its_threshold(monkeypatch):
    """With exp(1 ..) in beta_3 sodium is less available at rest, and a current of 8 gives no spikes."""

    def printed(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        alpha, beta = rates(y)
        beta[2] = 1 / (1 + np.exp(1 - y / 10))
        return alpha, beta

    right = trajectories(np.zeros(1), np.array([8.0]), 226, 45.0)[0]
    monkeypatch.setattr(hodgkin_huxley, "rates", printed)
    wrong = trajectories(np.zeros(1), np.array([8.0]), 226, 45.0)[0]
    assert right[0, 3] > 0.55 > 0.25 > wrong[0, 3]
    assert (len(spikes(right[:, 0])), len(spikes(wrong[:, 0]))) == (3, 0)


def test_input_and_target_are_one_step_apart_and_in_units_of_100_mv(task):
    (batch,) = task.batches("train", 100)
    assert batch.input.shape == batch.target.shape == (8, 100, 1)
    assert torch.equal(batch.input[:, 1:], batch.target[:, :-1])
    rng = np.random.RandomState(1234)
    assert batch.input[:, 0, 0].numpy() == pytest.approx(rng.uniform(-20, 20, 8) / 100, abs=1e-7)
    path = trajectories(batch.input[:1, 0, 0].numpy() * 100.0, rng.uniform(8, 20, 8)[:1], 101, 20.0)
    assert batch.target[0, :, 0].numpy() == pytest.approx(path[0, 1:, 0] / 100, abs=1e-4)


def test_the_scores_by_an_independent_computation_and_trivial_references_in_order(task):
    (batch,) = task.batches("test", 100)
    want = batch.target.double().numpy()
    got = (want + np.random.default_rng(0).normal(size=want.shape)).astype(np.float32)
    error = (100 * (got - want)) ** 2
    metrics = score_reference(task, lambda batch: torch.from_numpy(got)[batch.index], size=2)
    expected = {"rmse_mv": np.sqrt(error.mean()), "rmse_late_mv": np.sqrt(error[:, 50:].mean())}
    assert metrics == pytest.approx(expected, rel=1e-6)
    errors = {name: metrics["rmse_mv"] for name, metrics in task.references().items()}
    assert errors["constant"] > 2 * errors["persistence"] > 2.5 * errors["linear_2"] > 0


def test_the_fewest_points_have_one_late_step_and_the_fingerprint_notices_other_data() -> None:
    with pytest.raises(InputError, match="n_points must be at least 52, to have a step 51; got 51"):
        HodgkinHuxley(n_train=1, n_valid=1, n_test=1, **FULL | {"n_points": 51})
    assert HodgkinHuxley(n_train=1, n_valid=1, n_test=1, **FULL | {"n_points": 52}).n_points == 52
    task = HodgkinHuxley(n_train=128, n_valid=1, n_test=1, **FULL)
    rng = np.random.RandomState(1234)
    # The first sequences of 128: starts are drawn before currents.
    y0, u = rng.uniform(-20, 20, 128)[:4], rng.uniform(8, 20, 128)[:4]
    path = trajectories(y0, u, 101, 20.0)[..., 0] / 100
    task._paths = {"train": torch.from_numpy(path).float().unsqueeze(-1)}
    assert task.fingerprint() == "matches"
    task._paths["train"] += 1e-2
    assert task.fingerprint().startswith("differs by ")
    other = HodgkinHuxley(n_train=8, n_valid=1, n_test=1, **FULL | {"n_points": 61})
    assert other.fingerprint() == "none for these arguments"
