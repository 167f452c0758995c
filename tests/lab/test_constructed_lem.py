"""Thesis, Propositions 5.2.7 to 5.2.10 and (5.1), with the LEM of physml and the weights of the proofs.

Where the text misprints a weight or claims too much, a test shows it.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.special import logit

from physml.base.check import count
from physml.base.errors import InputError
from physml.lab import constructed_lem as built
from physml.lab.shallow import Shallow, affine, box, fitted, identity
from physml.lab.simulate import multiscale
from physml.models.sequence.lem import LEM

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")


def inputs(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (n, 1))


def farthest(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b, axis=1).max())


LOW, HIGH = np.array([-1.4, -1.4, -1.0]), np.array([1.4, 1.4, 1.0])
LIP_F, LIP_O = 0.9, 2.0  # of f in phi, and of o where |phi| < 1.4


def f(x: np.ndarray) -> np.ndarray:
    """Its Jacobian by phi is 0.9 times a rotation with slopes of at most 1."""
    h = x[:, :2] @ np.array([[0.6, -0.8], [0.8, 0.6]])
    return 0.9 * np.sin(h) + 0.3 * x[:, 2:]


def o(x: np.ndarray) -> np.ndarray:
    return x[:, :1] * x[:, 1:]


def states_of(f: Any, u: np.ndarray, d: int = 2) -> np.ndarray:
    phi, path = np.zeros((1, d)), []
    for row in u:
        phi = f(np.hstack([phi, row[None]]))
        path.append(phi[0])
    return np.array(path)


def dynamical_system(f: Shallow, o: Shallow, same: Shallow) -> built.Built:
    r"""Proposition 5.2.7, the weights (5.67).

    .. math:: \phi_n = f(\phi_{n-1}, u_n), \qquad o_n = o(\phi_n), \qquad \phi_0 = 0

    (5.67) has W5 for a network that approximates o after f's output weights; the product of these weights
    is one, without another approximation. The outputs are "o", and "phi" of z.

    Args:
        f: (d + D) -> d; its first inputs are phi.
        o: d -> q.
        same: the identity of d numbers.
    """
    d = f.A.shape[0]
    d_in = f.W.shape[1] - d
    count("the number of inputs u", d_in)
    built.fits("o", o, d)
    built.fits("same", same, d, d)
    built.fits("f", f, d + d_in)
    w = built.Blocks(max(f.width, same.width + o.width), d_in)
    units, copy = slice(0, f.width), slice(0, same.width)
    out = slice(same.width, same.width + o.width)
    w.Wz[units, copy], w.Vz[units], w.bz[units] = f.W[:, :d] @ same.A, f.W[:, d:], f.b
    w.Wy[copy, units] = same.W @ f.A
    w.Wy[out, units], w.by[out] = o.W @ f.A, o.b
    return built.Built(w.lem(), {"o": w.output(o.A, same.width)}, {"phi": w.output(f.A)})


def systems(width: int) -> tuple[Shallow, Shallow, Shallow]:
    return fitted(f, LOW, HIGH, width=width), fitted(o, LOW[:2], HIGH[:2], width=30), identity(2, 1e-4)


@pytest.mark.parametrize("width", [40, 160])
def test_5_2_7_its_bound_5_58_on_the_error(width: int) -> None:
    near_f, near_o, same = systems(width)
    u = inputs(30)
    phi = states_of(f, u)
    assert np.abs(phi).max() < 1.2  # within the box, as R of the statement
    trajectory = dynamical_system(near_f, near_o, same).run(u)
    epsilon = max(
        near_f.error(f, box(LOW, HIGH, 20_000, 5)), same.error(lambda x: x, box(LOW, HIGH, 999, 6)[:, :2])
    )
    bar = near_o.error(o, box(LOW[:2], HIGH[:2], 9_000, 7))
    sums = np.cumsum(LIP_F ** np.arange(30))
    errors = np.abs(trajectory["o"] - o(phi))[:, 0]
    assert (errors <= bar + 2 * epsilon * LIP_O * sums).all()
    assert errors.max() < {40: 0.3, 160: 0.01}[width]


def test_5_2_7_is_the_system_5_52_and_5_2_8_the_system_5_81() -> None:
    near_f, near_o, same = systems(20)
    u = inputs(12)
    trajectory = dynamical_system(near_f, near_o, same).run(u)
    y = np.zeros((1, 2))
    for n, row in enumerate(u):
        z = near_f(np.hstack([y, row[None]]))
        y = same(z)
        np.testing.assert_allclose(trajectory["phi"][n], z[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(trajectory["o"][n], near_o(z)[0], rtol=1e-9, atol=1e-12)
    near_f, near_g, same = multiscale.map_networks(100)
    tau, u = 0.05, inputs(10)
    trajectory = built.two_scale(near_f, near_g, same, tau).run(u)
    z = y = z_copy = y_copy = np.zeros((1, 1))
    for n, row in enumerate(u):
        z, z_copy = near_f(np.hstack([y_copy, y, row[None]])), same(y)
        G = near_g(np.hstack([z, z_copy, row[None]])) + (1 - 1 / tau) * same(z_copy)
        y, y_copy = (1 - tau) * y + tau * G, same(z)
        np.testing.assert_allclose(trajectory["phi"][n], z[0], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(trajectory["psi"][n], y[0], rtol=1e-8, atol=1e-10)


def test_5_2_7_is_broken_where_states_leave_the_region() -> None:
    def grows(x: np.ndarray) -> np.ndarray:
        return 1.3 * x[:, :2] + 0.3 * x[:, 2:]

    u = np.ones((30, 1))
    near = fitted(grows, LOW, HIGH, width=160)
    trajectory = dynamical_system(near, affine(np.eye(2), np.zeros(2), 1e-4), identity(2, 1e-4)).run(u)
    epsilon = near.error(grows, box(LOW, HIGH, 9_000, 5))
    errors = np.linalg.norm(trajectory["phi"] - states_of(grows, u), axis=1)
    bound = 2 * epsilon * np.cumsum(1.3 ** np.arange(30))
    assert errors[-1] > 10 * bound[-1]


TAUS = [0.5, 1e-2, 1e-4, 1e-6]


@pytest.mark.parametrize("tau", TAUS)
def test_5_2_8_the_same_number_of_units_for_every_tau(tau: float) -> None:
    """psi is of the order of tau, so its error over tau is judged. (5.84) holds by far."""
    near_f, near_g, same = multiscale.map_networks(100)
    u = inputs(40)
    layer = built.two_scale(near_f, near_g, same, tau)
    exact, emulated = multiscale.two_scale(tau, u, keeps=False), layer.run(u)
    assert layer.layer.d_out == 102
    assert farthest(emulated["psi"], exact["psi"]) < 0.08 * tau
    assert farthest(emulated["phi"], exact["phi"]) < 0.15
    points = box(*multiscale.MAPS_BOX, 9_000, 3)
    epsilon = max(near_f.error(multiscale.fast_map, points), near_g.error(multiscale.slow_map, points))
    lip_f, lip_g = 0.6 * 5**0.5, 2**0.5
    C, D = lip_f * (3 + lip_g) * (1 + lip_f), 1 + (2 + lip_g) * (2 + 2 * lip_f)
    off = sum(np.abs(emulated[name] - exact[name])[:, 0] for name in ("phi", "psi"))
    assert (off <= epsilon * D * np.cumsum(C ** np.arange(40))).all()


def test_5_2_8_weights_independent_of_tau_is_broken() -> None:
    """The statement says weights, biases and size; the proof has 1/tau in weights and tau in b2.

    No other proof could do better: one LEM has one output, and the systems of two scales are far apart.
    """
    networks = multiscale.map_networks(100)
    symbols, others = (built.two_scale(*networks, tau).layer.symbols() for tau in (1e-2, 1e-4))
    assert symbols["b2"].shape == others["b2"].shape
    assert float((symbols["b2"] - others["b2"]).detach().abs().max()) > 4
    assert float((others["Wz"].abs().max() / symbols["Wz"].abs().max()).detach()) > 50
    u = np.ones((40, 1))
    apart = farthest(*(multiscale.two_scale(tau, u, keeps=False)["psi"] for tau in (0.5, 0.1)))
    assert apart > 0.25  # so one of two errors is more than 0.12, whatever the weights


@pytest.mark.parametrize("tau", [0.1, 1e-3, 1e-6])
def test_5_2_8_for_a_slow_variable_needs_tau_in_b2_alone(tau: float) -> None:
    networks = multiscale.map_networks(100)
    u = inputs(40)
    layer = built.slow_variable(*networks, tau)
    exact = multiscale.two_scale(tau, u, keeps=True)
    assert farthest(layer.run(u)["psi"], exact["psi"]) < 0.1 * min(1, 40 * tau)
    symbols, others = layer.layer.symbols(), built.slow_variable(*networks, 0.3).layer.symbols()
    assert {name for name, p in symbols.items() if not torch.equal(p, others[name])} == {"b2"}


def many_scales(f: Shallow, o: Shallow, same: Shallow, tau: np.ndarray) -> built.Built:
    r"""Proposition 5.2.9, of which the text leaves the weights to the reader.

    .. math::
        \phi^i_n = \tau_i f^i(\phi^1_{n-1}, .., \phi^r_{n-1}, u_n), \qquad
        o_n = o(\phi^1_n, .., \phi^r_n)

    As in (5.86), z holds the units of f and a copy of the state, and y the state, by steps tau:

    .. math:: \phi_n = (1 - \tau)\phi_{n-1} + \tau\,[f + (1 - 1/\tau)\phi_{n-1}]

    The outputs are "o" and "phi".

    Args:
        f: (d + D) -> d, all scales side by side.
        o: d -> q.
        same: the identity of d numbers, of width d.
        tau: (d,), the scale of each number, in (0, 1].
    """
    d = f.A.shape[0]
    d_in = f.W.shape[1] - d
    count("the number of inputs u", d_in)
    built.fits("o", o, d)
    built.fits("f", f, d + d_in)
    built.fits("same", same, d, d)
    if same.width != d or tau.shape != (d,):
        raise InputError(
            f"same must be of width {d} and tau of shape ({d},); got {same.width} and {tau.shape}."
        )
    w = built.Blocks(max(f.width + d, d + o.width), d_in)
    units, copy = slice(0, f.width), slice(f.width, f.width + d)
    state, out = slice(0, d), slice(d, d + o.width)
    w.Wz[units, state], w.Vz[units], w.bz[units] = f.W[:, :d] @ same.A, f.W[:, d:], f.b
    w.Wz[copy, state] = same.W @ same.A
    w.Wy[state, units] = same.W @ f.A
    w.Wy[state, copy] = same.W @ ((1 - 1 / tau)[:, None] * same.A)
    w.y_step[state] = tau
    w.Wy[out, units], w.by[out] = o.W @ (tau[:, None] * f.A), o.b
    return built.Built(w.lem(), {"o": w.output(o.A, d), "phi": w.output(same.A)}, {})


MIX = np.array([[0.2, 0.5, -0.9], [0.7, -0.3, 0.4], [-0.5, 0.6, 0.5]])


@pytest.mark.parametrize("least", [1e-1, 1e-3, 1e-6])
def test_5_2_9_three_scales(least: float) -> None:
    tau = np.array([least, least**0.5, 1.0])

    def scales(x: np.ndarray) -> np.ndarray:
        return np.sin(x[:, :3] @ MIX + 0.3) + 0.3 * x[:, 3:]

    u = inputs(30)
    phi = states_of(lambda x: tau * scales(x), u, d=3)
    # f is near where states and inputs are: a network for the whole cube would need thousands of units.
    near = fitted(scales, -1.4 * np.ones(4), 1.4 * np.ones(4), width=200)
    read_out = affine(np.array([[1.0, -2.0, 0.5]]), np.zeros(1), 1e-4)
    layer = many_scales(near, read_out, identity(3, 1e-4), tau)
    trajectory = layer.run(u)
    assert layer.layer.d_out == 203
    assert (np.abs(trajectory["phi"] - phi).max(0) < 0.03 * tau).all()
    assert np.abs(trajectory["o"] - phi @ [[1.0], [-2.0], [0.5]]).max() < 0.06


def test_5_2_9_is_broken_where_states_leave_the_region() -> None:
    """The variable of scale 1 grows out of the box in which f is approximated; more units do not help."""
    tau = np.array([1e-3, 1e-3**0.5, 1.0])

    def scales(x: np.ndarray) -> np.ndarray:
        bounded = np.sin(x[:, :3] @ MIX[:, :2] + 0.3) + 0.3 * x[:, 3:]
        return np.hstack([bounded, 1.3 * x[:, 2:3] + 0.3 * x[:, 3:]])

    u = np.ones((20, 1))
    phi = states_of(lambda x: tau * scales(x), u, d=3)
    inside = np.abs(phi).max(1) < 1.4
    assert inside.tolist() == [True] * 3 + [False] * 17
    for width in (100, 400):
        near = fitted(scales, -1.4 * np.ones(4), 1.4 * np.ones(4), width=width)
        layer = many_scales(near, affine(np.eye(3), np.zeros(3), 1e-4), identity(3, 1e-4), tau)
        errors = np.linalg.norm(layer.run(u)["o"] - phi, axis=1)
        assert errors[inside].max() < 0.02
        assert errors[-1] > 0.5 * np.linalg.norm(phi[-1])


METHOD: dict[str, Any] = {"macro": 0.05, "micro": 0.5, "micro_steps": 3}


def test_5_2_10_the_multiscale_method_to_any_accuracy() -> None:
    exact = multiscale.multiscale_method(n_steps=40, **METHOD)
    errors = []
    for width in (20, 40, 120):
        emulated = multiscale.emulated(n_steps=40, width=width, **METHOD)
        errors.append(max(farthest(emulated[name], exact[name]) for name in ("phi", "psi")))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-4


def test_5_112_as_printed_is_broken() -> None:
    """The sigmoid of b1 must be 1 - (1 - dt)^K: (5.110) has that step, and a gate of LEM is its step."""
    layer = built.multiscale_method(*multiscale.networks(120), **METHOD)
    exact = multiscale.multiscale_method(n_steps=40, **METHOD)
    assert farthest(layer.run(np.zeros((40, 1)))["phi"], exact["phi"]) < 1e-4
    with torch.no_grad():
        b1 = layer.layer.symbols()["b1"]
        b1[b1 < built.OPEN] *= -1  # the sigmoid of -b is one minus that of b
    assert farthest(layer.run(np.zeros((40, 1)))["phi"], exact["phi"]) > 0.1


def test_5_96_as_printed_leaves_f() -> None:
    """(5.98) follows from the micro steps with a plus before the step; the printed minus gives 1 + dt."""
    start, target, micro, K = 0.3, 1.0, 0.5, 10
    plus = minus = start
    for _ in range(K):
        plus, minus = plus + micro * (target - plus), minus - micro * (target - minus)
    assert plus == pytest.approx((1 - micro) ** K * start + (1 - (1 - micro) ** K) * target)
    assert abs(minus - target) > 50 * abs(start - target)


FINE: dict[str, Any] = {"of": "multiscale_method", "t_end": 2.0, "width": 80, "micro": 0.5, "micro_steps": 10}


def test_5_2_10_error_to_the_fast_slow_system_does_not_depend_on_tau() -> None:
    tau = np.array([1e-6, 1e-3])
    coarse, fine = (multiscale.by_tau(tau=tau, step=step, **FINE)["y"] for step in (0.1, 0.05))
    np.testing.assert_allclose(coarse, coarse[0], rtol=0.05)
    np.testing.assert_allclose(fine, coarse / 2, rtol=0.15)
    euler = multiscale.by_tau(tau=tau, step=0.05, **(FINE | {"of": "euler"}))["y"]
    assert np.isnan(euler).all()  # it would need steps of the order of tau


def test_5_2_10_is_broken_by_a_tau_that_is_not_small() -> None:
    """The method solves the limit tau -> 0: its error has a part of the order of tau, whatever the steps."""
    tau = np.array([1e-4, 0.1])
    small, large = multiscale.by_tau(tau=tau, step=0.05, **FINE)["y"]
    assert large > 3 * small
    assert multiscale.by_tau(tau=tau[1:], step=0.0125, **FINE)["y"] > 3 * small


def two_scale_ode(layer: LEM, dt: float, tau_y: float, tau_z: float) -> LEM:
    r"""The LEM that takes steps of size dt in the two-scale ODE (5.1), with the weights of another.

    .. math:: y' = \tau_y(\tanh(W_y z + V_y u + b_y) - y), \qquad z' = \tau_z(\tanh(W_z y + V_z u + b_z) - z)

    As under (5.2): its gates are constant, :math:`\hat\sigma(b_1) = \tau_z, \hat\sigma(b_2) = \tau_y`; b1 of
    (5.3) is that of z, so that the text has the two the wrong way round.
    """
    lem = LEM(layer.d_in, layer.d_out, dt=dt).to(layer.W)
    lem.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for name in ("W1", "W2", "V1", "V2"):
            lem.symbols()[name].zero_()
        lem.symbols()["b1"].fill_(float(logit(tau_z)))
        lem.symbols()["b2"].fill_(float(logit(tau_y)))
    return lem


def test_5_1_lem_with_constant_gates_steps_through_the_two_scale_ode() -> None:
    """First order in dt; with b1 and b2 as under (5.2), the scales are exchanged."""
    torch.manual_seed(0)
    layer = LEM(1, 3, dt=1.0).double()
    s = {name: p.detach().numpy() for name, p in layer.symbols().items()}
    tau_y, tau_z, t_end = 0.1, 0.9, 4.0

    def slope(t: float, x: np.ndarray) -> np.ndarray:
        y, z, u = x[:3], x[3:], np.array([np.sin(t)])
        y_end, z_end = (
            np.tanh(s[f"W{i}"] @ x + s[f"V{i}"] @ u + s[f"b{i}"]) for i, x in (("y", z), ("z", y))
        )
        return np.concatenate([tau_y * (y_end - y), tau_z * (z_end - z)])

    solution = solve_ivp(slope, (0, t_end), np.zeros(6), rtol=1e-10, atol=1e-12).y[:3, -1]

    def error(n: int, *scales: float) -> float:
        u = torch.sin(t_end / n * torch.arange(1, n + 1, dtype=torch.double))[None, :, None]
        with torch.no_grad():
            y = two_scale_ode(layer, t_end / n, *scales)(u)[0][0, -1].numpy()
        return float(np.linalg.norm(y - solution))

    errors = np.array([error(n, tau_y, tau_z) for n in (50, 100, 200)])
    assert errors[:-1] / errors[1:] == pytest.approx(2, rel=0.1)
    assert error(200, tau_z, tau_y) > 50 * errors[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: built.two_scale(*multiscale.map_networks(5), 2.0), "steps of a LEM"),
        (
            lambda: built.multiscale_method(*multiscale.networks(5), **(METHOD | {"micro_steps": 0})),
            "micro_st",
        ),
        (lambda: dynamical_system(identity(2, 1.0), identity(2, 1.0), identity(2, 1.0)), "inputs u"),
        (lambda: Shallow(np.eye(2), np.zeros(3), np.eye(2)), "must have shapes"),
        (
            lambda: multiscale.by_scale(of="fast", tau=np.ones(1), n_steps=1, width=5, seed=0),
            "of must be one",
        ),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
