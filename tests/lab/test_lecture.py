"""Statements of B. Wang's lecture (Utah, 2023) on neural and heavy-ball ODEs, and cases that break them.

a is a row vector, the gradient of L = c . h(T) by the state at time t. Everything is in double precision;
scipy solves, with Jacobians written by hand.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from torch import Tensor

from physml.models.sequence.neural_ode import GeneralisedHeavyBallNODE, HeavyBallNODE, NeuralODE
from physml.models.sequence.ode import stepped

T, GAMMA = 1.5, 0.4
TIGHT = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-13}
rng = np.random.default_rng(0)
N = 3
THETA1, THETA2, B1 = rng.normal(size=(N, N)), rng.normal(size=(N, N)), rng.normal(size=N)
H0, M0, C = rng.normal(size=N), rng.normal(size=N), rng.normal(size=N)


@dataclass(frozen=True)
class System:
    """x' = F(x), with its Jacobian."""

    slope: object
    jacobian: object
    start: np.ndarray
    end: np.ndarray  # the gradient of L by x(T)

    def flow(self, t0: float, t1: float, x: np.ndarray) -> np.ndarray:
        return solve_ivp(lambda _, x: self.slope(x), (t0, t1), x, **TIGHT).y[:, -1]

    def adjoint(self, t: float) -> np.ndarray:
        """The gradient by x(t), by differences of the solution: the definition (2)."""
        x, eps = self.flow(0.0, t, self.start), 1e-5
        sides = [[self.end @ self.flow(t, T, x + sign * eps * e) for sign in (1, -1)] for e in np.eye(len(x))]
        return np.array([(plus - minus) / (2 * eps) for plus, minus in sides])

    def along(self, t0: float, t1: float, start: np.ndarray, right_side: object) -> np.ndarray:
        """a(t1) from a' = right_side(a, x) along the solution, with a(t0) = start."""
        n = len(self.start)

        def both(_: float, z: np.ndarray) -> np.ndarray:
            return np.concatenate([self.slope(z[:n]), right_side(z[n:], z[:n])])

        z = np.concatenate([self.flow(0.0, t0, self.start), start])
        return solve_ivp(both, (t0, t1), z, **TIGHT).y[n:, -1]

    def backwards(self, t: float, right_side: object) -> np.ndarray:
        return self.along(T, t, self.end, right_side)

    def exponential(self, t: float) -> np.ndarray:
        """What Lemma 1 and Theorem 4 print: a(T) exp(-int_T^t J ds)."""
        n = len(self.start)
        integral = self.along(t, T, np.zeros(n * n), lambda _, x: self.jacobian(x).ravel())
        return self.end @ expm(integral.reshape(n, n))


def f(h: np.ndarray) -> np.ndarray:
    return THETA2 @ np.tanh(THETA1 @ h + B1)


def df(h: np.ndarray) -> np.ndarray:
    return THETA2 @ np.diag(1 - np.tanh(THETA1 @ h + B1) ** 2) @ THETA1


def node(slope=f, jacobian=df) -> System:
    return System(slope, jacobian, H0, C)


def heavy(slope=f, jacobian=df, speed=np.positive, rate=np.ones_like) -> System:
    """Equation 13; h' = speed(m), with its derivative."""

    def right(x: np.ndarray) -> np.ndarray:
        h, m = np.split(x, 2)
        return np.concatenate([speed(m), -GAMMA * m + slope(h)])

    def matrix(x: np.ndarray) -> np.ndarray:
        whole = block(jacobian(x[:N]), GAMMA * np.eye(N))
        whole[:N, N:] = np.diag(rate(x[N:]))
        return whole

    return System(right, matrix, np.concatenate([H0, M0]), np.concatenate([C, np.zeros(N)]))


def generalised() -> System:
    return heavy(speed=np.tanh, rate=lambda m: 1 - np.tanh(m) ** 2)


def block(F: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """(0, I; F, -damping)."""
    n = len(F)
    return np.block([[np.zeros((n, n)), np.eye(n)], [F, -damping]])


def linear(A: np.ndarray):
    return lambda h: A @ h, lambda h: A


SYSTEMS = {
    "node": (node, lambda: NeuralODE(1, N, width=N, span=T, n_steps=400)),
    "heavy ball": (heavy, lambda: HeavyBallNODE(1, N, width=N, gamma=GAMMA, span=T, n_steps=400)),
    "generalised": (  # the lecture has no spring
        generalised,
        lambda: GeneralisedHeavyBallNODE(1, N, width=N, gamma=GAMMA, xi=1e-300, span=T, n_steps=400),
    ),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_odes_are_those_of_the_layers(name: str) -> None:
    """Right side and Jacobian, the flow, and the gradient that goes back through it to t = 0."""
    system, layer = SYSTEMS[name][0](), SYSTEMS[name][1]().double()
    with torch.no_grad():
        values = {"theta1": THETA1, "b1": B1, "theta2": THETA2, "b2": np.zeros(N)}
        for symbol, value in values.items():
            layer.symbols()[symbol].copy_(torch.from_numpy(value))
    x = torch.from_numpy(system.start)[None].requires_grad_()
    slope = layer.field.slope(x)
    jacobian = torch.stack([torch.autograd.grad(part, x, retain_graph=True)[0][0] for part in slope[0]])
    np.testing.assert_allclose(slope[0].detach(), system.slope(system.start), atol=1e-13)
    np.testing.assert_allclose(jacobian, system.jacobian(system.start), atol=1e-13)
    flow = layer.solver(layer.field, x, layer.span)
    np.testing.assert_allclose(flow[0].detach(), system.flow(0.0, T, system.start), atol=1e-8)
    (gradient,) = torch.autograd.grad(flow[0] @ torch.from_numpy(system.end), x)
    backwards = equation_14 if name == "heavy ball" else lambda a, x: -a @ system.jacobian(x)
    np.testing.assert_allclose(gradient[0], system.backwards(0.0, backwards), atol=1e-8)


def gradient_by_theta(n_steps: int | None) -> np.ndarray:
    """dL/dtheta_1 by (3) and (11): exactly, or in Euler steps back along Euler's path."""
    if n_steps is None:

        def augmented(z: np.ndarray, h: np.ndarray) -> np.ndarray:
            a = z[:N]
            d = (a @ THETA2) * (1 - np.tanh(THETA1 @ h + B1) ** 2)  # a df/d(theta_1 h)
            return np.concatenate([-a @ df(h), -np.outer(d, h).ravel()])

        return node().along(T, 0, np.concatenate([C, np.zeros(N * N)]), augmented)[N:].reshape(N, N)
    dt, h = T / n_steps, H0
    for _ in range(n_steps):
        h = h + dt * f(h)
    a, gradient = C, np.zeros((N, N))
    for _ in range(n_steps):
        d = (a @ THETA2) * (1 - np.tanh(THETA1 @ h + B1) ** 2)
        h, a, gradient = h - dt * f(h), a + dt * a @ df(h), gradient + dt * np.outer(d, h)
    return gradient


def gradient_of_steps(scheme: str, n_steps: int) -> np.ndarray:
    """By autograd through the steps of a solver."""
    theta = torch.tensor(THETA1, requires_grad=True)

    def slope(h: Tensor) -> Tensor:
        return torch.tensor(THETA2) @ torch.tanh(theta @ h + torch.tensor(B1))

    L = torch.tensor(C) @ stepped(scheme, slope, torch.tensor(H0), T, n_steps)
    return torch.autograd.grad(L, theta)[0].numpy()


def test_theorem_1_the_adjoint_gives_the_gradient_by_the_weights() -> None:
    assert np.allclose(gradient_by_theta(None), gradient_of_steps("rk4", 400), rtol=1e-8, atol=1e-9)
    assert np.allclose(node().backwards(0.3, lambda a, x: -a @ df(x)), node().adjoint(0.3), atol=1e-7)


def test_theorem_1_is_broken_by_steps_that_are_too_large() -> None:
    """The adjoint ODE in Euler steps is not the gradient of Euler's steps; both agree as dt goes to 0."""
    gaps = []
    for n in (8, 800):
        gradient = gradient_by_theta(n)
        gaps.append(np.abs(gradient - gradient_of_steps("euler", n)).max() / np.abs(gradient).max())
    assert gaps[0] > 0.05 > 0.005 > gaps[1]


def test_lemma_1_for_a_constant_jacobian() -> None:
    system = node(*linear(THETA1))
    assert np.allclose(system.exponential(0.2), system.adjoint(0.2), atol=1e-7)


def gap(system: System) -> float:
    adjoint = system.adjoint(0.2)
    return float(np.abs(system.exponential(0.2) - adjoint).max() / np.abs(adjoint).max())


def test_lemma_1_is_broken_by_jacobians_that_do_not_commute() -> None:
    """For these the solution is an ordered exponential, not that of the integral."""
    assert gap(node()) > 0.05


def test_theorem_4_for_a_constant_jacobian() -> None:
    system = heavy(*linear(THETA1))
    assert np.allclose(system.exponential(0.2), system.adjoint(0.2), atol=1e-7)


def test_theorem_4_is_broken_by_jacobians_that_do_not_commute() -> None:
    assert gap(heavy()) > 0.02


def equation_14(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """As printed but for the sign of its first part; see the tests."""
    a_h, a_m = np.split(a, 2)
    return np.concatenate([-a_m @ df(x[:N]), -a_h + GAMMA * a_m])


def test_theorem_2_with_a_minus_before_its_first_part() -> None:
    assert np.allclose(heavy().backwards(0.3, equation_14), heavy().adjoint(0.3), atol=1e-7)


def test_theorem_2_as_printed_is_broken() -> None:
    def printed(a: np.ndarray, x: np.ndarray) -> np.ndarray:
        return equation_14(a, x) * np.repeat([-1, 1], N)

    assert np.abs(heavy().backwards(0.3, printed) - heavy().adjoint(0.3)).max() > 0.1


def test_theorem_2_is_broken_by_a_bounded_speed() -> None:
    system = generalised()
    assert np.abs(system.backwards(0.3, equation_14) - system.adjoint(0.3)).max() > 0.1
    right = system.backwards(0.3, lambda a, x: -a @ system.jacobian(x))
    assert np.allclose(right, system.adjoint(0.3), atol=1e-7)


def equation_15(system: System, t: float) -> np.ndarray:
    """a(t) = dL/dm from the equation of second order, solved from T as (16): its state is (a, a')."""

    def second_order(z: np.ndarray, x: np.ndarray) -> np.ndarray:
        a, rate = np.split(z, 2)
        return np.concatenate([rate, GAMMA * rate + a @ df(x[:N])])

    a_h, a_m = np.split(system.end, 2)
    return system.along(T, t, np.concatenate([a_m, -a_h + GAMMA * a_m]), second_order)[:N]


def test_theorem_3_the_adjoint_is_a_heavy_ball_ode_of_the_same_damping() -> None:
    assert np.allclose(equation_15(heavy(), 0.3), heavy().adjoint(0.3)[N:], atol=1e-7)


def test_theorem_3_is_broken_by_a_bounded_speed() -> None:
    assert np.abs(equation_15(generalised(), 0.3) - generalised().adjoint(0.3)[N:]).max() > 0.1


BACK = -0.7  # t - T


def minus_m(F: np.ndarray, damping: np.ndarray) -> np.ndarray:
    return -BACK * block(F, damping)


def halves(values: np.ndarray, total: complex) -> bool:
    """Whether numbers can be paired so that each pair has this sum."""
    left = list(values)
    while left:
        value = left.pop()
        other = min(range(len(left)), key=lambda i: abs(left[i] + value - total))
        if abs(left.pop(other) + value - total) > 1e-9:
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_proposition_1_pairs_of_eigenvalues(seed: int) -> None:
    F = np.random.default_rng(seed).normal(size=(5, 5))
    assert halves(np.linalg.eigvals(minus_m(F, GAMMA * np.eye(5))), BACK * GAMMA)


def test_proposition_1_is_broken_by_units_of_different_damping() -> None:
    F, damping = rng.normal(size=(5, 5)), np.diag([0.1, 0.2, 0.4, 0.8, 1.6])
    assert not halves(np.linalg.eigvals(minus_m(F, damping)), BACK * np.trace(damping) / 5)


def test_20_has_a_minus_too_many() -> None:
    """For an even and an odd number of units; ch_F is the product in (21)."""
    x = 0.9
    for n in (2, 3):
        F = np.random.default_rng(0).normal(size=(n, n))
        whole = np.linalg.det(x * np.eye(2 * n) - block(F, GAMMA * np.eye(n)))
        ch_F = np.prod(x * (x + GAMMA) - np.linalg.eigvals(F)).real
        assert whole == pytest.approx(ch_F)
        assert whole != pytest.approx(-ch_F)
        assert abs(whole) > 0.1  # x is no root, so the sign shows


@pytest.mark.parametrize(("a", "holds"), [(GAMMA / 2, True), (GAMMA / 4, False)])
def test_26_half_of_the_eigenvalues_decay_slowly_where_gamma_is_at_most_2a(a: float, holds: bool) -> None:
    """With 0 <= gamma <= 2a at least n of 2n have a real part of at least (t - T) a; not beyond."""
    F = -np.diag([4.0, 9.0, 16.0])  # all pairs complex
    slow = np.linalg.eigvals(minus_m(F, GAMMA * np.eye(3))).real >= BACK * a - 1e-9
    assert (slow.sum() >= 3) == holds


def stiffness(A: np.ndarray) -> float:
    size = np.abs(np.linalg.eigvals(A))
    return size.max() / size.min()


SPECTRUM = np.array([1.0, 4.0, 25.0])
TURN = np.linalg.qr(rng.normal(size=(3, 3)))[0]


def heavy_ball_of(eigenvalues: np.ndarray, gamma: float) -> np.ndarray:
    return block(TURN @ np.diag(eigenvalues) @ TURN.T, gamma * np.eye(3))


def test_stiffness_is_the_root_without_damping() -> None:
    assert stiffness(heavy_ball_of(SPECTRUM, 0.0)) == pytest.approx(np.sqrt(25.0))


def test_stiffness_as_printed_is_broken_by_any_damping() -> None:
    """For the positive definite A of the lecture S(B) >= sqrt(S(A)); it grows with gamma beyond S(A)."""
    ratios = [stiffness(heavy_ball_of(SPECTRUM, gamma)) for gamma in (0.1, 1.0, 30.0)]
    assert 5.0 < ratios[0] < ratios[1] < ratios[2]
    assert ratios[2] > 25.0


def test_stiffness_is_the_root_where_all_modes_of_a_stable_system_oscillate() -> None:
    """For a negative definite A: while gamma^2 < 4 |lambda|, and not where modes are overdamped."""
    assert stiffness(heavy_ball_of(-SPECTRUM, 1.9)) == pytest.approx(5.0)
    assert stiffness(heavy_ball_of(-SPECTRUM, 20.0)) > 25.0


def test_the_printed_eigenvalues_have_the_sign_of_gamma_reversed() -> None:
    eigenvalues = np.sort(np.linalg.eigvals(heavy_ball_of(SPECTRUM, GAMMA)).real)
    roots = np.sqrt(GAMMA**2 + 4 * SPECTRUM)
    assert np.allclose(eigenvalues, np.sort(np.concatenate([(-GAMMA + roots) / 2, (-GAMMA - roots) / 2])))
    assert not np.allclose(eigenvalues, np.sort(np.concatenate([(GAMMA + roots) / 2, (GAMMA - roots) / 2])))
