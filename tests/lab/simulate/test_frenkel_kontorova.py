"""The Frenkel-Kontorova network: its energy, its form as a neural oscillator, layers by masses."""

import numpy as np
import pytest

from physml.base.errors import InputError
from physml.lab.simulate.frenkel_kontorova import Network, couplings, layered, one_way

T = np.linspace(0, 4, 41)[1:]


def network(seed: int = 0, n: int = 3) -> Network:
    rng = np.random.default_rng(seed)
    links = rng.uniform(-0.4, 0.4, (n, n))
    return Network(rng.uniform(0.5, 2, n), rng.uniform(2, 4, n), couplings(links + links.T))


def force(t: float) -> np.ndarray:
    return np.array([np.sin(2 * t), 0.5 * np.cos(t), 0.3])


def test_4_7_couples_differences_of_sines() -> None:
    C, theta = network().coupling, np.array([0.3, -1.0, 2.0])
    sums = [
        sum(C[i, j] * (np.sin(theta[j]) - np.sin(theta[i])) for j in range(3) if j != i) for i in range(3)
    ]
    np.testing.assert_allclose(C @ np.sin(theta), sums)


def test_without_a_force_the_energy_is_kept_and_one_pendulum_has_the_period_of_a_small_swing() -> None:
    # The energy is 1/2 theta'^T M (K + C)^-1 M theta' + sum_i mu_i (1 - cos theta_i).
    net = network()
    h = 1e-3
    around = (T[:, None] + h * np.arange(-1, 2)).ravel()
    theta = net.angles(lambda _: np.zeros(3), around, np.array([1.0, -0.5, 0.8])).reshape(-1, 3, 3)
    speed = (theta[:, 2] - theta[:, 0]) / (2 * h)
    momentum = net.mass * speed
    kinetic = 0.5 * (momentum * np.linalg.solve(net.stiffness, momentum.T).T).sum(1)
    energy = kinetic + (net.mass * (1 - np.cos(theta[:, 1]))).sum(1)
    assert kinetic.max() > 0.5 * energy[0]
    np.testing.assert_allclose(energy, energy[0], rtol=1e-5)
    pendulum = Network(np.array([2.0]), np.array([8.0]), np.zeros((1, 1)))
    theta = pendulum.angles(lambda _: np.zeros(1), T, np.array([1e-4]))[:, 0]
    np.testing.assert_allclose(theta, 1e-4 * np.cos(2 * T), atol=1e-11)


def test_4_8_is_the_same_system_with_the_force_of_y() -> None:
    """theta = P y for the force (K + C)^-1 F; with F itself, as printed, it is another system."""
    net = network()
    theta = net.angles(force, T)
    np.testing.assert_allclose(net.oscillator(force, T) @ net.P.T, theta, atol=1e-8)
    printed = net.oscillator(lambda t: net.stiffness @ force(t), T) @ net.P.T
    assert np.abs(printed - theta).max() > 0.5


def test_masses_in_order_make_the_coupling_one_way() -> None:
    """Below the diagonal M^-1 C is of the order of epsilon, and so is the distance to (4.9)."""
    W = layered(n_layers=3, width=2, epsilon=0.01, seed=0).P
    np.testing.assert_allclose(np.diag(W), 1)
    assert np.abs(np.triu(W, 1)).max() > 0.5
    assert 0 < np.abs(np.tril(W, -1)).max() <= 0.01
    far, near = one_way(epsilon=np.array([1e-2, 1e-3]), n_layers=3, width=2, t_end=4, seed=0)["y"]
    assert far / near == pytest.approx(10, rel=0.1)


def test_masses_that_are_alike_do_not() -> None:
    assert one_way(epsilon=np.ones(1), n_layers=3, width=2, t_end=4, seed=0)["y"] > 0.2


@pytest.mark.parametrize(
    ("mass", "coupling", "message"),
    [
        (np.ones(2), np.eye(2), "4.7"),
        (np.ones(2), np.zeros((3, 3)), "shapes"),
        (-np.ones(2), np.zeros((2, 2)), "masses"),
    ],
)
def test_what_is_refused(mass: np.ndarray, coupling: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Network(mass, np.ones(2), coupling)
