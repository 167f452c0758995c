"""Networks of one hidden layer, the approximations in the proofs of universality. numpy, float64."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from physml.base.check import count, each, positive
from physml.base.errors import InputError

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Shallow:
    r"""A network of one hidden layer without an output bias.

    .. math:: N(x) = A\,\tanh(W x + b)

    Shapes: x (n, d) -> (n, q).
    """

    W: np.ndarray  # (m, d), weights of the hidden layer
    b: np.ndarray  # (m,), its biases
    A: np.ndarray  # (q, m), weights of the output

    def __post_init__(self) -> None:
        if self.W.ndim != 2 or self.b.shape != self.W.shape[:1] or self.A.shape[1:] != self.b.shape:
            raise InputError(
                "W, b and A must have shapes (m, d), (m,) and (q, m); "
                f"got {self.W.shape}, {self.b.shape} and {self.A.shape}."
            )

    @property
    def width(self) -> int:
        return len(self.b)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.tanh(x @ self.W.T + self.b) @ self.A.T

    def error(self, function: Function, points: np.ndarray) -> float:
        """The greatest Euclidean distance to a function over the points (n, d)."""
        return float(np.linalg.norm(self(points) - function(points), axis=1).max())


def affine(M: np.ndarray, c: np.ndarray, s: float) -> Shallow:
    r"""Nearly M x + c, of as many hidden units: :math:`\tanh(s(M x + c)) / s`, with an error of order s^2.

    Args:
        M: (q, d).
        c: (q,).
        s: small and positive.
    """
    positive("s", s)
    return Shallow(s * M, s * c, np.eye(len(c)) / s)


def identity(d: int, s: float) -> Shallow:
    r"""Nearly the identity of d numbers, as in (5.50): :math:`\tanh(s x) / s`, off by up to s^2 |x|^3 / 3."""
    count("d", d)
    return affine(np.eye(d), np.zeros(d), s)


def box(low: np.ndarray, high: np.ndarray, n: int, seed: int) -> np.ndarray:
    """n points uniform in a box with corners low and high, (n, d)."""
    return np.random.default_rng(seed).uniform(low, high, (n, len(low)))


def fitted(
    function: Function,
    low: np.ndarray,
    high: np.ndarray,
    *,
    width: int,
    seed: int = 0,
    slope: float = 0.5,
    ridge: float = 1e-16,
    points: np.ndarray | None = None,
) -> Shallow:
    """A network near a function on a box, of drawn hidden units and fitted output weights.

    Hidden weights are normal in coordinates that map the box to [-1, 1]^d, biases uniform on [-2, 2] times
    the slope. Output weights are the least squares over 20 points for each unit, with a small penalty that
    keeps them from growing.

    Args:
        function: (n, d) -> (n, q).
        low, high: (d,), the corners of the box.
        width: m, hidden units.
        seed: of units and points.
        slope: the standard deviation of hidden weights.
        ridge: the penalty, against the greatest eigenvalue of the normal equations.
        points: (n, d) in place of points that are uniform in the box.
    """
    count("width", width)
    each(positive, slope=slope, ridge=ridge)
    low, high = np.asarray(low, float), np.asarray(high, float)
    rng = np.random.default_rng(seed)
    scale = np.where(high > low, 2 / np.where(high > low, high - low, 1), 0.0)
    W = slope * rng.standard_normal((width, len(low))) * scale
    b = slope * rng.uniform(-2, 2, width) - W @ (low + high) / 2
    x = box(low, high, 20 * width, seed + 1) if points is None else points
    units = np.tanh(x @ W.T + b)
    # Singular values below the root of the penalty count for little: a filter of Tikhonov.
    left, values, right = np.linalg.svd(units, full_matrices=False)
    kept = values / (values**2 + ridge * values[0] ** 2)
    A = ((right.T * kept) @ (left.T @ function(x))).T
    return Shallow(W, b, A)
