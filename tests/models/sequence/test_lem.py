"""LEM against equation 5.3: its steps, blocks of them, its weights, its dropout."""

import functools
import math
from typing import Any

import pytest
import torch
from drawn_layers import numbers, zeroed
from refusals import refuses
from step_loops import blocks_join, first_order, follows, loop, same
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.lem import LEM
from physml.ops.lem import autograd

VARIANTS = {
    "dt 1": {"dt": 1.0},
    "dt 1.7": {"dt": 1.7},
    "clipped": {"dt": 1.3, "clip": (0.5, 0.8)},
    "one scale": {"dt": 0.6, "multiscale": False},
}


def build(d_in: int, d_hidden: int, seed: int = 0, **options) -> LEM:
    torch.manual_seed(seed)
    return LEM(d_in, d_hidden, **options).double()


def steps_of(layer: LEM, x: Tensor, y: Tensor) -> tuple[Any, Any]:
    """Delta t and its bar of equation 5.3."""
    if not layer.multiscale:
        return layer.dt, layer.dt
    s = layer.symbols()
    sizes = [layer.dt * torch.sigmoid(s["W" + k] @ y + s["V" + k] @ x + s["b" + k]) for k in "12"]
    first, second = (size.clamp(*layer.clip) if layer.clip else size for size in sizes)
    return first, second


def equation(layer: LEM, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """5.3. Behind the D inputs there may be a mask on y where it enters W."""
    s, x, mask = layer.symbols(), x[: layer.d_in], x[layer.d_in :]
    heard = y * mask if len(mask) else y
    dt, dtbar = steps_of(layer, x, heard)
    z = (1 - dt) * z + dt * torch.tanh(s["Wz"] @ heard + s["Vz"] @ x + s["bz"])
    y = (1 - dtbar) * y + dtbar * torch.tanh(s["Wy"] @ z + s["Vy"] @ x + s["by"])
    return y, (y, z)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("B", "T", "H", "biases"), [(1, 1, 1, 1), (3, 23, 5, 2)])
def test_it_follows_the_equation(variant: str, backend: str, B: int, T: int, H: int, biases: int) -> None:
    follows(build(2, H, biases=biases, backend=backend, **VARIANTS[variant]), equation, numbers(B, T, 2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_time_scales_are_steps_and_dropout_masks_y_where_it_enters_w(variant: str, monkeypatch) -> None:
    layer, u = build(2, 5, **VARIANTS[variant]), numbers(3, 11, 2)

    def step(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        sizes = torch.cat([torch.ones(5, dtype=torch.double) * size for size in steps_of(layer, x, y)])
        return sizes, equation(layer, x, y, z)[1]

    state = (numbers(3, 5, seed=2), numbers(3, 5, seed=3))
    scales = loop(step, u, state)[0]
    torch.testing.assert_close(torch.cat(layer.time_scales(u, state), 2), scales, rtol=0, atol=1e-13)
    with torch.autocast("cpu", torch.bfloat16):
        single = torch.cat(layer.float().time_scales(u.float(), tuple(x.float() for x in state)), 2)
    torch.testing.assert_close(single, scales.float(), rtol=0, atol=1e-6)
    layer = build(2, 5, state_dropout=0.4, **VARIANTS[variant]).train()
    masks = {0.4: (mask := torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 1, 0]], dtype=torch.double) / 0.6)}
    monkeypatch.setattr("physml.models.sequence.lem.F.dropout", lambda ones, p: masks[p] * ones)
    u, state = numbers(2, 11, 2), tuple(numbers(2, 5, seed=k).requires_grad_() for k in (2, 3))
    path, last = layer(u, state)
    masked = torch.cat([u, mask[:, None].expand(-1, 11, -1)], 2)
    expected = loop(functools.partial(equation, layer), masked, state)
    same([path, *last], expected, [*state, *layer.parameters()])


@pytest.mark.parametrize(("limit", "value"), [("STEPS", 1), ("STEPS", 5), ("STEPS", 22), ("BLOCK", 100)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_of_steps_join(variant: str, limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = build(2, 3, backend="torch", **VARIANTS[variant])
    blocks_join(layer, numbers(4, 23, 2), lambda: monkeypatch.setattr(autograd, limit, value))


@pytest.mark.parametrize("biases", [1, 2])
@torch.no_grad()
def test_chrono_initialisation(biases: int) -> None:
    layer = build(1, 2000, dt=0.5, chrono=200, biases=biases)
    s = layer.symbols()
    drawn = torch.exp(-s["b1"])  # uniform on [1, 200 / 2 - 1]
    assert drawn.min() >= 1 and drawn.max() <= 99
    assert drawn.mean() == pytest.approx(50, abs=3)
    assert drawn.var() == pytest.approx(98**2 / 12, rel=0.1)
    for name in ("b2", "bz", "by"):
        assert not s[name].any()
    assert layer.V.std() == pytest.approx(2000**-0.5 / 3**0.5, rel=0.05)


@pytest.mark.parametrize(("init", "bound"), [("official", 400**-0.5), ("fan_in", 425**-0.5)])
@torch.no_grad()
def test_weights_and_biases_are_uniform(init: str, bound: float) -> None:
    for p in build(25, 400, dt=1.0, biases=2, init=init).parameters():
        assert p.abs().max() <= bound
        assert p.abs().max() == pytest.approx(bound, rel=0.02)
        assert p.std() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_the_integrator_is_of_first_order() -> None:
    """Without weights z' = tanh(bz) - z: halving the step halves the error."""

    def error(n_steps: int) -> float:
        layer = zeroed(build(1, 1, dt=2 / n_steps, multiscale=False))
        layer.b.fill_(0.7)
        _, (y, _) = layer(torch.zeros(1, n_steps, 1).double())
        return abs(y.item() - math.tanh(0.7) * (1 - math.exp(-2)))

    first_order(error, 40, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt must be positive"),
        ({"dt": 2.1}, r"dt must lie in \[0, 2\]; got 2.1"),
        ({"dt": 1.0, "biases": 3}, "biases must be 1 .* or 2"),
        ({"dt": 1.0, "clip": (0.5, 0.2)}, "low <= high"),
        ({"dt": 1.0, "clip": (0.5,)}, "pair"),
        ({"dt": 1.0, "multiscale": False, "clip": (0.1, 1.0)}, "multiscale=True"),
        ({"dt": 1.0, "multiscale": False, "chrono": 100}, "multiscale=True"),
        ({"dt": 0.01, "chrono": 100}, "chrono .* more than 2"),
        ({"dt": 1.0, "state_dropout": 1.0}, r"state_dropout must lie in \[0, 1\)"),
        ({"dt": 1.0, "init": "lamb", "multiscale": False}, "init='lamb'.*needs multiscale=True"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    refuses(InputError, message, LEM, 2, 3, **options)


def test_state_dropout_draws_one_mask_per_sequence_and_call_none_in_evaluation_by_the_reference() -> None:
    layer, plain = build(2, 50, dt=1.0, state_dropout=0.5), build(2, 50, dt=1.0)
    u, state = numbers(1, 6, 2).expand(2, -1, -1), (numbers(1, 50).expand(2, -1),) * 2
    once, again = layer.train()(u, state)[0], layer(u, state)[0]
    assert not torch.allclose(once, again) and not torch.allclose(once[0], once[1])
    assert torch.equal(layer.eval()(u, state)[0], plain(u, state)[0])
    refuses(InputError, r"call eval\(\) first", layer.train().time_scales, u, state)
    assert torch.equal(build(2, 50, dt=1.0, state_dropout=0.0).train()(u, state)[0], plain(u, state)[0])
    layer = LEM(2, 3, dt=1.0, state_dropout=0.5, backend="torch")
    layer.eval()(torch.zeros(1, 4, 2))
    refuses(InputError, "only backend reference has a mask", layer.train(), torch.zeros(1, 4, 2))


def test_lambs_start() -> None:
    s = LEM(300, 200, dt=1.0, init="lamb").symbols()
    for kind in "z12y":
        for name in (f"W{kind}", f"V{kind}"):
            assert abs(s[name].std() / 500**-0.5 - 1) < 0.02
            assert s[name].abs().max() <= 2 * 500**-0.5 / 0.8796
        assert abs(s[f"b{kind}"].mean() - float(kind == "1")) < 0.02
        assert abs(s[f"b{kind}"].std() / 200**-0.5 - 1) < 0.15


@pytest.mark.parametrize(
    ("d_in", "d_hidden", "weights", "biases"), [(256, 256, 524_288, 1_024), (200, 1024, 5_013_504, 4_096)]
)
def test_parameters_of_the_penn_treebank_cells(d_in: int, d_hidden: int, weights: int, biases: int) -> None:
    """Word: "524k" is printed, the weights alone. Character: "5M"."""
    layer = LEM(d_in, d_hidden, dt=1.0)
    assert layer.b.numel() == biases
    assert sum(p.numel() for p in layer.parameters()) == weights + biases
