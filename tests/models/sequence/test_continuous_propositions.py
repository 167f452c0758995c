"""What the papers prove of the ODEs behind coRNN and UnICORNN: thesis, 2.2.1 to 2.2.3, (3.4) and (3.9).

Steps are those of the classical Runge-Kutta method, small enough that its error does not count.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from drawn_layers import numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from runge_kutta import Slope, solved
from torch import Tensor

from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.unicornn import UnICORNN
from physml.ops.backend import running

drawn = settings(derandomize=True, deadline=None, max_examples=6)
seeds = st.integers(0, 2**31)
H = 0.01


def times(t_end: float, h: float = H) -> np.ndarray:
    return h * np.arange(1, round(t_end / h) + 1)


class Coupled:
    """The ODE (2.2) for drawn weights and an input of sines."""

    def __init__(self, m: int, scale: float, gamma: float, epsilon: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.m, self.gamma, self.epsilon = m, gamma, epsilon
        self.W, self.Wcal = (scale * rng.standard_normal((m, m)) for _ in range(2))
        self.b, self.V = scale * rng.standard_normal(m), scale * rng.standard_normal(m)

    def slope(self, u: Callable[[float], float]) -> Slope:
        def right(t: float, x: np.ndarray) -> np.ndarray:
            y, z = x[: self.m], x[self.m :]
            push = np.tanh(self.W @ y + self.Wcal @ z + self.V * u(t) + self.b)
            return np.concatenate([z, push - self.gamma * y - self.epsilon * z])

        return right

    def states(self, u: Callable[[float], float], t_end: float) -> tuple[np.ndarray, np.ndarray]:
        path = solved(self.slope(u), np.zeros(2 * self.m), t_end, H)[1:]
        return path[:, : self.m], path[:, self.m :]


def sines(seed: int) -> Callable[[float], float]:
    a, b = np.random.default_rng(seed).uniform(0.3, 4, 2)
    return lambda t: float(np.sin(a * t) + np.cos(b * t))


@pytest.mark.parametrize("dt", [0.02, 0.01])
def test_the_ode_is_that_of_cornn(dt: float) -> None:
    """coRNN approaches it with first order, so what is shown here is about its limit."""
    ode = Coupled(3, 1.0, 1.3, 0.7, 0)
    layer = CoRNN(1, 3, dt=dt, gamma=1.3, epsilon=0.7).double()
    with torch.no_grad(), running("reference"):
        for name, value in {"W": ode.W, "Wcal": ode.Wcal, "V": ode.V[:, None], "b": ode.b}.items():
            getattr(layer, name).copy_(torch.as_tensor(value))
        u = torch.tensor([sines(1)(t) for t in times(2.0, dt)], dtype=torch.double)[None, :, None]
        y = layer(u)[0][0, -1].numpy()
    assert 0.1 * dt < np.linalg.norm(y - ode.states(sines(1), 2.0)[0][-1]) < 2 * dt


@drawn
@given(seeds, st.integers(1, 4), st.floats(0.1, 5), st.floats(0.1, 20), st.floats(0, 3))
def test_2_2_1_states_of_the_ode_and_2_2_2_two_inputs(seed: int, m: int, scale, gamma, more) -> None:
    ode = Coupled(m, scale, gamma, 0.5 + more, seed)
    (y, z), (other_y, other_z) = (ode.states(sines(s), 3.0) for s in (seed, seed + 1))
    bound = m * times(3.0)
    for a, b, times_bound in ((y, z, 1), (other_y, other_z, 1), (y - other_y, z - other_z, 4)):
        assert ((a**2).sum(1) <= times_bound * bound / gamma + 1e-9).all()
        assert ((b**2).sum(1) <= times_bound * bound + 1e-9).all()


def test_2_2_1_and_2_2_2_are_broken_without_damping() -> None:
    """By one oscillator that pushes itself in the direction in which it goes."""
    oscillator = Coupled(1, 0.0, 1.0, 0.0, 0)
    oscillator.Wcal[:], oscillator.V[:] = 50.0, 1.0
    (_, z), (_, other) = (oscillator.states(lambda t, s=s: s * float(t < 0.1), 15.0) for s in (1, -1))
    assert ((z**2).sum(1) > times(15.0)).any()
    assert (((z - other) ** 2).sum(1) > 4 * times(15.0)).any()


def gradient_energy(ode: Coupled, u: Callable[[float], float], t_end: float) -> np.ndarray:
    """y_theta' y_theta + z_theta' z_theta / gamma for theta = W_11, from the ODE (2.7)."""
    m = ode.m

    def right(t: float, x: np.ndarray) -> np.ndarray:
        y, z, y_theta, z_theta = x.reshape(4, m)
        A = ode.W @ y + ode.Wcal @ z + ode.V * u(t) + ode.b
        slope = 1 - np.tanh(A) ** 2
        forced = slope * (ode.W @ y_theta + ode.Wcal @ z_theta)
        forced[0] += slope[0] * y[0]
        pull, pull_theta = ode.gamma * y + ode.epsilon * z, ode.gamma * y_theta + ode.epsilon * z_theta
        return np.concatenate([z, np.tanh(A) - pull, z_theta, forced - pull_theta])

    path = solved(right, np.zeros(4 * m), t_end, H)[1:].reshape(-1, 4, m)
    return (path[:, 2] ** 2).sum(1) + (path[:, 3] ** 2).sum(1) / ode.gamma


@drawn
@given(seed=seeds, m=st.integers(1, 3), gamma=st.floats(0.1, 5), epsilon=st.floats(0.5, 4))
def test_2_2_3_with_the_exponential_before_all_terms(seed: int, m: int, gamma: float, epsilon: float) -> None:
    ode = Coupled(m, 1.0, gamma, epsilon, seed)
    total = np.abs(ode.W).sum(1).max() + np.abs(ode.Wcal).sum(1).max()
    ode.W, ode.Wcal = ode.W * epsilon / total, ode.Wcal * epsilon / total
    C = max(np.abs(ode.W).sum(0).max() / gamma, 1 + np.abs(ode.Wcal).sum(0).max())
    t = times(4.0)
    assert (gradient_energy(ode, sines(seed), 4.0) <= np.exp(C * t) * m * t**2 / (2 * gamma**2)).all()


def held_at_zero() -> Coupled:
    """One oscillator with W = epsilon = 2 and gamma = 1/2, for an input that keeps A at 0 after a push.

    Its own feedback is in b, so that W y + V u + b = 0 for u = 0 from t = 1 on: y decays, its gradient grows
    like exp(0.58 t).
    """
    oscillator = Coupled(1, 0.0, 0.5, 2.0, 0)
    oscillator.W[:], oscillator.V[:] = 2.0, 1.0
    return oscillator


def test_2_2_3_as_printed_is_broken() -> None:
    """(2.8) has exp(Ct) before the gradients at t = 0 alone, so that from 0 they would grow like t."""
    ode = held_at_zero()
    first = solved(ode.slope(lambda _: 5.0), np.zeros(2), 1.0, H)[-1]  # A > 0: y rises
    roots = np.roots([1, ode.epsilon, ode.gamma])  # then y'' = -gamma y - epsilon y'
    a = np.linalg.solve(np.stack([np.ones(2), roots]), first)

    def u(t: float) -> float:
        y = (a * np.exp(roots * (t - 1))).sum().real
        return 5.0 if t < 1 - 1e-9 else float(-ode.W[0, 0] * y)

    energy, t = gradient_energy(ode, u, 15.0), times(15.0)
    assert np.abs(ode.W).sum() + np.abs(ode.Wcal).sum() <= ode.epsilon
    assert energy[-1] > 20 * t[-1] ** 2 / (2 * ode.gamma**2)
    C = max(ode.W[0, 0] / ode.gamma, 1.0)
    assert (energy <= np.exp(C * t) * t**2 / (2 * ode.gamma**2)).all()


def hamiltonian(y: Tensor, z: Tensor, w: Tensor, push: Tensor, alpha: float) -> Tensor:
    """(3.4), with push = V u + b; one number for each row."""
    well = (torch.log(torch.cosh(w * y + push)) / w).sum(-1)
    return alpha / 2 * y.square().sum(-1) + z.square().sum(-1) / 2 + well


def test_3_4_is_the_hamiltonian_of_3_2() -> None:
    y, z = numbers(4, seed=0).requires_grad_(), numbers(4, seed=1).requires_grad_()
    w, push, alpha = numbers(4, seed=2), numbers(4, seed=3), 0.7
    by_y, by_z = torch.autograd.grad(hamiltonian(y, z, w, push, alpha), (y, z))
    torch.testing.assert_close(by_z, z)
    torch.testing.assert_close(-by_y, -(torch.tanh(w * y + push) + alpha * y))


def energy_change(dt: float, t_end: float, u: Callable[[Tensor], Tensor]) -> Tensor:
    """|H - H(0)| along a run of a UnICORNN with one layer and full steps, (T,)."""
    layer = UnICORNN(1, 3, n_layers=1, dt=dt, alpha=1.0).double()
    t = dt * torch.arange(1, round(t_end / dt) + 1, dtype=torch.double)
    push = u(t)[:, None] * torch.tensor([1.0, -0.5, 2.0])
    with torch.no_grad(), running("reference"):
        first = layer.layers[0]
        first.w.copy_(torch.tensor([0.8, -0.6, 2.0]))
        first.V.copy_(torch.tensor([[1.0], [-0.5], [2.0]]))
        first.b.zero_()
        first.c.fill_(50.0)
        state, path = None, []
        for n in range(len(t)):
            _, state = layer(u(t)[None, n : n + 1, None], state)
            path.append(torch.cat([part[0] for part in state[0]]))
    y, z = torch.stack(path).split(3, 1)
    start = hamiltonian(torch.zeros(3), torch.zeros(3), first.w.detach(), push[:1], 1.0)
    return (hamiltonian(y, z, first.w.detach(), push, 1.0) - start).abs()


def test_3_4_is_kept_by_unicornn_for_a_constant_input() -> None:
    """Up to an oscillation of first order that does not grow."""
    long = energy_change(0.1, 60.0, torch.ones_like)
    assert long.max() < 0.2 and long[300:].max() < 1.1 * long[:300].max()
    assert long.max() / energy_change(0.05, 60.0, torch.ones_like).max() == pytest.approx(2, rel=0.2)


def test_3_4_is_not_kept_when_the_input_changes() -> None:
    assert energy_change(0.05, 20.0, lambda t: torch.sign(torch.sin(t))).max() > 1


def test_3_9_is_the_hamiltonian_of_the_gradients_3_8() -> None:
    """-dH / dy_theta is what the derivative of (3.2) by theta = w_1 gives, which autograd takes."""
    y, y_theta = numbers(3, seed=0), numbers(3, seed=1).requires_grad_()
    w, push, alpha = numbers(3, seed=2), numbers(3, seed=3), 0.7
    first = torch.tensor([1.0, 0.0, 0.0], dtype=torch.double)

    def right(y: Tensor, w: Tensor) -> Tensor:
        return -(torch.tanh(w * y + push) + alpha * y)

    _, derivative = torch.autograd.functional.jvp(right, (y, w), (y_theta.detach(), first))
    slope = 1 - torch.tanh(w * y + push) ** 2
    C = first * y
    H = alpha / 2 * y_theta.square().sum() + (slope * (w * y_theta.square() / 2 + C * y_theta)).sum()
    (by,) = torch.autograd.grad(H, y_theta)
    torch.testing.assert_close(-by, derivative)
