"""The recurrences in JAX: `lax.scan` of the same cell, compiled. Axes: B batch, T time, D, H.

The product with the input is taken for all steps at once, as the reference does.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from physml.base.errors import InputError, needed_by
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN
from scripts.bench.workloads import Workload

Weights = dict[str, Any]


def one_thread() -> Any:
    """The package jax, on one thread of a CPU."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", flags)  # read at the first import
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with needed_by("the variant jax"):
        import jax
    return jax


class JaxStep:
    """Forward and backward of one batch, or with `inference` forward alone; calling it runs it."""

    def __init__(
        self,
        workload: Workload,
        layer: CoRNN | LEM | UnICORNN,
        u: Tensor,
        slope: Tensor,
        device: str,
        inference: bool,
    ) -> None:
        if device != "cpu":
            raise InputError("JAX is timed on a CPU alone")
        jax = one_thread()
        run = _layer_of(layer)
        n_layers = workload.L
        weights = {name: p.detach().numpy() for name, p in layer.named_parameters()}

        def both(weights: Weights, u: Any, slope: Any) -> Any:
            outputs, backward = jax.vjp(lambda w: run(w, u, n_layers), weights)
            return outputs, backward(slope)[0]

        def forward(weights: Weights, u: Any, _: Any) -> Any:
            return run(weights, u, n_layers)

        inputs = [x.transpose(0, 1).contiguous().numpy() for x in (u, slope)]
        self.inputs = jax.device_put((weights, *inputs))
        self.compiled = jax.jit(forward if inference else both).lower(*self.inputs).compile()
        self.wait = jax.block_until_ready

    def __call__(self) -> Any:
        """Outputs (T, B, H), and the gradients by name unless it is inference."""
        return self.wait(self.compiled(*self.inputs))


def _layer_of(layer: CoRNN | LEM | UnICORNN) -> Callable[[Weights, Any, int], Any]:
    if isinstance(layer, CoRNN):
        return partial(_cornn, dt=layer.dt, gamma=layer.gamma, epsilon=layer.epsilon)
    if isinstance(layer, LEM):
        return partial(_lem, dt=layer.dt)
    return partial(_unicornn, dt=layer.dt, alpha=layer.alpha)


def _path(step: Callable[[Any, Any], Any], drive: Any, width: int) -> Any:
    """y of all steps, from states at rest."""
    from jax import lax
    from jax import numpy as jnp

    rest = jnp.zeros((drive.shape[1], width), drive.dtype)

    def carried(state: Any, push: Any) -> Any:
        y, z = step(state, push)
        return (y, z), y

    return lax.scan(carried, (rest, rest), drive)[1]


def _cornn(w: Weights, u: Any, _: int, *, dt: float, gamma: float, epsilon: float) -> Any:
    from jax import numpy as jnp

    both = jnp.concatenate([w["W"], w["Wcal"]], 1).T

    def step(state: Any, push: Any) -> Any:
        y, z = state
        z = z + dt * (jnp.tanh(jnp.concatenate([y, z], 1) @ both + push) - gamma * y - epsilon * z)
        return y + dt * z, z

    return _path(step, u @ w["V"].T + w["b"], w["W"].shape[0])


def _lem(w: Weights, u: Any, _: int, *, dt: float) -> Any:
    from jax import nn as act
    from jax import numpy as jnp

    def step(state: Any, push: Any) -> Any:
        y, z = state
        Vz, V1, V2, Vy = jnp.split(push, 4, 1)
        Az, A1, A2 = jnp.split(y @ w["W"].T, 3, 1)
        dt1, dt2 = dt * act.sigmoid(A1 + V1), dt * act.sigmoid(A2 + V2)
        z = (1 - dt1) * z + dt1 * jnp.tanh(Az + Vz)
        return (1 - dt2) * y + dt2 * jnp.tanh(z @ w["Wy"].T + Vy), z

    return _path(step, u @ w["V"].T + w["b"], w["Wy"].shape[0])


def _unicornn(w: Weights, u: Any, n_layers: int, *, dt: tuple[float, ...], alpha: float) -> Any:
    from jax import nn as act
    from jax import numpy as jnp

    for k in range(n_layers):
        own, V, b, c = (w[f"layers.{k}.{name}"] for name in "wVbc")
        s = dt[k] * act.sigmoid(c)

        def step(state: Any, push: Any, own: Any = own, s: Any = s) -> Any:
            y, z = state
            z = z - s * (jnp.tanh(own * y + push) + alpha * y)
            return y + s * z, z

        u = _path(step, u @ V.T + b, V.shape[0])
    return u


def fft_s4d(layer: Any, u: Tensor) -> Callable[[], Any]:
    """Forward and backward of S4D without its block, a convolution by Fourier transforms; no last state."""
    jax = one_thread()
    jnp = jax.numpy
    weights = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    n = u.shape[1]

    def run(w: Weights, u: Any) -> Any:
        rate = -jnp.exp(w["log_re"]) + 1j * w["im"]
        exponent = rate * jnp.exp(w["log_dt"])[:, None]
        share = (w["C"][0] + 1j * w["C"][1]) * (jnp.exp(exponent) - 1) / rate
        kernel = 2 * jnp.einsum("hp,hpn->hn", share, jnp.exp(exponent[..., None] * jnp.arange(n))).real
        spectrum = jnp.fft.rfft(kernel.T, 2 * n, 0) * jnp.fft.rfft(u, 2 * n, 1)
        return jnp.fft.irfft(spectrum, 2 * n, 1)[:, :n] + w["D"] * u

    def both(w: Weights, u: Any) -> Any:
        outputs, backward = jax.vjp(lambda w: run(w, u), w)
        return outputs, backward(jnp.ones_like(outputs))[0]

    inputs = jax.device_put((weights, u.numpy()))
    compiled = jax.jit(both).lower(*inputs).compile()
    return lambda: jax.block_until_ready(compiled(*inputs))
