r"""Errors of the construction by which neural oscillators are universal, for figures. Axes: B batch, T time.

The causal operator is the solution of an ODE, :math:`x' = u - x^3, x(0) = 0`, on [0, 2]; the compact set K
are sums of four sines, :math:`u(t) = \sum_k c_k \sin(k \pi t / 4)`, with |c_k| at most 1.5/k.

Source: Rusch, thesis, chapter 4 (Lanthaler, Rusch and Mishra, NeurIPS 2023, https://arxiv.org/abs/2305.08753);
`physml.lab.universal` builds the networks.
"""

import numpy as np
import torch

from physml.base.check import count, one_of
from physml.base.errors import InputError
from physml.lab import universal
from physml.lab.shallow import Shallow, fitted
from physml.models.sequence.oscillator import ACTIVATIONS, Activation, NeuralOscillator

Arrays = dict[str, np.ndarray]
T_END = 2.0


def drawn(n: int, dt: float, seed: int) -> np.ndarray:
    """n inputs of K at t = dt, 2 dt, .. to T_END, (n, T), of at least eight steps."""
    count("inputs", n)
    if not 0 < dt <= T_END / 8:
        raise InputError(f"dt must be above 0 and at most {T_END / 8}; got {dt}.")
    k = np.arange(1, 5)
    c = np.random.default_rng(seed).uniform(-1.5, 1.5, (n, 4)) / k
    t = dt * np.arange(1, round(T_END / dt) + 1)
    return c @ np.sin(np.outer(k, t) * np.pi / 4)


def operator(u: np.ndarray, dt: float) -> np.ndarray:
    """The solution of x' = u - x^3 from 0, by Heun's method, second order. u (B, T) -> x (B, T)."""
    x, before, path = np.zeros(len(u)), np.zeros(len(u)), []
    for now in u.T:
        slope = before - x**3
        guess = x + dt * slope
        x = x + dt / 2 * (slope + now - guess**3)
        before = now
        path.append(x)
    return np.stack(path, 1)


def by_frequencies(*, of: str, counts: np.ndarray, delay: float, dt: float, inputs: int, seed: int) -> Arrays:
    r"""The greatest error of u(t - tau) over K and t against the number N of frequencies.

    The width of the mollifier is 36 over the greatest frequency.

    of: inversion, Lemma 4.2.6 for all tau in [0, delay]; printed, the same with the mollifier on the
        printed side; delay, Lemma 4.2.9, u(t - delay) by a layer of tanh oscillators.
    Shapes: counts (n,) -> x (n,), y (n,).
    """
    one_of("of", of, ("inversion", "printed", "delay"))
    u = drawn(inputs, dt, seed)
    steps = np.arange(0, round(delay / dt) + 1, max(1, round(delay / dt) // 10))
    y = []
    for n in map(int, counts):
        epsilon = mollifier(n)
        inverse = universal.inversion(T_END, epsilon, n, side="ahead" if of == "printed" else "behind")
        if of == "delay":
            layer, read = universal.transforms(inverse.omega, 1, s=1e-4, dt=dt)
            A = np.append(inverse.delays(np.array([delay]))[:, 0] * read[:-1], 0.0)[None]
            network = universal.assembled([layer], A, np.zeros(1), p=1, dt=dt)
            y.append(float(np.abs(network.run(u[..., None])[..., 0] - delayed(u, round(delay / dt))).max()))
            continue
        again = inverse(universal.sine_transform(u, dt, inverse.omega), steps * dt)
        y.append(max(float(np.abs(again[..., i] - delayed(u, int(k))).max()) for i, k in enumerate(steps)))
    return {"x": np.array(counts, float), "y": np.array(y)}


def mollifier(n: int) -> float:
    """The width epsilon for n frequencies: 36 over the greatest, n pi / (T + epsilon)."""
    count("n", n)
    return T_END / max(np.pi * n / 36 - 1, 0.5)


def delayed(u: np.ndarray, k: int) -> np.ndarray:
    """u (B, T), k steps later, 0 before."""
    return np.pad(u, ((0, 0), (k, 0)))[:, : u.shape[1]]


def by_s(
    *, activation: Activation, s: np.ndarray, omega: float, dt: float, printed: bool, seed: int
) -> Arrays:
    """Lemma 4.2.8: the greatest error of A y against s, over eight inputs of K and all times.

    Errors are to the forced harmonic oscillator in the same steps of dt: those of the steps are left out.
    printed: with A = 1/s.
    Shapes: s (n,) -> x (n,), y (n,).
    """
    one_of("activation", activation, ACTIVATIONS)
    u = drawn(8, dt, seed)

    def output(s: float, activation: Activation, printed: bool) -> np.ndarray:
        weights = universal.oscillators(np.array([omega]), s=s, dt=dt)
        layer = NeuralOscillator(1, 1, dt=dt, activation=activation).double()
        with torch.no_grad():
            for name, value in {"W": weights.w[0], "V": weights.V[0], "b": 0.0}.items():
                layer.symbols()[name].fill_(value)
            y = layer(torch.as_tensor(u)[..., None])[0][..., 0].numpy()
        return y * (1 / s if printed else weights.A[0])

    reference = output(1.0, "identity", False)
    y = [float(np.abs(output(float(scale), activation, printed) - reference).max()) for scale in s]
    return {"x": np.array(s, float), "y": np.array(y)}


def fundamental(*, counts: np.ndarray, dt: float, inputs: int, seed: int) -> Arrays:
    r"""The Fundamental Lemma: the greatest error of Psi against N, at eight times, over K.

    :math:`\Psi(\mathcal{L}_t u(\omega_1), .., ; t^2/4) = \Phi(\mathcal{R}_t u)(t)` as in its proof, where
    :math:`\mathcal{R}_t u` is the input found from the transforms.
    Shapes: counts (n,) -> x (n,), y (n,).
    """
    u = drawn(inputs, dt, seed)
    x = operator(u, dt)
    times = np.linspace(u.shape[1] // 8, u.shape[1], 8).astype(int)
    y = []
    for n in map(int, counts):
        inverse = universal.inversion(T_END, mollifier(n), n)
        transform = universal.sine_transform(u, dt, inverse.omega)
        worst = 0.0
        for k in times:
            again = inverse(transform[:, k - 1], dt * np.arange(k))[:, ::-1]  # u(dt) to u(k dt)
            worst = max(worst, float(np.abs(operator(again, dt)[:, -1] - x[:, k - 1]).max()))
        y.append(worst)
    return {"x": np.array(counts, float), "y": np.array(y)}


def frequencies(n: int) -> np.ndarray:
    """Frequencies of the first layer: (j - 1/2) pi / T, j = 1..n."""
    return (np.arange(n) + 0.5) * np.pi / T_END


def network_near_psi(n: int, width: int, dt: float, seed: int, *, inputs: int = 400) -> Shallow:
    """Sigma, Lambda, gamma for the operator, fitted to inputs of K at 40 times; n frequencies."""
    u = drawn(inputs, dt, 1000 + seed)
    every = max(1, u.shape[1] // 40)
    beta = features(u, dt, frequencies(n))[:, ::every].reshape(-1, n + 1)
    x = operator(u, dt)[:, ::every].reshape(-1, 1)
    return fitted(
        lambda _: x, beta.min(0), beta.max(0), width=width, seed=seed, slope=0.6, ridge=1e-10, points=beta
    )


def features(u: np.ndarray, dt: float, omega: np.ndarray) -> np.ndarray:
    """beta of Theorem 4.2.1: the transforms and t^2 / 4. u (B, T) -> (B, T, N + 1)."""
    t = dt * np.arange(1, u.shape[1] + 1)
    clock = np.broadcast_to(t**2 / 4, u.shape)[..., None]
    return np.concatenate([universal.sine_transform(u, dt, omega), clock], -1)


def by_width(*, of: str, widths: np.ndarray, n: int, third: int, dt: float, inputs: int, seed: int) -> Arrays:
    r"""Theorem 4.2.1: the greatest error over fresh inputs of K and all t against the width of layer 2.

    of: oscillator, the three-layer network, run in steps of dt; perceptron,
    :math:`\Sigma\sigma(\Lambda\beta + \gamma)` alone, of exact transforms.
    n: frequencies of layer 1. third: frequencies of layer 3.
    Shapes: widths (n,) -> x (n,), y (n,).
    """
    one_of("of", of, ("oscillator", "perceptron"))
    u = drawn(inputs, dt, seed)
    x, y = operator(u, dt), []
    epsilon = mollifier(third)
    for width in map(int, widths):
        near = network_near_psi(n, width, dt, seed)
        if of == "perceptron":
            beta = features(u, dt, frequencies(n))
            z = near(beta.reshape(-1, n + 1)).reshape(x.shape)
        else:
            built = universal.three_layers(
                near,
                frequencies(n),
                universal.inversion(T_END, epsilon, third),
                p=1,
                delta=epsilon / 2,
                dt=dt,
            )
            z = built.run(u[..., None])[..., 0]
        y.append(float(np.abs(z - x).max()))
    return {"x": np.array(widths, float), "y": np.array(y)}
