r"""The simplified Frenkel-Kontorova network of coupled pendula, a physical oscillator. Axes: n pendula.

.. math:: M \ddot\theta = -K \sin\theta - C \sin\theta + F

C is symmetric, and its diagonal is minus the sum of the rest of its row (4.7). With
:math:`P y = \theta, P = M^{-1}(K + C)`, it is a neural oscillator (4.8):

.. math:: \ddot y = -\sin(M^{-1}(K + C) y) + (K + C)^{-1} F

(4.8) prints F for the last term. For a network this loses nothing: its force is any linear map of the input.

Source: Wright et al., Nature 601, 2022, supplement 4.A; Rusch, thesis, section 4.1.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from physml.base.check import count, each, positive
from physml.base.errors import InputError

Arrays = dict[str, np.ndarray]
Force = Callable[[float], np.ndarray]


@dataclass(frozen=True)
class Network:
    """Pendula with masses and springs.

    Errors: InputError for a C that (4.7) does not allow.
    """

    mass: np.ndarray  # (n,), the diagonal of M, positive
    spring: np.ndarray  # (n,), the diagonal of K
    coupling: np.ndarray  # c, (n, n)

    def __post_init__(self) -> None:
        n = len(self.mass)
        if self.spring.shape != (n,) or self.coupling.shape != (n, n):
            raise InputError(
                "mass, spring and coupling must have shapes (n,), (n,) and (n, n); got "
                f"{self.mass.shape}, {self.spring.shape} and {self.coupling.shape}."
            )
        if not (self.mass > 0).all():
            raise InputError(f"masses must be positive; got {self.mass.min()}.")
        C = self.coupling
        if not np.allclose(C, C.T) or not np.allclose(C.sum(1), 0):
            raise InputError("coupling must be symmetric, and its rows must add up to 0 (thesis 4.7).")

    @property
    def stiffness(self) -> np.ndarray:
        """K + C."""
        return np.diag(self.spring) + self.coupling

    @property
    def P(self) -> np.ndarray:
        """M^-1 (K + C), the weights W of the neural oscillator."""
        return self.stiffness / self.mass[:, None]

    def angles(self, force: Force, t: np.ndarray, theta: np.ndarray | None = None) -> np.ndarray:
        """theta at times t from rest, or from given angles; force gives F, (n,). Shape (T, n)."""
        return _solve(
            lambda s, x: (force(s) - self.stiffness @ np.sin(x)) / self.mass, t, theta, len(self.mass)
        )

    def oscillator(self, force: Force, t: np.ndarray) -> np.ndarray:
        """y of (4.8) with the force (K + C)^-1 F, at times t from rest, (T, n)."""
        P, stiffness = self.P, self.stiffness
        return _solve(
            lambda s, y: np.linalg.solve(stiffness, force(s)) - np.sin(P @ y), t, None, len(self.mass)
        )


def couplings(links: np.ndarray) -> np.ndarray:
    """C of (4.7) from its entries off the diagonal, symmetric, (n, n)."""
    off = links - np.diag(np.diag(links))
    return off - np.diag(off.sum(1))


def _solve(
    acceleration: Callable[[float, np.ndarray], np.ndarray], t: np.ndarray, start: np.ndarray | None, n: int
) -> np.ndarray:
    x = np.concatenate([np.zeros(n) if start is None else start, np.zeros(n)])
    solution = solve_ivp(
        lambda s, x: np.concatenate([x[n:], acceleration(s, x[:n])]),
        (0.0, float(t[-1])),
        x,
        method="DOP853",
        t_eval=t,
        rtol=1e-10,
        atol=1e-12,
    )
    return solution.y[:n].T


def layered(*, n_layers: int, width: int, epsilon: float, seed: int) -> Network:
    """Pendula in layers whose masses and couplings are of the order of epsilon to the power of the layer.

    Layer L comes first, as in the text. Only neighbouring layers are coupled, by numbers from U(-1, 1) times
    epsilon^l between layers l and l - 1. Springs make the diagonal of M^-1 (K + C) equal to 1.
    """
    each(count, n_layers=n_layers, width=width)
    positive("epsilon", epsilon)
    rng = np.random.default_rng(seed)
    level = np.repeat(np.arange(n_layers, 0, -1), width)
    draws = rng.uniform(-1, 1, (n_layers * width, n_layers * width))
    links = np.where(level[:, None] == level + 1, draws * epsilon ** level[:, None], 0.0)
    coupling = couplings(links + links.T)
    mass = epsilon ** level.astype(float)
    return Network(mass, mass - np.diag(coupling), coupling)


def one_way(*, epsilon: np.ndarray, n_layers: int, width: int, t_end: float, seed: int) -> Arrays:
    r"""How far the network is from one with coupling in one direction alone, (4.9), against epsilon.

    The greatest distance of y between :math:`\ddot y = -\sin(W y) + F` with
    :math:`W = M^{-1}(K + C)` and with its upper triangle, over t up to t_end;
    F = sin(2t) for all units of layer 1, 0 above.
    Shapes: epsilon (n,) -> x (n,), y (n,).
    """
    positive("t_end", t_end)
    n = n_layers * width
    t = np.linspace(0, t_end, 201)[1:]
    into_first = np.arange(n) >= n - width
    y = []
    for value in map(float, epsilon):
        W = layered(n_layers=n_layers, width=width, epsilon=value, seed=seed).P
        both, upper = (_driven(A, into_first, t) for A in (W, np.triu(W)))
        y.append(float(np.abs(both - upper).max()))
    return {"x": np.array(epsilon, float), "y": np.array(y)}


def _driven(W: np.ndarray, into: np.ndarray, t: np.ndarray) -> np.ndarray:
    return _solve(lambda s, y: np.sin(2 * s) * into - np.sin(W @ y), t, None, len(W))
