"""Theorems 1 and 2 of the talk: global stability of Lipschitz networks, noise as a regulariser."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runge_kutta import solved
from torch import nn

from physml.models.sequence.leaky import LeakyRNN
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.noisy import NoisyRNN
from physml.ops.backend import running

drawn = settings(derandomize=True, deadline=None, max_examples=8)
seeds = st.integers(0, 2**31)


def steps(A: np.ndarray, W: np.ndarray, h: np.ndarray, b: np.ndarray, t_end: float, dt: float) -> np.ndarray:
    """h' = A h + tanh(W h + b), h (.., n) at t = 0, dt .."""
    return solved(lambda _, h: h @ A.T + np.tanh(h @ W.T + b), h, t_end, dt)


def split(seed: int, n: int, beta: float, gamma: float) -> np.ndarray:
    """(7) of a drawn matrix."""
    M = np.random.default_rng(seed).standard_normal((n, n)) / np.sqrt(n)
    return (1 - beta) * (M + M.T) + beta * (M - M.T) - gamma * np.eye(n)


@drawn
@given(seed=seeds, n=st.integers(1, 5), beta=st.floats(0, 1), excess=st.floats(0.05, 2))
def test_theorem_1_all_trajectories_meet_exponentially(seed: int, n: int, beta: float, excess: float) -> None:
    """For tanh, M = 1. The rate is sigma_min(A_sym) - sigma_max(W), for W singular as well."""
    W = split(seed + 1, n, 0.5, 0.3)
    top = np.linalg.norm(W, 2)
    A = split(seed, n, beta, 0.0)
    A -= (np.linalg.eigvalsh((A + A.T) / 2).max() + top + excess) * np.eye(n)
    start = 5 * np.random.default_rng(seed + 2).standard_normal((2, n))
    path = steps(A, W, start, np.ones(n), 4.0, 0.02)
    apart = np.linalg.norm(path[:, 0] - path[:, 1], axis=-1)
    t = 0.02 * np.arange(len(apart))
    assert (apart <= apart[0] * np.exp(-excess * t) * (1 + 1e-4) + 1e-9).all()


def test_theorem_1_is_broken_by_a_larger_w() -> None:
    """A = -1, W = 2: h = tanh(2h) has three solutions, and trajectories stay apart."""
    path = steps(-np.eye(1), 2 * np.eye(1), np.array([[0.1], [-0.1]]), np.zeros(1), 40.0, 0.05)
    assert path[-1, 0, 0] == pytest.approx(0.957504, abs=1e-4)
    assert path[-1, 0, 0] - path[-1, 1, 0] > 1.9


@pytest.mark.parametrize(("gamma_a", "forgets"), [(3.0, True), (1.0, False)])
def test_theorem_1_for_the_lipschitz_rnn(gamma_a: float, forgets: bool) -> None:
    """A = -gamma_a I plus a skew part, W near 2I: two states meet for gamma_a > |W|, not for gamma_a = 1."""
    layer = LipschitzRNN(1, 4, dt=0.01, beta_a=1.0, beta_w=0.0, gamma_a=gamma_a, gamma_w=0.0).double()
    with torch.no_grad(), running("reference"):
        layer.MW.copy_(torch.eye(4))
        layer.b.zero_()
        A, W = layer.matrices()
        gap = -torch.linalg.eigvalsh((A + A.T) / 2).max() - torch.linalg.matrix_norm(W, 2)
        state = torch.stack([torch.full((4,), 0.5), torch.full((4,), -0.5)]).double()
        y, _ = layer(torch.zeros(2, 800, 1, dtype=torch.double), (state,))
    apart = (y[0] - y[1]).norm(dim=-1)
    assert (float(gap) > 0.9) == forgets
    assert float(apart[-1]) < 0.01 if forgets else float(apart[-1]) > 1


D = 0.3  # delta, the step
M_STEPS = 4
INPUTS = (0.7, -0.4, 0.5, 0.2)  # U x + b at each step


def drift(h: np.ndarray, k: int) -> np.ndarray:
    """f of (14) at step k, whose input differs from step to step; h (.., 1)."""
    return -0.5 * h + np.tanh(1.3 * h + INPUTS[k])


def drift_1(h: float, k: int) -> float:
    return -0.5 + 1.3 * (1 - np.tanh(1.3 * h + INPUTS[k]) ** 2)


def drift_2(h: float, k: int) -> float:
    t = np.tanh(1.3 * h + INPUTS[k])
    return -2 * 1.3**2 * t * (1 - t**2)


def noise(h: np.ndarray, k: int) -> np.ndarray:
    """sigma of (15) over epsilon: additive and multiplicative."""
    return 0.8 + 0.6 * drift(h, k)


def loss(h: np.ndarray) -> np.ndarray:
    return np.exp(h) + h**2


def additive(h: np.ndarray, k: int) -> np.ndarray:
    """The same where sigma_2 = 0."""
    return np.full_like(h, 0.8)


def expected_loss(
    epsilon: float, delta: float = D, n: int = M_STEPS, noise: Callable[..., np.ndarray] = noise
) -> float:
    """E l(h_M) of the Euler-Maruyama steps, by Gauss-Hermite quadrature over all noises at once."""
    x, w = np.polynomial.hermite_e.hermegauss(7)
    w = w / w.sum()
    h, weight = np.array([0.4]), np.ones(1)
    for k in range(n):
        step = h + delta * drift(h, k)
        spread = epsilon * np.sqrt(delta) * noise(h, k)
        h = (step[:, None] + spread[:, None] * x).ravel()
        weight = (weight[:, None] * w).ravel()
    return float(weight @ loss(h))


def terms(
    delta: float, *, as_printed: bool = False, n: int = M_STEPS, noise: Callable[..., np.ndarray] = noise
) -> tuple[float, float]:
    """Q of (17) and R of (18) for one unit.

    The noise of step m is carried to step k - 1, where the second derivative of f turns its variance into a
    shift. (17) and (19) print M in place of this k.
    """
    h = [0.4]
    for k in range(n):
        h.append(float(h[-1] + delta * drift(np.array(h[-1]), k)))
    spread = [float(noise(np.array(h[k]), k)) for k in range(n)]

    def Phi(m: int, k: int) -> float:
        """From h_m to h_k."""
        return float(np.prod([1 + delta * drift_1(h[i], i) for i in range(m, k)]))

    slope, curve = np.exp(h[n]) + 2 * h[n], np.exp(h[n]) + 2
    R = sum(delta * curve * (Phi(m, n) * spread[m - 1]) ** 2 for m in range(1, n + 1))
    Q = 0.0
    for k in range(1, n + 1):
        to = n if as_printed else k
        v = [drift_2(h[to - 1], to - 1) * (Phi(m, to - 1) * spread[m - 1]) ** 2 for m in range(1, to)]
        Q += delta * Phi(k, n) * delta * sum(v)
    return float(slope * Q), float(R)


def second_order(expected: Callable[[float], float]) -> float:
    """2 (E l(h_M) - l(h)) / epsilon^2 for epsilon to 0, by extrapolation."""
    coarse, fine = (2 * (expected(e) - expected(0.0)) / e**2 for e in (2e-2, 1e-2))
    return (4 * fine - coarse) / 3


@pytest.mark.parametrize("delta", [0.3, 0.1])
def test_theorem_2_with_the_step_of_its_own_noise(delta: float) -> None:
    coefficient = second_order(lambda epsilon: expected_loss(epsilon, delta))
    assert coefficient == pytest.approx(sum(terms(delta)), rel=1e-5)


def layer_of_theorem_2(name: str, epsilon: float) -> nn.Module:
    """A layer whose training steps have the drift f of (14), and its noise where sigma_2 = 0."""
    theta = epsilon * np.sqrt(D) * 0.8
    if name == "leaky":
        layer: nn.Module = LeakyRNN(1, 1, alpha=1 - D / 2, beta=D, theta=theta).double()
        values = {"W": 1.3, "V": 1.0, "b": 0.0}
    else:
        spectrum = {"beta_a": 0.5, "beta_w": 0.5, "gamma_a": 0.5, "gamma_w": 0.0}
        layer = NoisyRNN(1, 1, dt=D, mult_noise=0.0, add_noise=theta, **spectrum).double()
        values = {"MA": 0.0, "MW": 1.3, "U": 1.0, "b": 0.0, "d": D}
    with torch.no_grad():
        for symbol, value in values.items():
            layer.symbols()[symbol].fill_(value)
    return layer.train()


@pytest.mark.parametrize("name", ["leaky", "noisy"])
def test_theorem_2_is_about_the_training_steps_of_the_layers(name: str, monkeypatch) -> None:
    """Where noise is additive; that of `NoisyRNN` by factors is not (15), it has a mean and its own draws.

    The batch has a row for each node of the quadrature, which the layer is given in place of its noise.
    """
    x, w = np.polynomial.hermite_e.hermegauss(7)
    xi = torch.from_numpy(np.stack(np.meshgrid(*[x] * M_STEPS, indexing="ij"), -1).reshape(-1, M_STEPS, 1))
    weight = np.prod(np.meshgrid(*[w / w.sum()] * M_STEPS, indexing="ij"), 0).ravel()
    monkeypatch.setattr(torch, "randn_like", lambda x: xi if x.shape == xi.shape else xi.transpose(0, 1))
    u = torch.tensor(INPUTS, dtype=torch.double)[None, :, None].expand(len(xi), -1, -1)
    start = torch.full((len(xi), 1), 0.4, dtype=torch.double)

    @torch.no_grad()
    def expected(epsilon: float) -> float:
        with running("reference"):
            path, _ = layer_of_theorem_2(name, epsilon)(u, (start,))
        return float(weight @ loss(path[:, -1, 0].numpy()))

    assert expected(0.3) == pytest.approx(expected_loss(0.3, noise=additive), rel=1e-12)
    assert abs(expected(0.3) - expected(0.0)) > 0.05
    assert second_order(expected) == pytest.approx(sum(terms(D, noise=additive)), rel=1e-5)


def test_theorem_2_as_printed_is_broken() -> None:
    Q, _ = terms(D)
    printed, R = terms(D, as_printed=True)
    assert abs(printed / Q - 1) > 0.2
    coefficient = second_order(expected_loss)
    assert abs(coefficient - printed - R) > 1000 * abs(coefficient - Q - R)


def test_20_orders_in_delta_for_a_fixed_number_of_steps() -> None:
    """And not for a fixed time: R is then a sum of 1/Delta terms, and of order 1."""
    (Q, R), (less_Q, less_R) = terms(1e-2), terms(5e-3)
    assert Q / less_Q == pytest.approx(4, rel=0.1)
    assert R / less_R == pytest.approx(2, rel=0.1)
    two, four = terms(0.2, n=2)[1], terms(0.1, n=4)[1]
    assert four > 0.7 * two
