"""coRNN against thesis equation 2.3: its steps, blocks of them, its weights and constants."""

import math
from typing import Any

import pytest
import torch
from drawn_layers import numbers, zeroed
from refusals import refuses
from step_loops import Step, blocks_join, first_order, follows
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.ops.cornn import autograd, cornn

CONSTANTS = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.6}
DAMPING = pytest.mark.parametrize("damping", ["explicit", "implicit"])


def build(d_in: int, d_hidden: int, seed: int = 0, **options) -> CoRNN:
    torch.manual_seed(seed)
    return CoRNN(d_in, d_hidden, **{**CONSTANTS, **options}).double()


def equation(dt: Any, gamma: Any, epsilon: Any, damping: str) -> Step:
    """2.3; the implicit damping solved for z_n."""

    def step(layer: nn.Module, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        s = layer.symbols()
        moved = z + dt * torch.tanh(s["W"] @ y + s["Wcal"] @ z + s["V"] @ x + s["b"]) - dt * gamma * y
        z = moved - dt * epsilon * z if damping == "explicit" else moved / (1 + dt * epsilon)
        y = y + dt * z
        return y, (y, z)

    return step


@pytest.mark.parametrize("backend", ["reference", "torch"])
@DAMPING
@pytest.mark.parametrize(("B", "T", "H"), [(1, 1, 1), (3, 23, 5)])
def test_it_follows_the_equation(damping: str, backend: str, B: int, T: int, H: int) -> None:
    layer = build(2, H, damping=damping, backend=backend)
    follows(layer, equation(**CONSTANTS, damping=damping), numbers(B, T, 2))


@DAMPING
def test_trainable_constants(damping: str) -> None:
    layer = build(2, 4, damping=damping, trainable=True)
    assert [x.item() for x in layer.constants()] == pytest.approx(list(CONSTANTS.values()), rel=1e-6)
    follows(layer, equation(*layer.constants(), damping))
    nn.init.constant_(layer.raw_dt, -1.5)
    nn.init.constant_(layer.raw_gamma, -0.4)  # a ReLU: no spring
    nn.init.constant_(layer.raw_epsilon, 2.5)
    assert [x.item() for x in layer.constants()] == pytest.approx([1 / (1 + math.exp(1.5)), 0.0, 2.5])
    layer(numbers(3, 11, 2))[0].sum().backward()
    assert layer.raw_gamma.grad == 0


@pytest.mark.parametrize(("limit", "value"), [("STEPS", 1), ("STEPS", 5), ("STEPS", 22), ("BLOCK", 100)])
@DAMPING
def test_blocks_of_steps_join(damping: str, limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = build(2, 3, damping=damping, backend="torch")
    blocks_join(layer, numbers(4, 23, 2), lambda: monkeypatch.setattr(autograd, limit, value))


@pytest.mark.parametrize(
    ("init", "inputs", "states"),
    [("joint", 925**-0.5, 925**-0.5), ("separate", 125**-0.5, 400**-0.5), ("imdb", 125**-0.5, 800**-0.5)],
)
@torch.no_grad()
def test_weights_are_uniform_with_the_bounds_of_the_official_layouts(init, inputs, states) -> None:
    s = build(125, 400, init=init).symbols()
    for name, bound in (("V", inputs), ("b", inputs), ("W", states), ("Wcal", states)):
        assert s[name].abs().max() <= bound
        assert s[name].abs().max() == pytest.approx(bound, rel=0.02)
        assert s[name].std() == pytest.approx(bound / 3**0.5, rel=0.1)


@DAMPING
def test_the_integrator_is_of_first_order(damping: str) -> None:
    """With all weights 0 it is a damped oscillator, y'' = -gamma y - epsilon y'."""
    gamma, epsilon, t = 4.0, 0.5, 2.0
    frequency = math.sqrt(gamma - epsilon**2 / 4)
    phase = frequency * t
    exact = math.exp(-epsilon * t / 2) * (math.cos(phase) + epsilon / (2 * frequency) * math.sin(phase))

    def error(n_steps: int) -> float:
        layer = zeroed(build(1, 1, dt=t / n_steps, gamma=gamma, epsilon=epsilon, damping=damping))
        start = torch.ones(1, 1).double(), torch.zeros(1, 1).double()
        return abs(layer(torch.zeros(1, n_steps, 1).double(), start)[1][0].item() - exact)

    first_order(error, 100, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt must be positive; got 0.0"),
        ({"gamma": 0.0, "trainable": True}, "gamma must be positive"),
        ({"trainable": True, "dt": 1.0}, "stays below 1"),
        ({"trainable": True, "backend": "torch"}, "can't train"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    refuses(InputError, message, build, 2, 3, **options)


def test_constants_given_as_tensors_need_the_plain_loop() -> None:
    arguments = (numbers(2, 3, 1), numbers(2, 2), numbers(2, 2), *build(1, 2).symbols().values())
    with pytest.raises(InputError, match="only backend reference has gradients for dt"):
        cornn(*arguments, dt=torch.tensor(0.1).double(), gamma=1.0, epsilon=1.0, backend="torch")
