"""UnICORNN against thesis equations 3.6, 3.7, 3.79 and 3.80."""

import itertools
import math

import pytest
import torch
from drawn_layers import numbers, zeroed
from refusals import refuses
from step_loops import first_order, follows
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.unicornn import UnICORNN


def build(d_in: int, d_hidden: int, seed: int = 0, **options) -> UnICORNN:
    torch.manual_seed(seed)
    layer = UnICORNN(d_in, d_hidden, **{"n_layers": 3, "dt": 0.4, "alpha": 1.5, **options}).double()
    with torch.no_grad():  # a bias of 0 and a small V would hide errors
        for part in layer.layers:
            part.b.uniform_(-1, 1)
            part.V.uniform_(-1, 1)
    return layer


def equations(layer: UnICORNN, x: Tensor, *state: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """3.6 with the skips of 3.79 and 3.80; the state is y^1, z^1, y^2, z^2 .."""
    below, new = [x], []
    for k, s in enumerate(layer.symbols()):
        y, z = state[2 * k : 2 * k + 2]
        push = s["V"] @ below[k] + s["b"]
        if layer.residual_skip is not None and k >= layer.residual_skip:
            push = push + s["Lambda"] @ below[k - layer.residual_skip]
        step = layer.dt[k] * torch.sigmoid(s["c"])
        z = z - step * (torch.tanh(s["w"] * y + push) + layer.alpha * y)
        y = y + step * z
        new += [y, z]
        below.append(y)
    return y, tuple(new)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("skip", [None, 2, 3])
@pytest.mark.parametrize("dt", [0.4, (0.1, 0.2, 0.3, 0.5, 0.8)])
def test_it_follows_the_equations(dt: float | tuple[float, ...], skip: int | None, backend: str) -> None:
    follows(build(2, 3, n_layers=5, dt=dt, residual_skip=skip, backend=backend), equations)


def test_the_inverse_finds_all_states_with_skips() -> None:
    layer = build(2, 3, n_layers=4, residual_skip=2)
    u = numbers(2, 50, 2)
    paths = [tuple((numbers(2, 3, seed=10 + k), numbers(2, 3, seed=20 + k)) for k in range(4))]
    for n in range(50):
        paths.append(layer(u[:, n : n + 1], paths[-1])[1])
    recovered = layer.invert(u, paths[-1])
    for k, part in itertools.product(range(4), (0, 1)):
        expected = torch.stack([state[k][part] for state in paths], 1)
        torch.testing.assert_close(recovered[k][part], expected, rtol=0, atol=1e-10)


def test_one_scale_leaves_c_at_its_draw_and_skips_have_matrices_of_their_own() -> None:
    torch.manual_seed(3)
    layer = UnICORNN(2, 50, n_layers=2, dt=0.1, alpha=1.0, multiscale=False)
    c = [part["c"] for part in layer.symbols()]
    assert all(0.08 < x.abs().max() <= 0.1 for x in c) and not torch.equal(*c)
    assert not any(name.endswith(".c") for name, _ in layer.named_parameters())
    assert {"layers.0.c", "layers.1.c"} <= set(layer.state_dict())
    layer(torch.randn(2, 5, 2))[0].sum().backward()
    assert all(x.grad is None for x in c)
    layer = UnICORNN(20, 500, n_layers=4, dt=0.1, alpha=1.0, residual_skip=2)
    shapes = [s["Lambda"].shape if "Lambda" in s else None for s in layer.symbols()]
    assert shapes == [None, None, (500, 20), (500, 500)]  # from u to layer 3, from layer 1 to layer 4
    for k, n in ((2, 20), (3, 500)):
        bound, Lambda = math.sqrt(6 / (65 * n)), layer.symbols()[k]["Lambda"]
        assert bound * 0.99 < Lambda.abs().max() <= bound


def test_dropout_masks_whole_sequences_after_every_layer_and_reaches_the_next() -> None:
    layer, u = build(2, 40, n_layers=1, dropout=0.25), numbers(3, 6, 2)
    (dropped, state), (plain, plain_state) = layer(u), layer.eval()(u)
    ratio = dropped / plain
    assert torch.equal(dropped == 0, (dropped == 0)[:, :1].expand_as(dropped))  # constant in time
    assert not torch.equal(ratio[0], ratio[1])  # another mask for another sequence
    assert 0.1 < (dropped[:, 0] == 0).double().mean() < 0.4
    torch.testing.assert_close(ratio[dropped != 0], torch.full_like(ratio[dropped != 0], 4 / 3))
    assert torch.equal(state[0][0], plain_state[0][0])  # the mask is on what goes up, not on the state
    layer, u = build(2, 40, n_layers=2, dropout=0.25), numbers(3, 6, 2)
    (_, state), (_, plain) = layer(u), layer.eval()(u)
    assert torch.equal(state[0][0], plain[0][0])
    assert not torch.equal(state[1][0], plain[1][0])


def test_the_integrator_is_of_first_order() -> None:
    """With w, V and b at 0 it is a harmonic oscillator, in the time that sigmoid(c) leaves it."""
    alpha, t, c = 4.0, 2.0, 0.3

    def error(n_steps: int) -> float:
        layer = zeroed(build(1, 1, n_layers=1, dt=t / n_steps * (1 + math.exp(-c)), alpha=alpha))
        layer.layers[0].c.fill_(c)
        start = ((torch.ones(1, 1).double(), torch.zeros(1, 1).double()),)
        _, ((y, _),) = layer(torch.zeros(1, n_steps, 1).double(), start)
        return abs(y.item() - math.cos(2 * t))

    first_order(error, 100, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": [0.1, 0.2]}, "one per layer, 3; got 2"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"residual_skip": 1}, "at least 2 and less than n_layers = 3; got 1"),
        ({"residual_skip": 3}, "at least 2 and less than n_layers = 3; got 3"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    refuses(InputError, message, UnICORNN, 2, 3, **{"n_layers": 3, "dt": 0.1, "alpha": 1.0, **options})


def test_masks_that_are_gone_cannot_be_inverted_and_a_state_for_another_stack_is_refused() -> None:
    layer = build(2, 4, dropout=0.25)
    u = numbers(3, 6, 2)
    refuses(InputError, r"Call eval\(\) first", layer.invert, u, layer(u)[1])
    layer.eval()
    assert layer.invert(u, layer(u)[1])[0][0][:, 0].abs().max() < 1e-12
    layer, u = build(2, 3), numbers(2, 4, 2)
    refuses(InputError, r"3 pairs .* got 2 entries", layer, u, layer(u)[1][:2])
    refuses(InputError, r"tuple \(y, z\).*got Tensor", layer, u, (numbers(2, 3),) * 3)
