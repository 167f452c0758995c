"""Gradients of the untrained network of an experiment, against autograd over all steps at once."""

import numpy as np
import pytest
import torch
from torch import Tensor

from physml.base.errors import ConfigError
from physml.lab import bounds, experiments
from physml.models.sequence.gated import TanhRNN
from physml.models.sequence.rnn import SequenceModel

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")

LEM = "gradients/adding-lem"
GIVEN = {"seed": 1, "sequences": 3, "length": 6}


def start() -> tuple[torch.nn.Module, Tensor, Tensor]:
    net, batch, _ = experiments.start_of(LEM, **GIVEN)
    return net, batch.input.double(), batch.target.double()


def test_a_seed_gives_the_same_start_and_by_lag_is_the_gradient_of_the_loss_of_the_task() -> None:
    random = torch.get_rng_state()
    (first, u, _), (again, same, _) = start(), start()
    assert torch.equal(torch.get_rng_state(), random) and torch.equal(u, same) and u.shape == (3, 6, 2)
    assert not first.training
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True))
    other, _, _ = experiments.start_of(LEM, **(GIVEN | {"seed": 2}))
    assert not all(torch.equal(p, q) for p, q in zip(first.parameters(), other.parameters(), strict=True))
    net, u, target = start()
    u.requires_grad_()
    (net(u)[0] - target).square().mean().backward()
    norms = experiments.by_lag(LEM, **GIVEN)
    assert u.grad is not None
    np.testing.assert_allclose(norms["inputs"][::-1], u.grad.norm(dim=(0, 2)).numpy(), rtol=1e-9)
    assert norms["gradient"].shape == norms["states"].shape == (6,)


def test_beside_bound_has_the_greatest_entry_for_the_loss_of_the_papers() -> None:
    net, u, _ = start()
    layer = net.layers[0]
    (0.5 * (layer(u)[0][:, -1] - 1).square().sum(-1).mean()).backward()
    greatest = max(float(p.grad.abs().max()) for p in layer.parameters())
    measures = experiments.beside_bound(LEM, **GIVEN)
    assert measures["total"] == pytest.approx(greatest)
    limits = bounds.Lem.of(layer)
    assert measures["total_bound"] == pytest.approx(limits.total_5_18(1.0, 6))
    printed = [limits.one_step_5_34(1.0, 6 - lag, 6) for lag in range(6)]
    np.testing.assert_allclose(measures["bound"], printed)
    with torch.no_grad():
        _, before = layer(u[:, :-1])
    layer.zero_grad()
    (0.5 * (layer(u[:, -1:], state=before)[0][:, -1] - 1).square().sum(-1).mean()).backward()
    assert measures["entry"][0] == pytest.approx(max(float(p.grad.abs().max()) for p in layer.parameters()))
    assert measures["holds"] == float(limits.is_small(6))


def test_jacobians_are_singular_values_of_all_steps_at_once() -> None:
    net, batch, _ = experiments.start_of(LEM, seed=1, sequences=1, length=6)
    layer, u = net.layers[0], batch.input.double()
    norms = experiments.jacobians(LEM, seed=1, length=6)
    assert norms.shape == (6,)
    for lag in (1, 4):
        with torch.no_grad():
            _, before = layer(u[:, :-lag])

        def after(flat: Tensor, lag: int = lag) -> Tensor:
            return torch.cat(layer(u[:, -lag:], state=tuple(flat.chunk(2, 1)))[1], 1)

        J = torch.autograd.functional.jacobian(after, torch.cat(before, 1))[0, :, 0]
        values = np.linalg.svd(J.numpy(), compute_uv=False)
        assert norms[lag - 1] == pytest.approx(values[0])


def test_what_has_no_bound_or_more_than_one_layer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no paper has a bound for LSTM"):
        experiments.beside_bound("gradients/adding-lstm", seed=0, sequences=1, length=4)
    two = SequenceModel(lambda d: TanhRNN(d, 2), d_in=2, d_out=1, readout="last", tokens=False, n_layers=2)
    monkeypatch.setattr(experiments.build, "build_net", lambda parts, task: two)
    with pytest.raises(ConfigError, match="one recurrent layer without encoder"):
        experiments.start_of(LEM, **GIVEN)
