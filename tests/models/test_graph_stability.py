"""Steady states of GraphCON and G2 in continuous time: thesis, 7.2.3 to 7.2.5 and 8.2.2 to 8.2.5.

The ODEs are solved by the classical Runge-Kutta method. Graphs are undirected and connected; A is dense.
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

drawn = settings(derandomize=True, deadline=None, max_examples=10)
seeds = st.integers(0, 2**31)


def solved(slope: Callable[[np.ndarray], np.ndarray], x: np.ndarray, t_end: float, h: float) -> np.ndarray:
    """x at t = 0, h, 2h .. t_end, time first."""
    path = [x]
    for _ in range(round(t_end / h)):
        a = slope(x)
        b = slope(x + h / 2 * a)
        c = slope(x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + slope(x + h * c))
        path.append(x)
    return np.array(path)


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


def eccentricity(links: np.ndarray, node: int = 0) -> int:
    reached, steps = np.eye(len(links))[node] > 0, 0
    while not reached.all():
        reached, steps = reached | (links[reached].sum(0) > 0), steps + 1
    return steps


def differences(links: np.ndarray, y: np.ndarray) -> float:
    """The sum over i and its neighbours j of |y_j - y_i|^2."""
    return float((links * (y[None] - y[:, None]) ** 2).sum())


# ---------------------------------------------------------------------------- GraphCON


def balance(A: np.ndarray, alpha: float, factor: float, seed: int) -> float:
    """(7.19) at t = 3, left over right side, with this factor before its coupling terms."""
    v, h, t_end = len(A), 0.005, 3.0
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(2 * v)

    def slope(x: np.ndarray) -> np.ndarray:
        X, Y = x[:v], x[v:]
        return np.concatenate([Y, A @ X - X - alpha * Y])

    path = solved(slope, start, t_end, h)
    X, Y = path[:, :v], path[:, v:]
    gaps = X[:, None, :] - X[:, :, None]  # [n, i, j]: X_j - X_i
    coupled = ((A + A.T) / 2 * gaps**2).sum((1, 2))
    crossed = ((A - A.T) * (Y[:, :, None] + Y[:, None, :]) * gaps).sum((1, 2))
    decay = np.exp(2 * alpha * (h * np.arange(len(path)) - t_end))

    def integral(y: np.ndarray) -> float:  # Simpson: the number of intervals is even
        return float(h / 3 * (y[0] + 4 * y[1:-1:2].sum() + 2 * y[2:-1:2].sum() + y[-1]))

    left = (Y[-1] ** 2).sum() + factor * coupled[-1]
    at_start = ((Y[0] ** 2).sum() + factor * coupled[0]) * decay[0]
    grows = factor * 2 * alpha * integral(coupled * decay)
    return float(left / (at_start + grows + factor * integral(crossed * decay)))


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("matrix", [symmetric_stochastic, row_stochastic])
def test_7_2_5_holds_with_half_of_its_coupling_terms(
    matrix: Callable[[np.ndarray], np.ndarray], alpha: float
) -> None:
    """(7.22) sums (A_ij + A_ji) / 2 where (7.21) gives a quarter of it, as in Proposition 7.2.1."""
    for seed in range(3):
        A = matrix(connected(7, seed))
        assert balance(A, alpha, 0.5, seed) == pytest.approx(1, abs=1e-6)


def test_7_2_5_as_printed_is_broken() -> None:
    assert abs(balance(row_stochastic(connected(7, 0)), 0.7, 1.0, 0) - 1) > 0.02
    assert abs(balance(symmetric_stochastic(connected(7, 0)), 0.0, 1.0, 0) - 1) > 0.02


def graphcon(A: np.ndarray, alpha: float, c: float, seed: int, t_end: float) -> tuple[np.ndarray, np.ndarray]:
    """X and Y of (7.8) with ReLU, started near (c, 0)."""
    v = len(A)
    start = np.concatenate([np.full(v, c), np.zeros(v)])
    start += 0.1 * np.random.default_rng(seed).standard_normal(2 * v)

    def slope(x: np.ndarray) -> np.ndarray:
        X, Y = x[:v], x[v:]
        return np.concatenate([Y, np.maximum(A @ X, 0) - X - alpha * Y])

    path = solved(slope, start, t_end, 0.02)
    return path[:, :v], path[:, v:]


def dirichlet(links: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.array([differences(links, x) for x in X])


def test_7_2_4_a_positive_constant_is_steady_and_not_exponentially_stable() -> None:
    """A shift of all nodes is another steady state: a small one stays for ever."""
    links = connected(8, 0)
    A = row_stochastic(links)
    c = np.full(8, 2.0)
    np.testing.assert_allclose(np.maximum(A @ c, 0) - c, 0, atol=1e-12)
    X, _ = graphcon(A, 0.8, 2.0, 0, 80.0)
    assert np.ptp(X[-1]) < 1e-3 < 0.01 < abs(X[-1].mean() - 2.0)


def test_7_2_4_is_broken_for_negative_constants() -> None:
    """They are no steady states of ReLU: all features leave them."""
    X, _ = graphcon(row_stochastic(connected(8, 0)), 0.8, -2.0, 0, 40.0)
    assert X[-1].min() > -0.1


def test_7_2_3_only_if_is_broken() -> None:
    """The energy decays exponentially, though no (c, 0) is exponentially stable.

    (c, 0) is never isolated, so no constant is stable in that sense. What decays is the distance to all of
    them: alpha >= 1/2, as in 7.2.4, does not keep the ODE near (c, 0) from oversmoothing.
    """
    links = connected(8, 0)
    for A in (symmetric_stochastic(links), row_stochastic(links)):
        energy = dirichlet(links, graphcon(A, 0.8, 2.0, 0, 80.0)[0])
        assert energy[4000] < 1e-3 * energy[2000] < 1e-6 * energy[0]
        slopes = np.diff(np.log(np.maximum.accumulate(energy[::-1])[::-1][1000:4000:500]))
        np.testing.assert_allclose(slopes, slopes.mean(), rtol=0.3)  # a straight line of its logarithm


def test_7_2_3_without_damping_nothing_decays() -> None:
    links = connected(8, 0)
    energy = dirichlet(links, graphcon(symmetric_stochastic(links), 0.0, 2.0, 0, 80.0)[0])
    assert energy[-1000:].max() > 0.3 * energy[0]


# ---------------------------------------------------------------------------- 8.2.4: the Poincare inequality


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


# ---------------------------------------------------------------------------- G2


def gated(
    A: np.ndarray, links: np.ndarray, p: float, start: np.ndarray, t_end: float, h: float
) -> np.ndarray:
    """X of (8.12) with ReLU, where node 1 stays as it is; p = 0: no gates."""

    def slope(X: np.ndarray) -> np.ndarray:
        gaps = np.abs(X[None] - X[:, None])
        tau = np.tanh((links * gaps**p).sum(1)) if p else np.ones(len(X))
        found = tau * (np.maximum(A @ X, 0) - X)
        found[0] = 0
        return found

    return solved(slope, start, t_end, h)


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
    X = solved(lambda x: np.maximum(A @ x, 0) - x, perturbed(links, 0.1) + 0.05, 60.0, 0.1)
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
