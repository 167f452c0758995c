"""Arrays beside a record: which steps a trained LEM or UnICORNN uses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refuses

from physml.base.errors import ConfigError, InputError
from physml.data.store import Store
from physml.models.sequence.continuous_depth import ContinuousDepth
from physml.models.sequence.gated import TanhRNN
from physml.models.sequence.koopman import KoopmanAutoencoder
from physml.models.sequence.lem import LEM
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.unicornn import UnICORNN
from physml.training.collectors import EffectiveSteps, Forecasts, StepSizes, TimeScales
from tasks.adding import Adding
from tasks.pendulum import Pendulum, PendulumWindows


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Adding:
    task = Adding(length=12, n_eval=50, epoch_steps=2, protocol="clean")
    task.load(Store(None, Path(tmp_path_factory.mktemp("cache"))), 0)
    return task


@pytest.mark.parametrize("encoder", [None, 3])
def test_the_sample_is_one_of_all_entries_whatever_the_batches(task: Adding, encoder: int | None) -> None:
    """Of the layer's own input, which is not that of the network behind an encoder."""
    n = 50 * 12 * 4
    torch.manual_seed(0)
    net = SequenceModel(lambda d: LEM(d, 4, dt=1.0), 2, 1, "last", False, encoder=encoder)
    (batch,) = task.batches("test", 50)
    with torch.no_grad():
        u = batch.input if encoder is None else net.encoder(batch.input)
        every = [scale.flatten().numpy() for scale in net.layers[0].time_scales(u)]
    some = TimeScales(n=100).collect(net, task, 50, "cpu")
    whole = TimeScales(n=10 * n).collect(net, task, 50, "cpu")
    for i, name in enumerate(("dt_n", "dtbar_n")):
        assert some[name].shape == (100,) and some[name].dtype == np.float32
        assert np.isin(some[name], every[i]).all()
        assert np.sort(whole[name]) == pytest.approx(np.sort(every[i]))
        assert TimeScales(n=100).collect(net, task, 7, "cpu")[name] == pytest.approx(some[name], abs=1e-6)


def test_effective_steps_are_those_of_every_unit_of_every_layer(task: Adding) -> None:
    def layer(d: int) -> UnICORNN:
        return UnICORNN(d, 3, n_layers=2, dt=0.2, alpha=1.0)

    model = SequenceModel(layer, d_in=2, d_out=1, readout="last", tokens=False)
    with torch.no_grad():
        model.layers[0].layers[0].c.zero_()
        model.layers[0].layers[1].c.copy_(torch.tensor([-np.log(3), 0.0, np.log(3)]))
    collected = EffectiveSteps().collect(model, task, 8, "cpu")
    assert set(collected) == {"steps_1", "steps_2"} and collected["steps_1"].dtype == np.float32
    assert collected["steps_1"] == pytest.approx([0.1, 0.1, 0.1])
    assert collected["steps_2"] == pytest.approx([0.05, 0.1, 0.15])


def test_a_net_without_learned_scales_or_steps_of_its_own_is_refused(task: Adding) -> None:
    with pytest.raises(ConfigError, match="needs a layer with learned time scales, such as LEM"):
        TimeScales(n=3).collect(TanhRNN(2, 4), task, 8, "cpu")
    with pytest.raises(ConfigError, match="needs a layer with steps of its own, such as UnICORNN"):
        EffectiveSteps().collect(TanhRNN(2, 4), task, 8, "cpu")


class TrueSlope(ContinuousDepth):
    """An ODE-net that has learned the pendulum exactly."""

    def slope(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[..., 1], -x[..., 0].sin()], -1)


def test_the_true_right_hand_side_has_the_errors_of_each_scheme(tmp_path: Path) -> None:
    task = Pendulum(
        n_train=2, n_valid=2, n_test=3, n_points=9, dt=0.25, ratio=1.0, amplitude=2.4, noise=0.0, data_seed=1,
        protocol="clean",
    )  # fmt: skip
    task.load(Store(None, tmp_path), 0)
    layer = TrueSlope(2, 4, scheme="euler", dt=0.25).double()
    task._paths = {part: x.double() for part, x in task._paths.items()}
    table = StepSizes(factors=[2.0, 1.0, 0.5, 0.25], n_times=4).collect(layer, task, 8, "cpu")
    assert table["step"].tolist() == [0.0625, 0.125, 0.25, 0.5]
    for scheme, order in (("euler", 1), ("midpoint", 2), ("rk4", 4)):
        assert np.log2(table[scheme][1] / table[scheme][0]) == pytest.approx(order, abs=0.4)
    refuses(InputError, "n must be positive; got -1", TimeScales, n=-1)
    refuses(InputError, "must be a whole multiple of each; got 3", StepSizes, factors=[4.0, 3.0], n_times=4)
    with pytest.raises(ConfigError, match="StepSizes needs the model continuous_depth"):
        StepSizes(factors=[1.0], n_times=4).collect(LEM(2, 4, dt=1.0), task, 8, "cpu")


def test_forecasts_and_spectra_of_an_autoencoder_by_hand(tmp_path: Path) -> None:
    task = PendulumWindows(
        theta0=2.4, noise=0.2, n_points=60, n_train=20, n_valid=10, dt=0.1, ratio=9.81, n_features=5, steps=3,
        back_steps=2, lamb=1.0, nu=0.1, data_seed=1, protocol="clean",
    )  # fmt: skip
    task.load(Store(None, tmp_path), 0)
    torch.manual_seed(0)
    layer = KoopmanAutoencoder(5, 4, width=6, steps=3, back_steps=2, eta=0.1)
    arrays = Forecasts(steps=7, n=2).collect(layer, task, 8, "cpu")
    seen, clean = task.test_points()  # 30 points: the first starts are 0 and 22
    errors = []
    for start in (0, 22):
        q = layer.encode(seen[start])
        for _ in range(7):
            q = layer.Omega @ q
        errors.append(float((layer.decode(q) - clean[start + 7]).norm().detach() / clean[start + 7].norm()))
    assert arrays["error"].shape == (7,) and arrays["error"][-1] == pytest.approx(np.mean(errors), rel=1e-4)
    assert arrays["modulus"] == pytest.approx(np.full(4, 0.99), rel=1e-5)
    assert np.hypot(arrays["real"], arrays["imaginary"]) == pytest.approx(arrays["modulus"])
    assert arrays["product"] == pytest.approx(np.ones(4), rel=1e-5)
    assert len(Forecasts(steps=1000, n=2).collect(layer, task, 8, "cpu")["error"]) == 22
    with pytest.raises(ConfigError, match="Forecasts needs the model koopman"):
        Forecasts(steps=7, n=2).collect(LEM(2, 4, dt=1.0), task, 8, "cpu")
