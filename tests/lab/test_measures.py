"""What a run logs of its network, against direct computations on tiny networks."""

import copy
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_layers import of_step
from refusals import refuses
from torch import Tensor, nn

from physml.base.errors import ConfigError
from physml.data.store import Store
from physml.lab.measures import (
    EffectiveSteps,
    FunctionEvaluations,
    GradientByLag,
    StepSizeAssumption,
    Stiffness,
    WeightNorms,
    loss_of,
)
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.gated import TanhRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.neural_ode import HeavyBallNODE, NeuralODE
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.unicornn import UnICORNN
from physml.task.base import Part
from physml.task.batch import Batch
from tasks.adding import Adding

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")

H, T = 3, 6


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Adding:
    task = Adding(length=T, n_eval=10, epoch_steps=2, protocol="clean")
    task.load(Store(None, Path(tmp_path_factory.mktemp("cache"))), 0)
    return task


def net(layer: Any) -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(layer, d_in=2, d_out=1, readout="last", tokens=False)


def lem(d: int) -> LEM:
    return LEM(d, H, dt=0.5)


def unicornn(d: int) -> UnICORNN:
    return UnICORNN(d, H, n_layers=2, dt=0.2, alpha=1.0)


def cornn(d: int) -> CoRNN:
    return CoRNN(d, H, dt=0.1, gamma=2.0, epsilon=1.5)


def test_weight_norms_are_row_sums_of_matrices_and_entries_of_vectors(task: Adding) -> None:
    network = net(cornn)
    with torch.no_grad():
        for p in network.parameters():
            p.zero_()
        network.layers[0].W[1] = torch.tensor([1.0, -2.0, 4.0])
        network.layers[0].W[2] = 2.0
        network.layers[0].b[2] = -5.0
    expected = {"weights/W": 7.0, "weights/Wcal": 0.0, "weights/V": 0.0, "weights/b": 5.0}
    assert WeightNorms().measure(network, task, "cpu") == expected
    two = net(unicornn)
    norms = WeightNorms().measure(two, task, "cpu")
    assert set(norms) == {f"weights/{name}_{i}" for name in "wVbc" for i in (1, 2)}
    assert norms["weights/w_2"] == pytest.approx(two.layers[0].layers[1].w.abs().max().item())


def test_the_step_size_assumption_by_hand(task: Adding) -> None:
    network = net(cornn)
    with torch.no_grad():
        network.layers[0].W.fill_(1.0)
        network.layers[0].Wcal.fill_(2.0)
    assumption = StepSizeAssumption().measure(network, task, "cpu")
    # dt = 0.1, gamma = 2, row sums 3 and 6
    assert assumption["assumption/eta_2_16"] == pytest.approx(0.1 * 6 / 1.1)
    assert assumption["assumption/ratio_2_16"] == pytest.approx(0.1 * 6 / 1.1 / math.sqrt(0.1))
    assert assumption["assumption/eta_2_51"] == pytest.approx(0.6)
    with torch.no_grad():
        network.layers[0].Wcal.zero_()
    assumption = StepSizeAssumption().measure(network, task, "cpu")
    assert assumption["assumption/eta_2_16"] == pytest.approx(0.1 * 4 / 1.1)
    assert assumption["assumption/eta_2_51"] == pytest.approx(0.1 * (2 + 3))


def test_steps_of_unicornn_are_dt_times_a_sigmoid_and_those_of_lem_behind_an_encoder(task: Adding) -> None:
    network = net(unicornn)
    with torch.no_grad():
        network.layers[0].layers[0].c.zero_()
        network.layers[0].layers[1].c.copy_(torch.tensor([-math.log(3), 0.0, math.log(3)]))
    steps = EffectiveSteps().measure(network, task, "cpu")
    first = dict.fromkeys(("steps/least_1", "steps/mean_1", "steps/greatest_1"), 0.1)
    second = {"steps/least_2": 0.05, "steps/mean_2": 0.1, "steps/greatest_2": 0.15}
    assert steps == pytest.approx(first | second)
    torch.manual_seed(0)
    layer = partial(LEM, d_hidden=H, dt=0.5, state_dropout=0.5, backend="reference")
    network = SequenceModel(layer, d_in=2, d_out=1, readout="last", tokens=False, encoder=2).train()
    before = torch.get_rng_state()
    steps = EffectiveSteps(n=4).measure(network, task, "cpu")
    assert torch.equal(torch.get_rng_state(), before) and network.training
    u = network.encoder(next(iter(task.batches("valid", 4))).input)
    assert steps["steps/mean_1"] == pytest.approx(network.layers[0].eval().time_scales(u)[0].mean().item())


def test_steps_of_lem_are_those_of_its_loop_on_valid_data(task: Adding) -> None:
    network = net(lem)
    s = network.layers[0].symbols()
    u = next(iter(task.batches("valid", 4))).input
    y, z = torch.zeros(4, H), torch.zeros(4, H)
    path = []
    for x in u.unbind(1):
        a, b = (0.5 * torch.sigmoid(y @ s[f"W{i}"].T + x @ s[f"V{i}"].T + s[f"b{i}"]) for i in "12")
        z = (1 - a) * z + a * torch.tanh(y @ s["Wz"].T + x @ s["Vz"].T + s["bz"])
        y = (1 - b) * y + b * torch.tanh(z @ s["Wy"].T + x @ s["Vy"].T + s["by"])
        path.append(torch.stack([a, b]).detach())
    expected = {}
    for i, steps in enumerate(torch.stack(path, 1), 1):
        numbers = {"least": steps.min(), "mean": steps.mean(), "greatest": steps.max()}
        expected |= {f"steps/{name}_{i}": float(value) for name, value in numbers.items()}
    assert EffectiveSteps(n=4).measure(network, task, "cpu") == pytest.approx(expected, rel=1e-5)


def norm(parts: dict[str, Tensor]) -> float:
    return float(torch.cat([g.flatten() for g in parts.values()]).norm())


def test_gradients_by_lag_are_those_of_weights_of_one_step(task: Adding) -> None:
    network = net(lem)
    before = copy.deepcopy(network.state_dict())
    random = torch.get_rng_state()
    by_lag = GradientByLag(lags=[0, 2, 5, 6, 50], n=4).measure(network, task, "cpu")
    assert {name for name in by_lag if "lag" in name} == {f"gradient/lag_{lag}" for lag in (0, 2, 5)}

    double = copy.deepcopy(network).double()
    batch = next(iter(task.batches("valid", 4)))
    u, target = batch.input.double(), batch.target.double()

    def task_loss(y: Tensor) -> Tensor:
        return (double.readout(y) - target).square().mean()

    steps = [of_step(double.layers[0], u, task_loss, k) for k in range(1, T + 1)]
    norms = [norm(parts) for parts in steps]
    for lag in (0, 2, 5):
        assert by_lag[f"gradient/lag_{lag}"] == pytest.approx(norms[T - 1 - lag])
    assert by_lag["gradient/total"] == pytest.approx(norm(of_step(double.layers[0], u, task_loss, None)))
    assert by_lag["gradient/early"] == pytest.approx(norms[0] / max(norms))

    def paper_loss(y: Tensor) -> Tensor:
        return 0.5 * (y - 1).square().sum(-1).mean()

    every = of_step(double.layers[0], u, paper_loss, None)
    assert by_lag["gradient/entry"] == pytest.approx(max(float(g.abs().max()) for g in every.values()))
    assert by_lag["gradient/entry"] < by_lag["gradient/bound"]

    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training and all(p.grad is None for p in network.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_function_evaluations_forward_and_backward(task: Adding) -> None:
    """RK4 evaluates 4 times a step, and not again for the gradient; the adjoint of dopri5 does."""
    network = net(lambda d: NeuralODE(d, H, width=4, n_steps=3))
    before = network.layers[0].field.evaluations
    calls = FunctionEvaluations(n=4).measure(network, task, "cpu")
    assert calls == {"nfe/forward": 4 * 3 * T, "nfe/backward": 0.0}
    assert network.layers[0].field.evaluations == before and all(p.grad is None for p in network.parameters())
    pytest.importorskip("torchdiffeq", reason="needs the extra ode")
    adaptive = {"method": "dopri5", "n_steps": None, "rtol": 1e-4, "atol": 1e-4, "adjoint": True}
    calls = FunctionEvaluations(n=4).measure(net(lambda d: NeuralODE(d, H, width=4, **adaptive)), task, "cpu")
    assert min(calls.values()) >= 6 * T


def test_stiffness_is_that_of_the_jacobian_where_the_flow_starts(task: Adding) -> None:
    network = net(lambda d: HeavyBallNODE(d, H, width=4, gamma=0.3))
    stiffness, layer = Stiffness(n=3).measure(network, task, "cpu"), copy.deepcopy(network.layers[0]).double()
    s, ratios, greatest = layer.symbols(), [], []
    for sequence in next(iter(task.batches("valid", 3))).input.double():
        h = torch.tanh(s["V"] @ sequence[0] + s["b"])
        F = s["theta2"] @ torch.diag(1 - torch.tanh(s["theta1"] @ h + s["b1"]) ** 2) @ s["theta1"]
        eye = torch.eye(H).double()
        whole = torch.cat([torch.cat([0 * eye, eye], 1), torch.cat([F, -0.3 * eye], 1)])
        size = torch.linalg.eigvals(whole).abs().detach()
        ratios.append(float(size.max() / size.min()))
        greatest.append(float(size.max()))
    assert stiffness["stiffness/ratio"] == pytest.approx(sorted(ratios)[1], rel=1e-6)
    assert stiffness["stiffness/greatest"] == pytest.approx(sorted(greatest)[1], rel=1e-6)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (WeightNorms(), "WeightNorms needs a layer with symbols"),
        (StepSizeAssumption(), "StepSizeAssumption needs one layer of CoRNN; the network has 0"),
        (FunctionEvaluations(), "FunctionEvaluations needs one layer of Field; the network has 0"),
        (EffectiveSteps(), "EffectiveSteps needs one layer of UnICORNN or LEM; the network has 0"),
    ],
)
def test_networks_that_a_measure_is_not_for(task: Adding, measure: Any, message: str) -> None:
    refuses(ConfigError, message, measure.measure, nn.Linear(1, 1), task, "cpu")


def test_a_task_without_valid_items_or_a_loss_at_the_last_step_has_no_measures_of_them(task: Adding) -> None:
    class NothingHeldOut(Adding):
        def batches(self, part: Part, size: int, rng: Any = None) -> Iterator[Batch]:
            return iter(()) if part == "valid" else super().batches(part, size, rng)

    bare = NothingHeldOut(length=T, n_eval=10, epoch_steps=2, protocol="clean")
    for measure in (GradientByLag(), EffectiveSteps()):
        refuses(ConfigError, "NothingHeldOut has no valid items", measure.measure, net(lem), bare, "cpu")
    bare.readout = "every"
    batch = next(task.batches("test", 2))
    refuses(ConfigError, "NothingHeldOut: gradients by step need", loss_of, bare, batch, batch.target)


def test_a_network_without_a_printed_bound_has_no_columns_of_it_and_lags_are_numbers_of_steps(task) -> None:
    metrics = GradientByLag(n=2).measure(net(lambda d: TanhRNN(d, H)), task, "cpu")
    assert set(metrics) == {"gradient/lag_0", "gradient/total", "gradient/early"}
    for lags in ([], [-1]):
        refuses(ConfigError, "lags must be numbers of steps, 0 or more", GradientByLag, lags=lags)
