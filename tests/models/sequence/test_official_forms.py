"""Read-out, start, rates and solver as the authors' codes have them, where the default is another."""

import math
from typing import Any

import pytest
import torch
from drawn_layers import numbers
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.nrde import NeuralRDE
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.slstm import SLSTM
from physml.training.schedules import WarmupCosine

# ---------------------------------------------------------------------------- read-out


def pooled(**options: Any) -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(
        lambda d_in: nn.GRU(d_in, 5, batch_first=True), 2, 3, "last", False, pool="mean", **options
    ).double()


def test_the_mean_over_time_is_read() -> None:
    net, u = pooled(), numbers(4, 7, 2)
    torch.testing.assert_close(net(u)[0], net.readout(net.layers[0](u)[0].mean(1)))


@pytest.mark.parametrize("lengths", [True, False])
def test_the_mean_of_a_padded_sequence_is_over_its_true_steps(lengths: bool) -> None:
    net, u, n = pooled(lengths=lengths), numbers(3, 6, 2), torch.tensor([6, 1, 4])
    outputs = net(u, n)[0]
    for i, k in enumerate(n.tolist() if lengths else [6] * 3):
        torch.testing.assert_close(outputs[i : i + 1], net(u[i : i + 1, :k])[0])


def test_a_mean_needs_whole_sequences_and_one_answer() -> None:
    with pytest.raises(InputError, match="pool=mean answers for whole sequences"):
        pooled().step(numbers(4, 2))
    with pytest.raises(InputError, match="pool=mean is for one answer per sequence"):
        SequenceModel(lambda d: nn.GRU(d, 5, batch_first=True), 2, 3, "every", False, pool="mean")


# ---------------------------------------------------------------------------- rates


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
    with pytest.raises(InputError, match=r"warmup must lie in \[0, 8\)"):
        WarmupCosine(optimizer, epochs=8, warmup=8)


# ---------------------------------------------------------------------------- sLSTM


@pytest.mark.parametrize("rest", [None, "zeros"])
def test_a_first_input_gate_of_any_size_writes(rest: str | None) -> None:
    """With the logarithm of the normaliser at 0 instead of minus infinity, exp(-110) is 0 in float32."""
    torch.manual_seed(0)
    layer, u = SLSTM(2, 4), torch.randn(3, 5, 2)
    with torch.no_grad():
        layer.b[4:8] = -110.0
    state = None if rest is None else tuple(torch.zeros(3, 4) for _ in range(4))
    h, _ = layer(u, state)
    h.sum().backward()
    assert torch.isfinite(h).all() and all(torch.isfinite(p.grad).all() for p in layer.parameters())
    # The first state is the first input alone: h_1 = o tanh(z), whatever the size of the gate.
    z, _, _, o = torch.nn.functional.linear(u[:, 0], layer.W, layer.b).chunk(4, 1)
    torch.testing.assert_close(h[:, 0], torch.sigmoid(o) * torch.tanh(z))


# ---------------------------------------------------------------------------- NCDE


def cde_of_torchcde(layer: NeuralRDE, u: Tensor) -> Tensor:
    """cdeint with rk4 and step 1: at a knot bisection finds the line that ends there; the 3/8 rule."""
    t = torch.linspace(0, 1, u.shape[1], dtype=u.dtype)
    path = torch.cat([t[None, :, None].expand(len(u), -1, -1), u], 2)
    lines = path.diff(dim=1)

    def slope(time: float, z: Tensor) -> Tensor:
        line = min(max(math.ceil(time) - 1, 0), lines.shape[1] - 1)
        field = layer.field(z).unflatten(1, (layer.d_out, -1))
        return (field @ lines[:, line].unsqueeze(2)).squeeze(2)

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


def test_torchcde_has_no_windows() -> None:
    with pytest.raises(InputError, match="solver=torchcde is for depth 1 and windows of one line"):
        NeuralRDE(2, 5, depth=2, window=1, solver="torchcde")
