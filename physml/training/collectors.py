"""Small arrays that a figure needs beside metrics, written beside the record."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from physml.base.check import count, positive
from physml.base.errors import ConfigError, InputError
from physml.task.base import Task
from physml.training.evaluate import apply


class TimeScales:
    """A fixed random sample of the step vectors that a trained LEM uses on the test part.

    Source: LEM paper (arXiv 2110.04744), Figure 4.
    Arrays: dt_n, dtbar_n, each (n,), float32.

    Args:
        n: size of the sample.
    """

    def __init__(self, n: int) -> None:
        count("n", n)
        self.n = n

    @torch.no_grad()
    def collect(self, net: nn.Module, task: Task, batch_size: int, device: str) -> dict[str, np.ndarray]:
        layer: Any = next((m for m in net.modules() if hasattr(m, "time_scales")), None)
        if layer is None:
            raise ConfigError("arrays: TimeScales needs a layer with learned time scales, such as LEM.")
        sizes = [batch.input.shape[:2].numel() * layer.d_out for batch in task.batches("test", batch_size)]
        rng = np.random.default_rng(0)
        n = sum(sizes)  # of which not all fit into memory: 10^9 for sMNIST
        positions = {name: rng.choice(n, min(self.n, n), replace=False) for name in ("dt_n", "dtbar_n")}
        samples = {name: np.empty(len(at), np.float32) for name, at in positions.items()}
        start = 0
        taken: list[torch.Tensor] = []  # what comes to the layer, behind an encoder say
        for size, batch in zip(sizes, task.batches("test", batch_size), strict=True):
            with layer.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0])):
                apply(net, batch.to(device))
            scales = layer.time_scales(taken.pop())
            for (name, at), scale in zip(positions.items(), scales, strict=True):
                here = (at >= start) & (at < start + size)
                samples[name][here] = scale.flatten().cpu().numpy()[at[here] - start]
            start += size
        return samples


class EffectiveSteps:
    r"""The time steps :math:`\Delta t\,\hat\sigma(c)` of every unit and layer of a trained UnICORNN.

    Source: UnICORNN paper (arXiv 2103.05487); thesis, Figure 3.5.
    Arrays: steps_1, steps_2, ..., one per layer from the lowest, each (H,), float32.
    """

    @torch.no_grad()
    def collect(self, net: nn.Module, task: Task, batch_size: int, device: str) -> dict[str, np.ndarray]:
        layers: list[Any] = [
            m for m in net.modules() if hasattr(m, "c") and callable(getattr(m, "step", None))
        ]
        if not layers:
            raise ConfigError("arrays: EffectiveSteps needs a layer with steps of its own, such as UnICORNN.")
        return {f"steps_{i}": layer.step().float().cpu().numpy() for i, layer in enumerate(layers, 1)}


class StepSizes:
    r"""How well a network that has learned the steps of an integrator does with other ones.

    The right-hand side R that the network has learned is integrated from the first points of the swings of
    test, by each scheme with steps of `factors` times the network's own dt. The error is the root mean square
    distance to the exact swing at the times that all steps meet, multiples of the greatest one.

    Source: talk of M. Mahoney (January 2022), "Example: Nonlinear Pendulum"; Queiruga et al., 2020,
    https://arxiv.org/abs/2008.02389.
    Arrays: step, (F,), the sizes; euler, midpoint and rk4, (F,), the errors; NaN where a path leaves all
        bounds.

    Args:
        factors: of dt; the greatest must be a whole multiple of each.
        n_times: multiples of the greatest step.
    """

    def __init__(self, factors: Sequence[float], n_times: int) -> None:
        count("n_times", n_times)
        if not factors:
            raise InputError("factors must hold at least one number; got none.")
        for factor in factors:
            positive("factors", factor)
            ratio = max(factors) / factor
            if abs(ratio - round(ratio)) > 1e-6:
                raise InputError(f"factors: {max(factors)} must be a whole multiple of each; got {factor}.")
        self.factors, self.n_times = tuple(sorted(factors)), n_times

    @torch.no_grad()
    def collect(self, net: nn.Module, task: Task, batch_size: int, device: str) -> dict[str, np.ndarray]:
        layer: Any = next((m for m in net.modules() if hasattr(m, "advance")), None)
        if layer is None or not hasattr(task, "swings"):
            raise ConfigError("arrays: StepSizes needs the model continuous_depth and the task pendulum.")
        swings: Any = task
        start = swings.swings()[:, 0]
        times = max(self.factors) * layer.dt * np.arange(1, self.n_times + 1)
        exact = swings.exact(start[:, 0].double().cpu(), times)
        arrays: dict[str, np.ndarray] = {"step": layer.dt * np.array(self.factors)}
        for scheme in ("euler", "midpoint", "rk4"):
            errors = [self._error(layer, scheme, factor, start, exact) for factor in self.factors]
            arrays[scheme] = np.array(errors)
        return arrays

    def _error(self, layer: Any, scheme: str, factor: float, x: torch.Tensor, exact: torch.Tensor) -> float:
        span, n_steps = max(self.factors) * layer.dt, round(max(self.factors) / factor)
        path = []
        for _ in range(self.n_times):
            x = layer.advance(x, span, scheme=scheme, n_steps=n_steps)
            path.append(x)
        error = (torch.stack(path, 1).double().cpu() - exact).square().mean().sqrt().item()
        return error if np.isfinite(error) else float("nan")


class Forecasts:
    r"""How a dynamic autoencoder forecasts, and the spectra of its maps.

    The forecasts start from `n` observations of test, evenly spaced; the error at step k is the mean over
    them of :math:`\|\hat x_{t+k} - x_{t+k}\| / \|x_{t+k}\|` with observations x free of noise.

    Source: talk of M. Mahoney (January 2022), "Consistency Stabilizes Weights" and "High-dimensional
    Nonlinear Pendulum with no Friction"; Azencot et al., ICML 2020, https://arxiv.org/abs/2003.02236.
    Arrays: step, error, (steps,); real, imaginary, modulus, (H,): the eigenvalues of Omega, the modulus from
    the greatest on; index, (H,); singular, (H,), its singular values; product, (H,), with a backward map: the
    moduli of the eigenvalues of Omega Omega'.

    Args:
        steps: of each forecast, at most three quarters of the points of test.
        n: forecasts.
    """

    def __init__(self, steps: int, n: int) -> None:
        count("steps", steps)
        count("n", n)
        self.steps, self.n = steps, n

    @torch.no_grad()
    def collect(self, net: nn.Module, task: Task, batch_size: int, device: str) -> dict[str, np.ndarray]:
        layer: Any = next((m for m in net.modules() if hasattr(m, "Omega")), None)
        if layer is None or not hasattr(task, "test_points"):
            raise ConfigError("arrays: Forecasts needs the model koopman and the task pendulum_windows.")
        of_windows: Any = task
        seen, clean = of_windows.test_points()
        steps = min(self.steps, 3 * len(seen) // 4)
        starts = np.unique(np.linspace(0, len(seen) - steps - 1, self.n).round().astype(int))
        predicted = layer.predict(seen[starts].to(device), steps).double().cpu()  # (n, steps, D)
        target = torch.stack([clean[t + 1 : t + 1 + steps] for t in starts]).double().cpu()
        error = ((predicted - target).norm(dim=-1) / target.norm(dim=-1)).mean(0)
        omega = layer.Omega.double().cpu()
        values = torch.linalg.eigvals(omega).numpy()
        values = values[np.argsort(-np.abs(values))]
        arrays = {
            "step": np.arange(1.0, steps + 1),
            "error": error.numpy(),
            "index": np.arange(1.0, len(values) + 1),
            "real": values.real,
            "imaginary": values.imag,
            "modulus": np.abs(values),
            "singular": torch.linalg.svdvals(omega).numpy(),
        }
        if layer.Back is not None:
            product = torch.linalg.eigvals(omega @ layer.Back.double().cpu()).abs()
            arrays["product"] = product.sort(descending=True).values.numpy()
        return arrays
