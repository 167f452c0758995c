"""Ordinary differential equations solved by the classical Runge-Kutta method."""

from collections.abc import Callable

import numpy as np

Slope = Callable[[float, np.ndarray], np.ndarray]


def solved(slope: Slope, x: np.ndarray, t_end: float, h: float) -> np.ndarray:
    """x at t = 0, h, 2h .. t_end, time first."""
    path = [x]
    for n in range(round(t_end / h)):
        t = n * h
        a = slope(t, x)
        b = slope(t + h / 2, x + h / 2 * a)
        c = slope(t + h / 2, x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + slope(t + h, x + h * c))
        path.append(x)
    return np.array(path)
