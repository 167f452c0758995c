r"""The construction by which neural oscillators are universal: thesis, Theorem 4.2.1 and its lemmas.

Signals are sampled at t = dt, 2 dt, .. and are 0 at t = 0. Axes: B batch, T time, p inputs, N frequencies, m
units of the second layer, q outputs, H units of a layer.
"""

from dataclasses import dataclass

import numpy as np
import torch

from physml.base.check import count, each, one_of, positive
from physml.base.errors import InputError
from physml.lab.shallow import Shallow
from physml.models.sequence.oscillator import MultilayerOscillator

CLOCK = float(np.arctanh(0.5))  # a bias b with tanh(b) = 1/2: y'' = tanh(b) gives t^2 / 4


def sine_transform(u: np.ndarray, dt: float, omega: np.ndarray) -> np.ndarray:
    r"""The time-windowed sine transform (4.11), by the trapezoidal rule.

    .. math:: \mathcal{L}_t u(\omega) = \int_0^t u(t - \tau) \sin(\omega\tau) \, d\tau

    Shapes: u (B, T), omega (N,) -> (B, T, N).
    """
    positive("dt", dt)
    t = dt * np.arange(u.shape[1] + 1)[:, None] * omega
    values = np.pad(u, ((0, 0), (1, 0)))[..., None]

    def integral(y: np.ndarray) -> np.ndarray:
        return np.cumsum((y[:, 1:] + y[:, :-1]) * (dt / 2), axis=1)

    cos, sin = np.cos(t), np.sin(t)
    return sin[1:] * integral(values * cos) - cos[1:] * integral(values * sin)


@dataclass(frozen=True)
class Inversion:
    r"""The weights of Lemma 4.2.6, each (N,).

    .. math:: u(t - \tau) \approx \sum_j \alpha_j \mathcal{L}_t u(\omega_j) \sin(\omega_j\tau - \vartheta_j)
    """

    omega: np.ndarray
    alpha: np.ndarray
    theta: np.ndarray

    def __call__(self, transform: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """transform (.., N), tau (K,) -> (.., K)."""
        return transform @ self.delays(tau)

    def delays(self, tau: np.ndarray) -> np.ndarray:
        """The weights of the transforms that give u(t - tau), (N, K)."""
        return self.alpha[:, None] * np.sin(np.outer(self.omega, tau) - self.theta[:, None])


def inversion(t_end: float, epsilon: float, n: int, *, side: str = "behind") -> Inversion:
    r"""Lemma 4.2.6 with a mollifier of width epsilon and n frequencies, evenly spaced from 0.

    .. math::
        \alpha_j = \tfrac{2\Delta\omega}{\pi} |\hat\rho(\omega_j)|, \quad
        \vartheta_j = -\arg \hat\rho(\omega_j), \quad
        \omega_j = (j - \tfrac12)\Delta\omega, \quad \Delta\omega = \frac{\pi}{t_{end} + \epsilon}

    The mollifier is :math:`\exp(16\sqrt{1 - x^2})` over its integral, x from -1 to 1, whose transform decays
    early: second differences of delays divide what is left out by their square.

    These are the sums of the proof over both signs of omega, for the Fourier transform
    :math:`\hat F = -2i \mathcal{L}_t u` of the odd extension; the proof prints 2i, which gives -u.
    The spacing is the largest at which the sum, which is periodic, repeats nothing in [0, t_end].

    Args:
        t_end: T, the end of time.
        epsilon: what is found is u, averaged over times t - tau - epsilon to t - tau.
        n: N.
        side: "behind", a mollifier on [-epsilon, 0], as the second step of the proof needs it; "ahead", on
            [0, epsilon], as it prints: near tau = 0 that averages over the jump of the odd extension.
    """
    each(positive, t_end=t_end, epsilon=epsilon)
    count("n", n)
    one_of("side", side, ("behind", "ahead"))
    spacing = np.pi / (t_end + epsilon)
    omega = (np.arange(n) + 0.5) * spacing
    x = (np.arange(2000) + 0.5) / 1000 - 1
    bump = np.exp(16 * (np.sqrt(1 - x**2) - 1))  # its transform is below 1e-6 from 18 over the half width
    at = epsilon * (x + (1 if side == "ahead" else -1)) / 2
    hat = np.exp(-1j * np.outer(omega, at)) @ (bump / bump.sum())
    return Inversion(omega, 2 * spacing / np.pi * np.abs(hat), -np.angle(hat))


@dataclass(frozen=True)
class Oscillators:
    r"""Lemma 4.2.8: one oscillator for each frequency, :math:`y'' = \sigma(w y + V u)` with
    :math:`A y \approx \mathcal{L}_t u(\omega)`.

    Args:
        w, V, A: each (N,).
    """

    w: np.ndarray
    V: np.ndarray
    A: np.ndarray


def oscillators(omega: np.ndarray, *, s: float, dt: float) -> Oscillators:
    r"""The weights of Lemma 4.2.8, :math:`w = -\omega^2, V = s, A = \omega / s`, for steps of dt.

    w is such that the steps have the frequency omega, :math:`-(2 \sin(\omega dt / 2) / dt)^2`, and A
    belongs to it.
    The text prints A = 1/s, for which y must be the transform; by Lemma 4.2.4 it is the transform over omega.

    Args:
        omega: (N,), not 0.
        s: small: the nonlinearity errs by s^2.
        dt: the step with which the network is run.
    """
    positive("s", s)
    if not (omega != 0).all():
        raise InputError("frequencies must not be 0: the transform would be 0, whatever the input.")
    if not (np.abs(omega) * dt < np.pi / 2).all():
        raise InputError(
            f"dt must be below pi / 2 over the greatest frequency {np.abs(omega).max():.4g}; got {dt}."
        )
    w = -((2 * np.sin(omega * dt / 2) / dt) ** 2)
    return Oscillators(w, np.full(len(omega), s), np.sin(omega * dt) / dt / s)


@dataclass(frozen=True)
class Network:
    """A multi-layer oscillator in double precision with its output z = A y^L + c."""

    layer: MultilayerOscillator  # (4.2)
    A: np.ndarray  # (q, H)
    c: np.ndarray  # (q,)

    @torch.no_grad()
    def run(self, u: np.ndarray) -> np.ndarray:
        """u (B, T, p) -> z (B, T, q)."""
        y, _ = self.layer(torch.as_tensor(u, dtype=torch.double))
        return y.numpy() @ self.A.T + self.c


Weights = tuple[np.ndarray, np.ndarray, np.ndarray]  # w (m,), V (m, units below), b (m,)


def assembled(layers: list[Weights], A: np.ndarray, c: np.ndarray, *, p: int, dt: float) -> Network:
    """Layers of different width as one `MultilayerOscillator`, filled up with units of weight zero.

    A (q, units of the last layer), c (q,).
    """
    width = max(len(w) for w, _, _ in layers)
    layer = MultilayerOscillator(p, width, n_layers=len(layers), dt=dt).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        for symbols, (w, V, b) in zip(layer.symbols(), layers, strict=True):
            symbols["w"][: len(w)] = torch.as_tensor(w)
            symbols["V"][: V.shape[0], : V.shape[1]] = torch.as_tensor(V)
            symbols["b"][: len(b)] = torch.as_tensor(b)
    return Network(layer, np.pad(A, ((0, 0), (0, width - A.shape[1]))), c)


def transforms(omega: np.ndarray, p: int, *, s: float, dt: float) -> tuple[Weights, np.ndarray]:
    """The first layer: N oscillators for each input, and one that gives t^2 / 4; with its output (N p + 1,).

    The transforms of the first input come first.
    """
    weights = oscillators(omega, s=s, dt=dt)
    n = len(omega)
    V = np.zeros((n * p + 1, p))
    for i in range(p):
        V[i * n : (i + 1) * n, i] = weights.V
    w = np.append(np.tile(weights.w, p), 0.0)
    b = np.append(np.zeros(n * p), CLOCK)
    return (w, V, b), np.append(np.tile(weights.A, p), 1.0)


def perceptron(
    network: Shallow, below: np.ndarray, inverse: Inversion, *, delta: float, s: float, dt: float
) -> tuple[list[Weights], np.ndarray, np.ndarray]:
    r"""Lemma 4.2.10: two layers whose output is :math:`\Sigma\sigma(\Lambda\beta(t) + \gamma)`,.

    The first has :math:`\ddot y = \sigma(\Lambda\beta + \gamma)`, and one unit with the part sigma(gamma) of
    all. The second takes second differences of time delays of :math:`\eta = \Sigma(y_1 - y_2)`. The lemma
    takes those of every unit and Sigma after them; the second layer is linear up to s^2, so that Sigma comes
    before it here, with q instead of m blocks of oscillators.

    Args:
        network: W is Lambda (m, d), b is gamma, A is Sigma (q, m).
        below: (d,), the weights with which beta is read from the units below.
        inverse: of Lemma 4.2.6.
        delta: the time delay.
        s: as in `oscillators`.
        dt: the step with which the network is run.
    Returns: two layers, the output A (q, q N) and c (q,).
    """
    positive("delta", delta)
    m, q = network.width, network.A.shape[0]
    at_rest = network.A @ np.tanh(network.b)  # (q,)
    first = (
        np.zeros(m + 1),
        np.vstack([network.W * below, np.zeros(len(below))]),
        np.append(network.b, CLOCK),
    )
    weights = oscillators(inverse.omega, s=s, dt=dt)
    eta = np.hstack([network.A, -2 * at_rest[:, None]])  # of its units: the last has y'' = 1/2
    second = (np.tile(weights.w, q), s * np.repeat(eta, len(weights.w), axis=0), np.zeros(q * len(weights.w)))
    difference = inverse.delays(delta * np.arange(3)) @ np.array([1.0, -2.0, 1.0]) / delta**2
    return [first, second], np.kron(np.eye(q), difference * weights.A), at_rest


def three_layers(
    network: Shallow,
    omega: np.ndarray,
    inverse: Inversion,
    *,
    p: int,
    delta: float,
    dt: float,
    s: float = 1e-4,
) -> Network:
    r"""The three-layer oscillator of Theorem 4.2.1 and Figure 4.1.

    .. math:: z(t) \approx \Sigma\,\sigma(\Lambda\beta + \gamma), \qquad
        \beta = [\mathcal{L}_t u(\omega_1), .., \mathcal{L}_t u(\omega_N), t^2/4]

    Args:
        network: near the function Psi of the Fundamental Lemma, (N p + 1) -> q.
        omega: (N,), the frequencies of the first layer.
        inverse: for the third layer.
        p: inputs.
        delta: the time delay of the second differences.
        dt: the step with which the network is run.
        s: as in `oscillators`.
    """
    if network.W.shape[1] != len(omega) * p + 1:
        raise InputError(f"network must have {len(omega) * p + 1} inputs; got {network.W.shape[1]}.")
    first, read = transforms(omega, p, s=s, dt=dt)
    rest, A, c = perceptron(network, read, inverse, delta=delta, s=s, dt=dt)
    return assembled([first, *rest], A, c, p=p, dt=dt)
