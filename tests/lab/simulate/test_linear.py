"""Linear systems of the talk's figures: exact regions, solutions of another solver, Proposition 1."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from physml.base.errors import InputError
from physml.lab.simulate import linear
from physml.models.sequence.lipschitz import bounded

M = np.random.default_rng(5).normal(size=(6, 6))


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_a_step_multiplies_by_the_first_terms_of_the_exponential(scheme: str, order: int) -> None:
    z = np.array([0.1 + 0.2j, 0.05 + 0.1j])
    errors = np.abs(linear.factor(scheme, z) - np.exp(z))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order + 1, abs=0.1)


@pytest.mark.parametrize("scheme", list(linear.SCHEMES))
def test_the_boundary_of_a_region_is_closed_and_parts_stable_from_unstable(scheme: str) -> None:
    boundary = linear.region(scheme=scheme)
    z = boundary["x"] + 1j * boundary["y"]
    assert abs(z[-1] - z[0]) < 1e-3 and np.abs(np.diff(z)).max() < 0.1
    np.testing.assert_allclose(np.abs(linear.factor(scheme, z)), 1.0, atol=1e-9)
    centre = -1.0 + 0.0j  # from which each boundary is seen whole
    assert (np.abs(linear.factor(scheme, centre + 1.02 * (z - centre))) > 1 - 1e-9).mean() > 0.95
    assert np.sum(np.angle(np.roll(z - centre, -1) / (z - centre))) == pytest.approx(2 * np.pi, abs=1e-2)
    if scheme == "euler":  # a disc
        np.testing.assert_allclose(np.abs(z - centre), 1.0, atol=1e-12)


def test_of_the_three_only_rk4_keeps_a_skew_matrix_from_growing() -> None:
    for scheme in ("euler", "midpoint"):
        assert (linear.growth(scheme=scheme, most=3.0)["y"][1:] > 1).all()
    growth = linear.growth(scheme="rk4", most=3.0)
    inside = growth["x"] <= 2.82
    assert (growth["y"][inside] <= 1 + 1e-12).all() and (growth["y"][growth["x"] > 2.83] > 1).all()


def test_orbits_and_paths_are_those_of_the_matrix_and_the_matrix_that_of_the_layer() -> None:
    orbit = linear.orbit(radius=0.9, angle=0.4, steps=7)
    A = 0.9 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    powers = np.stack([np.linalg.matrix_power(A, t)[:, 0] for t in range(8)])
    np.testing.assert_allclose(np.stack([orbit["x"], orbit["y"]], 1), powers, atol=1e-12)
    matrix = bounded(torch.from_numpy(M), 0.75, 0.1).numpy()
    np.testing.assert_allclose(linear.symmetric_skew(M, 0.75, 0.1), matrix, atol=1e-12)
    plane, h0 = np.array([[0.4, -0.8], [0.6, -0.2]]), np.array([1.0, -0.5])
    path = linear.path(M=plane, beta=0.75, gamma=0.1, h0=h0, horizon=5.0, points=11)
    S = linear.symmetric_skew(plane, 0.75, 0.1)
    times = np.linspace(0, 5, 11)
    exact = solve_ivp(lambda _, h: S @ h, (0, 5), h0, t_eval=times, rtol=1e-10, atol=1e-12).y
    np.testing.assert_allclose([path["x"], path["y"]], exact, atol=1e-8)


def parts(part: str, beta: float, gamma: float, units: int = 40) -> np.ndarray:
    spectrum = linear.spectrum(part=part, beta=beta, gamma=gamma, units=units, scale=1.0, seed=0)
    return np.asarray(spectrum["x"])


@pytest.mark.parametrize(("beta", "gamma"), [(0.5, 0.0), (0.75, 0.0), (0.75, 0.1), (1.0, 0.2)])
def test_real_parts_lie_between_the_lines_with_a_factor_of_two(beta: float, gamma: float) -> None:
    low, _, _, high, _ = parts("twice", beta, gamma)
    real = parts("eigenvalues", beta, gamma)
    assert low - 1e-9 <= real.min() and real.max() <= high + 1e-9
    assert (np.diff(real.round(6)) >= 0).all()  # in an order that LAPACK has no part in


def test_proposition_1_of_the_talk_as_printed_is_broken_by_beta_of_a_half() -> None:
    """S is M there, and its eigenvalues leave the interval with the factor 1 - beta."""
    low, _, _, high, _ = parts("printed", 0.5, 0.0)
    real = parts("eigenvalues", 0.5, 0.0)
    assert real.min() < low - 0.1 and real.max() > high + 0.1
    symmetric = linear.symmetric_skew(np.diag([1.0, -1.0]), 0.75, 0.0)
    assert np.linalg.eigvalsh(symmetric)[-1] == pytest.approx(2 * (1 - 0.75))  # of M^sym = M with lambda = 1


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        (linear.region, {"scheme": "heun"}, "scheme must be one of"),
        (linear.growth, {"scheme": "euler", "most": 0.0}, "most must be positive"),
        (linear.orbit, {"radius": -1.0, "angle": 0.1, "steps": 3}, "radius must be positive"),
        (parts, {"part": "eigenvalues", "beta": 1.5, "gamma": 0.0}, "beta must lie in"),
        (
            linear.path,
            {"M": M, "beta": 0.5, "gamma": 0, "h0": [1, 0], "horizon": 1},
            r"M must have shape \(2, 2\)",
        ),
    ],
)
def test_what_can_not_be_is_told(function: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        function(**arguments)
