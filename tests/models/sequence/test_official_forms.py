"""Rates of learning and solver as the authors' codes have them."""

import math

import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.nrde import NeuralRDE
from physml.training.schedules import WarmupCosine


def test_the_rate_warms_up_and_falls_along_a_cosine() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = WarmupCosine(optimizer, epochs=8, warmup=2, floor=0.1)
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    falls = [2 * (0.1 + 0.9 * (1 + math.cos(math.pi * k / 6)) / 2) for k in range(6)]
    assert rates == pytest.approx([1.0, 2.0, *falls, 0.2, 0.2])
    refuses(InputError, r"warmup must lie in \[0, 8\)", WarmupCosine, optimizer, epochs=8, warmup=8)


def cde_of_torchcde(layer: NeuralRDE, u: Tensor) -> Tensor:
    """cdeint with rk4 and step 1: at a knot bisection finds the line that ends there; the 3/8 rule."""
    t = torch.linspace(0, 1, u.shape[1], dtype=u.dtype)
    path = torch.cat([t[None, :, None].expand(len(u), -1, -1), u], 2)
    lines = path.diff(dim=1)

    def slope(time: float, z: Tensor) -> Tensor:
        line = min(max(math.ceil(time) - 1, 0), lines.shape[1] - 1)
        return (layer.field(z).unflatten(1, (layer.d_out, -1)) @ lines[:, line].unsqueeze(2)).squeeze(2)

    z = layer.start(path[:, 0])
    for k in range(lines.shape[1]):
        k1 = slope(k, z)
        k2 = slope(k + 1 / 3, z + k1 / 3)
        k3 = slope(k + 2 / 3, z + k2 - k1 / 3)
        k4 = slope(k + 1, z + k1 - k2 + k3)
        z = z + (k1 + 3 * k2 + 3 * k3 + k4) / 8
    return z


def ncde(solver: str | None) -> NeuralRDE:
    torch.manual_seed(0)
    return NeuralRDE(2, 5, depth=1, window=1, d_field=7, n_layers=2, time=True, solver=solver).double()  # type: ignore[arg-type]


def test_ncde_as_torchcde() -> None:
    u = numbers(3, 9, 2)
    reference = cde_of_torchcde(ncde("torchcde"), u)
    torch.testing.assert_close(ncde("torchcde")(u)[0][:, -1], reference, rtol=0, atol=1e-12)
    assert (ncde(None)(u)[0][:, -1] - reference).abs().max() > 1e-2, "the default is another discretisation"
