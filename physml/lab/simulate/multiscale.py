r"""LEMs built for systems of two scales, beside these systems. Axes: T time, d numbers of each scale.

The fast-slow system (5.94) that is drawn has a limit cycle of its slow variable, of angular velocity 2:

.. math::
    \phi' = \tfrac1\tau(f(\psi) - \phi), \quad \psi' = g(\phi, \psi), \qquad
    f(\psi) = |p|^2 p, \quad g(\phi, \psi) = \begin{pmatrix} 1 & -2 \\ 2 & 1 \end{pmatrix} p - \phi, \quad
    p = \psi + (\tfrac12, 0)

from phi = psi = 0, as the text wants; p is the slow variable from (1/2, 0).

Source: Rusch, thesis, section 5.2; `physml.lab.constructed_lem` builds the weights.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from physml.base.check import count, one_of, positive
from physml.base.errors import InputError
from physml.lab import constructed_lem
from physml.lab.shallow import Shallow, affine, fitted, identity

Arrays = dict[str, np.ndarray]
START = np.array([0.5, 0.0])
TURN = np.array([[1.0, -2.0], [2.0, 1.0]])
BOX = np.array([-1.8, -1.4]), np.array([0.8, 1.4])  # of psi: the limit cycle, and some room
S = 1e-4  # of the identities: their error is of order S^2
BLOWN_UP = 1e3
OF_SCALE = ("two_scale", "slow", "two_scale_relative", "weight_two_scale", "weight_slow")


def f(psi: np.ndarray) -> np.ndarray:
    """(n, 2) -> (n, 2)."""
    p = psi + START
    return (p**2).sum(1, keepdims=True) * p


def g(x: np.ndarray) -> np.ndarray:
    """(n, 4), phi and psi side by side -> (n, 2)."""
    return (x[:, 2:] + START) @ TURN.T - x[:, :2]


@lru_cache(maxsize=64)
def exact(tau: float, t_end: float) -> Callable[[np.ndarray], np.ndarray]:
    """psi of (5.94): a function of times in [0, t_end], (T,) -> (T, 2)."""

    def slope(_t: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([(f(x[None, 2:])[0] - x[:2]) / tau, g(x[None])[0]])

    solution = solve_ivp(
        slope, (0.0, t_end), np.zeros(4), method="Radau", dense_output=True, rtol=1e-8, atol=1e-10
    )
    return lambda t: solution.sol(t)[2:].T


def multiscale_method(*, macro: float, micro: float, micro_steps: int, n_steps: int) -> Arrays:
    r"""The heterogeneous multiscale method for (5.94), (5.95) and (5.96), from rest.

    .. math::
        \phi^{(k)} = \phi^{(k-1)} + \delta t\,(f(\psi_{n-1}) - \phi^{(k-1)}), \qquad
        \psi_n = \psi_{n-1} + \widetilde{\Delta t}\, g(\phi_n, \psi_{n-1})

    (5.96) prints a minus before the step, with which phi would leave f; (5.98), which follows from it in the
    text, has the plus.

    Args:
        macro: the step of psi.
        micro: the micro step over tau.
        micro_steps: K.
        n_steps: macro steps.
    Shapes: phi and psi, each (n_steps, 2).
    """
    phi, psi, path = np.zeros((1, 2)), np.zeros((1, 2)), []
    for _ in range(n_steps):
        target = f(psi)
        for _ in range(micro_steps):
            phi = phi + micro * (target - phi)
        psi = psi + macro * g(np.hstack([phi, psi]))
        path.append((phi[0], psi[0]))
    return {"phi": np.array([p for p, _ in path]), "psi": np.array([p for _, p in path])}


def euler(tau: float, step: float, n_steps: int) -> np.ndarray:
    """psi by the explicit scheme of Euler for both variables, (n_steps, 2); NaN once it has blown up."""
    phi, psi = np.zeros((1, 2)), np.zeros((1, 2))
    path = np.full((n_steps, 2), np.nan)
    for n in range(n_steps):
        phi, psi = phi + step / tau * (f(psi) - phi), psi + step * g(np.hstack([phi, psi]))
        if not max(np.abs(phi).max(), np.abs(psi).max()) < BLOWN_UP:
            break
        path[n] = psi[0]
    return path


@lru_cache(maxsize=16)
def networks(width: int, seed: int = 0) -> tuple[Shallow, Shallow, Shallow]:
    """Near f, g and the identity; the width is that of the first, the others have a unit for each number."""
    return (
        fitted(f, *BOX, width=width, seed=seed),
        affine(np.hstack([-np.eye(2), TURN]), TURN @ START, S),
        identity(2, S),
    )


def emulated(
    *, macro: float, micro: float, micro_steps: int, n_steps: int, width: int, seed: int = 0
) -> Arrays:
    """phi and psi of the LEM of Proposition 5.2.10, each (n_steps, 2)."""
    built = constructed_lem.multiscale_method(
        *networks(width, seed), macro=macro, micro=micro, micro_steps=micro_steps
    )
    return built.run(np.zeros((n_steps, 1)))


def by_tau(
    *, of: str, tau: np.ndarray, step: float, t_end: float, width: int, micro: float, micro_steps: int
) -> Arrays:
    """The greatest distance of psi to that of (5.94), over all steps up to t_end, against tau.

    of: multiscale_method, a LEM built to take its steps, with the same weights for every tau; euler, the
    explicit scheme in steps of that size.
    Shapes: tau (n,) -> x (n,), y (n,).
    """
    one_of("of", of, ("multiscale_method", "euler"))
    positive("the least tau", float(np.min(tau)))
    n = _n_steps(step, t_end)
    t = step * np.arange(1, n + 1)
    if of == "multiscale_method":
        lem = emulated(macro=step, micro=micro, micro_steps=micro_steps, n_steps=n, width=width)["psi"]
    y = []
    for value in tau:
        psi = lem if of == "multiscale_method" else euler(float(value), step, n)
        y.append(float(np.linalg.norm(psi - exact(float(value), t_end)(t), axis=1).max()))
    return {"x": np.array(tau, float), "y": np.array(y)}


def _n_steps(step: float, t_end: float) -> int:
    """Steps up to t_end. InputError where there is none."""
    positive("step", step)
    if (n := round(t_end / step)) < 1:
        raise InputError(f"t_end must be at least step = {step}; got {t_end}.")
    return n


def by_width(
    *, of: str, widths: np.ndarray, step: float, t_end: float, micro: float, micro_steps: int, seed: int
) -> Arrays:
    """The greatest distance of a built LEM to the multiscale method, against the width of the network near f.

    of: psi or phi, over all steps; epsilon, that of the network to f on a grid.
    Shapes: widths (n,) -> x (n,), y (n,).
    """
    one_of("of", of, ("psi", "phi", "epsilon"))
    n = _n_steps(step, t_end)
    arguments: dict[str, Any] = {"macro": step, "micro": micro, "micro_steps": micro_steps, "n_steps": n}
    reference = multiscale_method(**arguments)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 60) for a, b in zip(*BOX, strict=True))), -1).reshape(
        -1, 2
    )
    y = []
    for width in map(int, widths):
        if of == "epsilon":
            y.append(networks(width, seed)[0].error(f, grid))
        else:
            states = emulated(**arguments, width=width, seed=seed)[of]
            y.append(float(np.linalg.norm(states - reference[of], axis=1).max()))
    return {"x": np.array(widths, float), "y": np.array(y)}


# ------------------------------------------------------------------------ two scales in discrete time, (5.69)


def fast_map(x: np.ndarray) -> np.ndarray:
    """f of (5.69) that is drawn: 0.6 sin(phi - 2 psi) + 0.4 u; (n, 3) -> (n, 1)."""
    return 0.6 * np.sin(x[:, :1] - 2 * x[:, 1:2]) + 0.4 * x[:, 2:]


def slow_map(x: np.ndarray) -> np.ndarray:
    """g of (5.69): phi - sin(psi) + 0.3 u; (n, 3) -> (n, 1)."""
    return x[:, :1] - np.sin(x[:, 1:2]) + 0.3 * x[:, 2:]


MAPS_BOX = np.array([-1.2, -1.6, -1.0]), np.array([1.2, 1.6, 1.0])


@lru_cache(maxsize=4)
def map_networks(width: int) -> tuple[Shallow, Shallow, Shallow]:
    near_f, near_g = (fitted(m, *MAPS_BOX, width=width) for m in (fast_map, slow_map))
    return near_f, near_g, identity(1, 1e-3)


def two_scale(tau: float, u: np.ndarray, *, keeps: bool) -> Arrays:
    r"""(5.69), or with `keeps` its slow form :math:`\psi_n = \psi_{n-1} + \tau g`.

    Shapes: u (T, 1) -> phi and psi, each (T, 1).
    """
    phi, psi, path = np.zeros((1, 1)), np.zeros((1, 1)), []
    for row in u:
        phi = fast_map(np.hstack([phi, psi, row[None]]))
        psi = keeps * psi + tau * slow_map(np.hstack([phi, psi, row[None]]))
        path.append((phi[0], psi[0]))
    return {"phi": np.array([p for p, _ in path]), "psi": np.array([p for _, p in path])}


def by_scale(*, of: str, tau: np.ndarray, n_steps: int, width: int, seed: int) -> Arrays:
    """A LEM built by Proposition 5.2.8 against tau, of the same number of units for every tau.

    of: two_scale, the greatest distance of psi to (5.69) over all steps; two_scale_relative, it over the
    greatest psi; slow, the distance where psi_n = psi_(n-1) + tau g; weight_two_scale and weight_slow, the
    greatest entry of all weights without the gates' biases.
    Shapes: tau (n,) -> x (n,), y (n,). Inputs are uniform on [-1, 1].
    """
    one_of("of", of, OF_SCALE)
    count("n_steps", n_steps)
    u = np.random.default_rng(seed).uniform(-1, 1, (n_steps, 1))
    keeps = of in ("slow", "weight_slow")
    y = []
    for value in map(float, tau):
        build = constructed_lem.slow_variable if keeps else constructed_lem.two_scale
        built = build(*map_networks(width), value)
        if of.startswith("weight"):
            symbols = built.layer.symbols()
            weights = [p.detach() for name, p in symbols.items() if name not in ("b1", "b2")]
            y.append(max(float(p.abs().max()) for p in weights))
            continue
        reference = two_scale(value, u, keeps=keeps)["psi"]
        error = float(np.abs(built.run(u)["psi"] - reference).max())
        y.append(error / float(np.abs(reference).max()) if of == "two_scale_relative" else error)
    return {"x": np.array(tau, float), "y": np.array(y)}
