"""Steady states of GraphCON and G2 in continuous time: thesis, 7.2.3 to 7.2.5 and 8.2.2 to 8.2.5.

The ODEs are solved by the classical Runge-Kutta method. Graphs are undirected and connected; A is dense.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from runge_kutta import solved
from scipy.integrate import simpson
from scipy.sparse.csgraph import shortest_path
from small_graphs import Dense, relu
from torch import Tensor

from physml.models.graph.g2 import GradientGating
from physml.models.graph.graphcon import GraphCON

Slope = Callable[[np.ndarray], np.ndarray]
drawn = settings(derandomize=True, deadline=None, max_examples=6)
seeds = st.integers(0, 2**31)


def connected(v: int, seed: int) -> np.ndarray:
    """A drawn tree with some more edges, as a matrix of 0 and 1, (v, v)."""
    rng = np.random.default_rng(seed)
    links = np.triu(rng.random((v, v)) < 0.2, 1)
    for i in range(1, v):
        links[rng.integers(i), i] = True
    return (links | links.T).astype(float)


def path_graph(v: int) -> np.ndarray:
    return np.eye(v, k=1) + np.eye(v, k=-1)


def symmetric_stochastic(links: np.ndarray) -> np.ndarray:
    """1 / (1 + greatest degree) for each edge, the rest of the row on the diagonal."""
    weight = 1 / (1 + links.sum(1).max())
    return links * weight + np.diag(1 - links.sum(1) * weight)


def row_stochastic(links: np.ndarray) -> np.ndarray:
    """(7.27): 1 / deg(i), with loops; not symmetric."""
    with_loops = links + np.eye(len(links))
    return with_loops / with_loops.sum(1, keepdims=True)


def eccentricity(links: np.ndarray) -> int:
    """Of node 1."""
    return int(shortest_path(links, unweighted=True)[0].max())


def differences(links: np.ndarray, y: np.ndarray) -> float:
    """The sum over i and its neighbours j of |y_j - y_i|^2."""
    return float((links * (y[None] - y[:, None]) ** 2).sum())


def edges(links: np.ndarray) -> Tensor:
    return torch.from_numpy(np.argwhere(links).T.copy())


def graphcon_slope(A: np.ndarray, alpha: float, sigma: Slope = relu) -> Slope:
    """Of x = (X, Y) in (7.8); without sigma in (7.17)."""

    def slope(x: np.ndarray) -> np.ndarray:
        X, Y = np.split(x, 2)
        return np.concatenate([Y, sigma(A @ X) - X - alpha * Y])

    return slope


@pytest.mark.parametrize(("activation", "sigma"), [("relu", relu), ("identity", lambda x: x)])
def test_the_ode_is_that_of_graphcon(activation: str, sigma: Slope) -> None:
    """One step of it is an Euler step of Y, and one of X with the new Y."""
    links, dt, alpha = connected(7, 0), 0.3, 0.8
    A = row_stochastic(links)
    slope = graphcon_slope(A, alpha, sigma)
    X, Y = np.random.default_rng(0).standard_normal((2, 7))
    new_Y = Y + dt * slope(np.concatenate([X, Y]))[7:]
    new_X = X + dt * slope(np.concatenate([X, new_Y]))[:7]
    layer = GraphCON(Dense(A), 1, dt=dt, gamma=1.0, alpha=alpha, activation=activation)
    x, y = (torch.from_numpy(part)[:, None] for part in (X, Y))
    found_X, found_Y = next(layer.steps(x, edges(links), y=y))
    np.testing.assert_allclose(found_Y[:, 0], new_Y, atol=1e-14)
    np.testing.assert_allclose(found_X[:, 0], new_X, atol=1e-14)


def balance(A: np.ndarray, alpha: float, factor: float, seed: int) -> float:
    """(7.19) at t = 3, left over right side, with this factor before its coupling terms."""
    v, h, t_end = len(A), 0.005, 3.0
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(2 * v)
    slope = graphcon_slope(A, alpha, lambda x: x)
    path = solved(lambda _, x: slope(x), start, t_end, h)
    X, Y = path[:, :v], path[:, v:]
    gaps = X[:, None, :] - X[:, :, None]  # [n, i, j]: X_j - X_i
    coupled = ((A + A.T) / 2 * gaps**2).sum((1, 2))
    crossed = ((A - A.T) * (Y[:, :, None] + Y[:, None, :]) * gaps).sum((1, 2))
    decay = np.exp(2 * alpha * (h * np.arange(len(path)) - t_end))

    left = (Y[-1] ** 2).sum() + factor * coupled[-1]
    at_start = ((Y[0] ** 2).sum() + factor * coupled[0]) * decay[0]
    grows = factor * simpson((2 * alpha * coupled + crossed) * decay, dx=h)
    return float(left / (at_start + grows))


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("matrix", [symmetric_stochastic, row_stochastic])
def test_7_2_5_holds_with_half_of_its_coupling_terms(matrix: Slope, alpha: float) -> None:
    """(7.22) sums (A_ij + A_ji) / 2 where (7.21) gives a quarter of it, as in Proposition 7.2.1."""
    for seed in range(3):
        A = matrix(connected(7, seed))
        assert balance(A, alpha, 0.5, seed) == pytest.approx(1, abs=1e-6)


def test_7_2_5_as_printed_is_broken() -> None:
    assert abs(balance(row_stochastic(connected(7, 0)), 0.7, 1.0, 0) - 1) > 0.02
    assert abs(balance(symmetric_stochastic(connected(7, 0)), 0.0, 1.0, 0) - 1) > 0.02


def graphcon(A: np.ndarray, alpha: float, c: float, t_end: float) -> np.ndarray:
    """X of (7.8) with ReLU, started near (c, 0)."""
    v, slope = len(A), graphcon_slope(A, alpha)
    start = np.concatenate([np.full(v, c), np.zeros(v)])
    start += 0.1 * np.random.default_rng(0).standard_normal(2 * v)
    return solved(lambda _, x: slope(x), start, t_end, 0.02)[:, :v]


def dirichlet(links: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.array([differences(links, x) for x in X])


def test_7_2_4_a_positive_constant_is_steady_and_not_exponentially_stable() -> None:
    """A shift of all nodes is another steady state: a small one stays for ever."""
    links = connected(8, 0)
    A = row_stochastic(links)
    c = np.full(8, 2.0)
    np.testing.assert_allclose(graphcon_slope(A, 0.8)(np.append(c, 0 * c)), 0, atol=1e-12)
    X = graphcon(A, 0.8, 2.0, 80.0)
    assert np.ptp(X[-1]) < 1e-3 < 0.01 < abs(X[-1].mean() - 2.0)


def test_7_2_4_is_broken_for_negative_constants() -> None:
    """They are no steady states of ReLU: all features leave them."""
    X = graphcon(row_stochastic(connected(8, 0)), 0.8, -2.0, 40.0)
    assert X[-1].min() > -0.1


def test_7_2_3_only_if_is_broken() -> None:
    """The energy decays exponentially, though no (c, 0) is exponentially stable.

    (c, 0) is never isolated, so no constant is stable in that sense. What decays is the distance to all of
    them: alpha >= 1/2, as in 7.2.4, does not keep the ODE near (c, 0) from oversmoothing.
    """
    links = connected(8, 0)
    for A in (symmetric_stochastic(links), row_stochastic(links)):
        energy = dirichlet(links, graphcon(A, 0.8, 2.0, 80.0))
        assert energy[4000] < 1e-3 * energy[2000] < 1e-6 * energy[0]
        slopes = np.diff(np.log(np.maximum.accumulate(energy[::-1])[::-1][1000:4000:500]))
        np.testing.assert_allclose(slopes, slopes.mean(), rtol=0.3)  # a straight line of its logarithm


@drawn
@given(seed=seeds, v=st.integers(2, 30))
def test_8_2_4_with_every_node_on_one_path(seed: int, v: int) -> None:
    """An edge may lie on the shortest paths of all other nodes: (v - 1) / 2 instead of the degree."""
    links = connected(v, seed)
    y = np.random.default_rng(seed + 1).standard_normal(v)
    for values in (y, np.cumsum(np.abs(y))):
        values = values - values[0]
        bound = (v - 1) / 2 * eccentricity(links) * differences(links, values)
        assert (values**2).sum() <= bound * (1 + 1e-9)


def test_8_2_4_as_printed_is_broken_by_a_path() -> None:
    """It counts an edge for at most as many nodes as the greatest degree. Y_i = i on a path of 40 nodes."""
    links, y = path_graph(40), np.arange(40.0)
    printed = links.sum(1).max() * eccentricity(links) * differences(links, y)
    assert (y**2).sum() > 3 * printed


def test_8_2_4_needs_a_node_at_zero() -> None:
    links = connected(6, 0)
    assert differences(links, np.ones(6)) == 0 < (np.ones(6) ** 2).sum()


def gated_slope(A: np.ndarray, links: np.ndarray, p: float) -> Slope:
    """(8.12) with ReLU; p = 0: no gates."""

    def slope(X: np.ndarray) -> np.ndarray:
        gaps = np.abs(X[None] - X[:, None])
        tau = np.tanh((links * gaps**p).sum(1)) if p else np.ones(len(X))
        return tau * (relu(A @ X) - X)

    return slope


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0])
def test_the_ode_is_that_of_gradient_gating(p: float) -> None:
    """A layer is its Euler step of size 1, with hat tau = X; without gates the rates are 1."""
    links = connected(7, 0)
    A, X = row_stochastic(links), perturbed(links, 0.9)
    gates = {"p": p, "gate_coupling": Dense(np.eye(7))} if p else {"rate_exponent": 0.0}
    layer = GradientGating(Dense(A), 1, activation="relu", **gates)
    stepped = layer(torch.from_numpy(X)[:, None], edges(links))[:, 0]
    np.testing.assert_allclose(stepped, X + gated_slope(A, links, p)(X), atol=1e-14)


def gated(A: np.ndarray, links: np.ndarray, p: float, start: np.ndarray, *t_end_and_h: float) -> np.ndarray:
    """X of (8.12), where node 1 stays as it is."""
    slope, moves = gated_slope(A, links, p), np.arange(len(A)) > 0
    return solved(lambda _, X: moves * slope(X), start, *t_end_and_h)


def perturbed(links: np.ndarray, size: float, c: float = 1.0) -> np.ndarray:
    start = c + size * np.random.default_rng(1).uniform(-1, 1, len(links))
    start[0] = c
    return start


@drawn
@given(seed=seeds, v=st.integers(2, 12))
def test_8_2_3_without_gates_constants_are_exponentially_stable(seed: int, v: int) -> None:
    """With the rate of (8.17) for the constant of 8.2.4 that holds."""
    links = connected(v, seed)
    A = symmetric_stochastic(links)
    X = gated(A, links, 0, perturbed(links, 0.1), 20.0, 0.1)
    size = ((X - 1) ** 2).sum(1)
    rate = A[links > 0].min() / ((v - 1) / 2 * eccentricity(links))
    assert (size <= size[0] * np.exp(-rate * 0.1 * np.arange(len(size))) * (1 + 1e-4)).all()


def test_8_2_3_the_printed_rate_is_broken_by_a_path() -> None:
    """8.17 has the constant of 8.2.4 as printed; the slowest mode of a path of 60 nodes is slower."""
    links = path_graph(60)
    A = symmetric_stochastic(links)
    start = 1 + 0.1 * np.sin(np.pi * np.arange(60) / 119)  # the mode with one end held
    X = gated(A, links, 0, start, 200.0, 0.5)
    size = ((X - 1) ** 2).sum(1)
    printed = (1 / 3) / (2 * 59)
    assert -np.log(size[-1] / size[0]) / 200 < 0.25 * printed


def test_8_2_3_is_broken_without_a_node_that_is_held() -> None:
    """All nodes may shift together; this is why 8.2.2, like 7.2.3, is not an equivalence.

    The energy decays exponentially, as oversmoothing is defined, while no constant is exponentially stable.
    """
    links = connected(8, 0)
    A = symmetric_stochastic(links)
    slope = gated_slope(A, links, 0)
    X = solved(lambda _, X: slope(X), perturbed(links, 0.1) + 0.05, 60.0, 0.1)
    energy = dirichlet(links, X)
    assert energy[600] < 1e-3 * energy[300] < 1e-6 * energy[0]
    assert abs(X[-1].mean() - 1) > 0.01


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_8_2_5_gates_make_the_decay_algebraic(p: float) -> None:
    """|X - c|^2 ~ t^(-2/p): its logarithm falls by 2/p log 2 each time that t doubles, not twice as much.

    With several nodes this is approached slowly, from below. Without gates it is exponential.
    """
    for links, tolerance in ((path_graph(2), 0.05), (connected(5, 0), 0.4)):
        A = symmetric_stochastic(links)
        size = ((gated(A, links, p, perturbed(links, 0.5), 800.0, 0.4) - 1) ** 2).sum(1)
        falls = np.log(size[[500, 1000]] / size[[1000, 2000]])
        np.testing.assert_allclose(falls, 2 / p * np.log(2), rtol=tolerance)
        alone = ((gated(A, links, 0, perturbed(links, 0.5), 200.0, 0.4) - 1) ** 2).sum(1)
        assert alone[-1] < 1e-8 * size[500]
