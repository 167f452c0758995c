"""UnICORNN against thesis equations 3.6, 3.7, 3.79 and 3.80."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.unicornn import UnICORNN
from physml.ops.unicornn import unicornn


def build(d_in: int, d_hidden: int, seed: int = 0, **options) -> UnICORNN:
    torch.manual_seed(seed)
    layer = UnICORNN(d_in, d_hidden, **{"n_layers": 3, "dt": 0.4, "alpha": 1.5, **options}).double()
    with torch.no_grad():  # a bias of 0 and a small V would hide errors
        for part in layer.layers:
            part.b.uniform_(-1, 1)
            part.V.uniform_(-1, 1)
    return layer


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def states(n_layers: int, B: int, H: int) -> tuple[tuple[Tensor, Tensor], ...]:
    return tuple((draw(B, H, seed=10 + k), draw(B, H, seed=20 + k)) for k in range(n_layers))


def by_hand(layer: UnICORNN, u: Tensor, start: tuple[tuple[Tensor, Tensor], ...]) -> np.ndarray:
    """Equations 3.6, 3.79 and 3.80, one number after the other; (L, 2, B, T, H): y and z of all layers."""
    B, T, _ = u.shape
    H, S = layer.d_out, layer.residual_skip
    y = [u.tolist()]
    z = [[]]
    for ell in range(1, layer.n_layers + 1):
        s = {name: value.detach().numpy() for name, value in layer.symbols()[ell - 1].items()}
        path_y, path_z = np.zeros((B, T, H)), np.zeros((B, T, H))
        for row in range(B):
            now_y, now_z = (x[row].tolist() for x in start[ell - 1])
            for n in range(T):
                for i in range(H):
                    below = y[ell - 1][row][n]
                    total = (
                        s["w"][i] * now_y[i] + s["b"][i] + sum(s["V"][i, j] * v for j, v in enumerate(below))
                    )
                    if S is not None and ell > S:
                        far = y[ell - S - 1][row][n]
                        total += sum(s["Lambda"][i, j] * v for j, v in enumerate(far))
                    step = layer.dt[ell - 1] / (1 + math.exp(-s["c"][i]))
                    now_z[i] = now_z[i] - step * (math.tanh(total) + layer.alpha * now_y[i])
                    now_y[i] = now_y[i] + step * now_z[i]
                path_y[row, n], path_z[row, n] = now_y, now_z
        y.append(path_y)
        z.append(path_z)
    return np.array([[y[k], z[k]] for k in range(1, layer.n_layers + 1)])


@pytest.mark.parametrize("skip", [None, 2, 3])
@pytest.mark.parametrize("dt", [0.4, (0.1, 0.2, 0.3, 0.5, 0.8)])
def test_every_number_follows_the_equation(dt: float | tuple[float, ...], skip: int | None) -> None:
    layer = build(2, 3, n_layers=5, dt=dt, residual_skip=skip)
    u, start = draw(2, 9, 2), states(5, 2, 3)
    expected = by_hand(layer, u, start)
    outputs, last = layer(u, start)
    np.testing.assert_allclose(outputs.detach(), expected[-1, 0], rtol=0, atol=1e-12)
    for k, (y, z) in enumerate(last):
        np.testing.assert_allclose(y.detach(), expected[k, 0, :, -1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(z.detach(), expected[k, 1, :, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("skip", [None, 2])
def test_the_inverse_finds_all_states(skip: int | None) -> None:
    layer = build(2, 3, n_layers=4, residual_skip=skip)
    u, start = draw(2, 50, 2), states(4, 2, 3)
    expected = by_hand(layer, u, start)
    found = layer.invert(u, layer(u, start)[1])
    for k in range(4):
        for part in (0, 1):
            path = found[k][part].detach()
            assert path.shape == (2, 51, 3)
            np.testing.assert_allclose(path[:, 0], start[k][part], rtol=0, atol=1e-10)
            np.testing.assert_allclose(path[:, 1:], expected[k, part], rtol=0, atol=1e-10)


def test_gradcheck() -> None:
    leaves = [draw(2, 4, 3), draw(2, 3, seed=2), draw(2, 3, seed=3), draw(3, seed=4), draw(3, seed=5)]
    leaves = [x.requires_grad_() for x in leaves]
    assert torch.autograd.gradcheck(lambda *x: unicornn(*x, alpha=1.5), leaves)
    plain = {"alpha": 1.5, "backend": "reference"}
    assert torch.autograd.gradgradcheck(lambda *x: unicornn(*x, **plain)[0], leaves)


def test_every_parameter_gets_a_gradient() -> None:
    layer = build(2, 3, n_layers=4, residual_skip=2)
    layer(draw(2, 9, 2))[0].square().sum().backward()
    for name, p in layer.named_parameters():
        assert p.grad is not None and (p.grad != 0).all(), name


def test_one_scale_leaves_c_at_its_draw() -> None:
    torch.manual_seed(3)
    layer = UnICORNN(2, 50, n_layers=2, dt=0.1, alpha=1.0, multiscale=False)
    c = [part["c"] for part in layer.symbols()]
    assert all(0.08 < x.abs().max() <= 0.1 for x in c) and not torch.equal(*c)
    assert not any(name.endswith(".c") for name, _ in layer.named_parameters())
    assert {"layers.0.c", "layers.1.c"} <= set(layer.state_dict())
    layer(torch.randn(2, 5, 2))[0].sum().backward()
    assert all(x.grad is None for x in c)


def test_dropout_masks_whole_sequences_after_every_layer() -> None:
    layer = build(2, 40, n_layers=1, dropout=0.25)
    u = draw(3, 6, 2)
    dropped, state = layer(u)
    plain, plain_state = layer.eval()(u)
    ratio = dropped / plain
    assert torch.equal(dropped == 0, (dropped == 0)[:, :1].expand_as(dropped))  # constant in time
    assert not torch.equal(ratio[0], ratio[1])  # another mask for another sequence
    share = (dropped[:, 0] == 0).double().mean()
    assert 0.1 < share < 0.4
    torch.testing.assert_close(ratio[dropped != 0], torch.full_like(ratio[dropped != 0], 4 / 3))
    assert torch.equal(state[0][0], plain_state[0][0])  # the mask is on what goes up, not on the state


def test_dropout_between_layers_reaches_the_next() -> None:
    layer = build(2, 40, n_layers=2, dropout=0.25)
    u = draw(3, 6, 2)
    _, state = layer(u)
    _, plain = layer.eval()(u)
    assert torch.equal(state[0][0], plain[0][0])
    assert not torch.equal(state[1][0], plain[1][0])


def test_masks_that_are_gone_cannot_be_inverted() -> None:
    layer = build(2, 4, dropout=0.25)
    u = draw(3, 6, 2)
    with pytest.raises(InputError, match=r"Call eval\(\) first"):
        layer.invert(u, layer(u)[1])
    layer.eval()
    assert layer.invert(u, layer(u)[1])[0][0][:, 0].abs().max() < 1e-12


@torch.no_grad()
def test_initial_weights() -> None:
    torch.manual_seed(0)
    layer = UnICORNN(20, 500, n_layers=4, dt=0.1, alpha=1.0, residual_skip=2)
    for k, s in enumerate(layer.symbols()):
        assert s["w"].min() >= 0 and s["w"].max() <= 1 and s["w"].mean() == pytest.approx(0.5, abs=0.05)
        assert s["c"].min() >= -0.1 and s["c"].max() <= 0.1 and s["c"].mean() == pytest.approx(0, abs=0.01)
        assert not s["b"].any()
        bound = math.sqrt(6 / (65 * (20 if k == 0 else 500)))
        assert s["V"].abs().max() <= bound and s["V"].abs().max() == pytest.approx(bound, rel=0.01)
        assert ("Lambda" in s) == (k >= 2)
    assert layer.symbols()[2]["Lambda"].shape == (500, 20)  # from u to layer 3
    assert layer.symbols()[3]["Lambda"].shape == (500, 500)  # from layer 1 to layer 4


def test_the_integrator_is_of_first_order() -> None:
    """With w, V and b at 0 it is a harmonic oscillator, in the time that sigmoid(c) leaves it."""
    alpha, t, c = 4.0, 2.0, 0.3
    errors = []
    for n_steps in (100, 200, 400):
        step = t / n_steps
        layer = build(1, 1, n_layers=1, dt=step * (1 + math.exp(-c)), alpha=alpha)
        with torch.no_grad():
            for p in layer.parameters():
                p.zero_()
            layer.layers[0].c.fill_(c)
            start = ((torch.ones(1, 1).double(), torch.zeros(1, 1).double()),)
            _, ((y, _),) = layer(torch.zeros(1, n_steps, 1).double(), start)
        errors.append(abs(y.item() - math.cos(2 * t)))
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": [0.1, 0.2]}, "one per layer, 3; got 2"),
        ({"dt": -0.1}, "dt must be positive; got -0.1"),
        ({"alpha": -1.0}, "alpha must not be negative"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"residual_skip": 1}, "at least 2 and less than n_layers = 3; got 1"),
        ({"residual_skip": 3}, "at least 2 and less than n_layers = 3; got 3"),
        ({"n_layers": 0}, "n_layers must be positive"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        UnICORNN(2, 3, **{"n_layers": 3, "dt": 0.1, "alpha": 1.0, **options})


def test_a_state_for_another_stack_is_refused() -> None:
    layer, u = build(2, 3), draw(2, 4, 2)
    with pytest.raises(InputError, match=r"3 pairs .* got 2 entries"):
        layer(u, layer(u)[1][:2])
    with pytest.raises(InputError, match=r"tuple \(y, z\).*got Tensor"):
        layer(u, (draw(2, 3),) * 3)
