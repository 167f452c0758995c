"""FitzHugh-Nagumo: the data of the official code, its four scores, its trivial references."""

import math

import numpy as np
import pytest
import torch
from loaded_tasks import with_data

from physml.task.trivial import score_reference
from tasks import fitzhugh_nagumo
from tasks.fitzhugh_nagumo import FitzHughNagumo, autoregression, trajectories

FULL = {"n_points": 1001, "t_end": 400.0, "data_seed": 1234, "protocol": "official"}


@pytest.fixture(scope="module")
def task(store) -> FitzHughNagumo:
    """Full length, fewer sequences; a test part longer than the 128 that the official score keeps."""
    return with_data(FitzHughNagumo(n_train=32, n_valid=8, n_test=140, **FULL), store)


def v(task: FitzHughNagumo, part: str) -> torch.Tensor:
    (batch,) = task.batches(part, 10_000)
    return torch.cat([batch.input, batch.target[:, -1:]], 1).squeeze(-1)


def test_target_is_input_one_step_later_and_starts_and_the_order_of_training_are_drawn(task):
    """Starts for train, valid and test, in this order."""
    (batch,) = task.batches("train", 100)
    assert batch.input.shape == batch.target.shape == (32, 1000, 1)
    assert torch.equal(batch.input[:, 1:], batch.target[:, :-1])
    starts = torch.cat([v(task, part)[:, 0] for part in ("train", "valid", "test")])
    assert starts.numpy() == pytest.approx(np.random.RandomState(1234).uniform(-1, 1, 180), abs=1e-7)
    first, again = (torch.Generator().manual_seed(0) for _ in range(2))
    order = torch.cat([b.index for b in task.batches("train", 10, first)])
    assert torch.equal(order, torch.randperm(32, generator=again))


def test_the_solution_and_the_right_hand_side_obey_the_published_equations():
    """At tight tolerances: v' from differences of v, with w from its exact linear equation driven by v."""
    points, t_end = 8001, 40.0
    (path,) = trajectories(np.array([0.3]), points, t_end, rtol=1e-10, atol=1e-12)
    h = t_end / (points - 1)
    w = np.zeros(points)
    decay = math.exp(-0.016 * h)
    for i in range(1, points):
        push = (path[i - 1] + path[i]) / 2 + 0.7
        w[i] = decay * w[i - 1] + push * (1 - decay) / 0.8
    slope = (path[2:] - path[:-2]) / (2 * h)
    want = path - path**3 / 3 - w + 0.5
    assert np.abs(slope - want[1:-1]).max() < 1e-4
    v0, w0 = 0.3, -0.2
    dv, dw = fitzhugh_nagumo._slope(0.0, np.array([v0, w0]))
    assert dv == pytest.approx(v0 - v0**3 / 3 - w0 + 0.5, rel=1e-15)
    assert dw == pytest.approx(0.02 * (v0 + 0.7 - 0.8 * w0), rel=1e-15)


def test_the_data_differ_from_the_exact_solution_and_each_trajectory_is_integrated_alone(task):
    """Documents that the solver is part of the data: about 4e-2 rms, and growing along the trajectory."""
    ours = v(task, "train")[:6].numpy()
    exact = trajectories(np.random.RandomState(1234).uniform(-1, 1, 6), 1001, 400.0, rtol=1e-9, atol=1e-11)
    assert 0.02 < np.sqrt(((ours - exact) ** 2).mean()) < 0.08
    assert np.abs(ours - exact)[:, :100].mean() < np.abs(ours - exact)[:, -100:].mean()
    # The steps, and so the values, of one trajectory don't depend on the others.
    start = np.random.RandomState(1234).uniform(-1, 1, 3)
    together, alone = (trajectories(starts, 1001, 400.0) for starts in (start, start[2:]))
    assert np.array_equal(together[2], alone[0])


def test_the_fingerprint_matches_and_notices_another_solver(task, store, monkeypatch):
    assert task.facts()["fingerprint"] == "matches"
    exact = trajectories(np.random.RandomState(1234).uniform(-1, 1, 4), 1001, 400.0, rtol=1e-9, atol=1e-11)
    monkeypatch.setitem(task._paths, "train", torch.from_numpy(exact).float().unsqueeze(-1))
    assert task.facts()["fingerprint"].startswith("differs by ")
    changes = {"data_seed": 1, "n_points": 26, "t_end": 10}
    other = with_data(FitzHughNagumo(n_train=4, n_valid=1, n_test=1, **FULL | changes), store)
    assert other.facts()["fingerprint"] == "none for these arguments"


def test_the_four_scores_by_hand_of_which_the_official_one_looks_at_the_last_sequences(task) -> None:
    rng = np.random.default_rng(0)
    want = v(task, "test")[:, 1:].double().numpy()
    got = (want + rng.normal(size=want.shape)).astype(np.float32)
    error = (got - want) ** 2
    metrics = score_reference(task, lambda batch: torch.from_numpy(got)[batch.index].unsqueeze(-1), size=33)
    squares = {"rmse": error, "rmse_last128": error[12:], "rmse_from11": error[:, 10:]}
    squares["rmse_step1"] = error[:, 0]
    assert metrics == pytest.approx({name: np.sqrt(e.mean()) for name, e in squares.items()}, rel=1e-6)
    # A perfect answer for the last 128 of 140 sequences.
    metrics = score_reference(task, lambda batch: batch.target + (batch.index < 12).float()[:, None, None])
    assert metrics["rmse_last128"] == 0
    assert metrics["rmse"] == pytest.approx(math.sqrt(12 / 140), rel=1e-5)
    assert task.scoring == {**dict.fromkeys(task.better, "clean"), "rmse_last128": "official"}
    metrics = score_reference(task, lambda batch: batch.input, part="valid")  # of 8 sequences
    assert metrics["rmse"] == pytest.approx(metrics["rmse_last128"], rel=1e-12)


def test_trivial_references_are_near_the_measured_ones_and_find_a_linear_recurrence(task) -> None:
    # Measured on other trajectories: std 1.48, persistence 7.9e-2, linear 2.8e-2, 1.3e-2, 0.96e-2.
    rmse = {name: metrics["rmse_from11"] for name, metrics in task.references().items()}
    linear = {"linear_2": 2.8e-2, "linear_4": 1.3e-2, "linear_8": 0.96e-2}
    assert rmse == pytest.approx({"constant": 1.48, "persistence": 7.9e-2, **linear}, rel=0.1)
    rng = np.random.default_rng(0)
    x = np.zeros((50, 40))
    x[:, :2] = rng.normal(size=(50, 2))
    for i in range(2, 40):
        x[:, i] = 1.6 * x[:, i - 1] - 0.9 * x[:, i - 2] + 0.1
    maps = autoregression(torch.from_numpy(x), 2)
    assert maps[-1].flatten().tolist() == pytest.approx([-0.9, 1.6, 0.1], abs=1e-9)
