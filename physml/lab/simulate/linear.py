r"""Linear systems behind recurrent networks: stability of one-step schemes, symmetric-skew matrices.

Axes: n units or points. Source: Mahoney, talk of January 2022, equations (3), (4) and (7), Proposition 1;
from Erichson et al., Lipschitz Recurrent Neural Networks, ICLR 2021, https://arxiv.org/abs/2006.12070.
"""

import numpy as np

from physml.base import check
from physml.base.check import count, non_negative, one_of, positive, within
from physml.base.errors import InputError

Arrays = dict[str, np.ndarray]

# One step of h' = lambda h multiplies h by R(z), z = lambda dt; coefficients of R from the highest power.
SCHEMES = {
    "euler": np.array([1.0, 1.0]),
    "midpoint": np.array([1 / 2, 1.0, 1.0]),
    "rk4": np.array([1 / 24, 1 / 6, 1 / 2, 1.0, 1.0]),
}
TURN = 400  # points of the boundary for each time that R goes around the unit circle


def factor(scheme: str, z: np.ndarray) -> np.ndarray:
    """R(z), the factor of one step: "euler", "midpoint" (the rk2 of the Lipschitz RNN) or "rk4"."""
    one_of("scheme", scheme, SCHEMES)
    return np.asarray(np.polyval(SCHEMES[scheme], z))


def region(*, scheme: str) -> Arrays:
    """The boundary |R(z)| = 1 of the region in which a scheme is stable.

    All zeros of R lie inside, so R goes around the unit circle as often as its degree says; each point is
    found by Newton's method from the one before, from z = 0 on.

    Shapes: x, y (n,), the real and the imaginary part, a closed line.
    """
    one_of("scheme", scheme, SCHEMES)
    coefficients = SCHEMES[scheme]
    slope = np.polyder(coefficients)
    turns = len(coefficients) - 1
    z, line = 0j, []
    for angle in np.linspace(0, 2 * np.pi * turns, TURN * turns + 1):
        for _ in range(4):
            z -= (np.polyval(coefficients, z) - np.exp(1j * angle)) / np.polyval(slope, z)
        line.append(z)
    return {"x": np.real(line), "y": np.imag(line)}


def growth(*, scheme: str, most: float, points: int = 201) -> Arrays:
    r"""Growth in one step of a mode of a skew matrix, which by itself neither grows nor decays.

    .. math:: \omega\Delta t \mapsto |R(i\omega\Delta t)|

    Shapes: x, y (points,), x from 0 to `most`.
    """
    positive("most", most)
    count("points", points)
    x = np.linspace(0.0, most, points)
    return {"x": x, "y": np.abs(factor(scheme, 1j * x))}


def orbit(*, radius: float, angle: float, steps: int) -> Arrays:
    r"""The states of :math:`x_{t+1} = A x_t` from (1, 0), A with the eigenvalues radius exp(+-i angle).

    Shapes: x, y (steps + 1,), the two entries of the state.
    """
    positive("radius", radius)
    count("steps", steps)
    t = np.arange(steps + 1)
    return {"x": radius**t * np.cos(angle * t), "y": radius**t * np.sin(angle * t)}


def symmetric_skew(M: np.ndarray, beta: float, gamma: float) -> np.ndarray:
    r""":math:`S_{\beta,\gamma} = (1 - \beta)(M + M^T) + \beta(M - M^T) - \gamma I`, equation (7)."""
    within("beta", beta, 0.0, 1.0)
    non_negative("gamma", gamma)
    return np.asarray((1 - beta) * (M + M.T) + beta * (M - M.T) - gamma * np.eye(len(M)))


def spectrum(*, part: str, beta: float, gamma: float, units: int, scale: float, seed: int) -> Arrays:
    r"""The eigenvalues of S, M normal with standard deviation scale / units^(1/2), or what bounds them.

    part: "eigenvalues"; "printed", the vertical lines between which Proposition 1 has their real parts,
    :math:`(1 - \beta)\lambda(M^{sym}) - \gamma` with the least and the greatest eigenvalue of
    :math:`M^{sym} = \tfrac12(M + M^T)`; "twice", with :math:`2(1 - \beta)` in its place, as S is written.

    Shapes: x, y (units,), the real and the imaginary part, in the order of both; of lines (5,), with a gap.
    """
    one_of("part", part, ("eigenvalues", "printed", "twice"))
    positive("scale", scale)
    count("units", units)
    check.seed("seed", seed)
    M = np.random.default_rng(seed).normal(0.0, scale * units**-0.5, (units, units))
    eigenvalues = np.linalg.eigvals(symmetric_skew(M, beta, gamma))
    if part == "eigenvalues":
        rounded = eigenvalues.round(6)  # so that the order is the same on every processor
        eigenvalues = eigenvalues[np.lexsort((rounded.imag, rounded.real))]
        return {"x": eigenvalues.real, "y": eigenvalues.imag}
    symmetric = np.linalg.eigvalsh((M + M.T) / 2)
    low, high = (1 if part == "printed" else 2) * (1 - beta) * symmetric[[0, -1]] - gamma
    top = np.abs(eigenvalues.imag).max()
    return {"x": np.array([low, low, np.nan, high, high]), "y": np.array([-top, top, np.nan, -top, top])}


def path(
    *, M: np.ndarray, beta: float, gamma: float, h0: np.ndarray, horizon: float, points: int = 401
) -> Arrays:
    """The solution of h' = S h in the plane, from h0, at times from 0 to the horizon.

    Shapes: M (2, 2), h0 (2,) -> x, y (points,).
    """
    from scipy.linalg import expm

    positive("horizon", horizon)
    count("points", points)
    M, h0 = np.asarray(M, float), np.asarray(h0, float)
    if M.shape != (2, 2) or h0.shape != (2,):
        raise InputError(f"M must have shape (2, 2) and h0 (2,); got {M.shape} and {h0.shape}.")
    one_step = expm(symmetric_skew(M, beta, gamma) * horizon / (points - 1))
    states = [h0]
    for _ in range(points - 1):
        states.append(one_step @ states[-1])
    x, y = np.array(states).T
    return {"x": x, "y": y}
