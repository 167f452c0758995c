"""coRNN against thesis equation 2.3, and its hand-written backward against autograd's."""

import itertools
import math

import numpy as np
import pytest
import torch
from each import each
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.ops.cornn import autograd, cornn

CONSTANTS = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.6}


def build(d_in: int, d_hidden: int, seed: int = 0, **options) -> CoRNN:
    torch.manual_seed(seed)
    return CoRNN(d_in, d_hidden, **{**CONSTANTS, **options}).double()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def by_hand(
    layer: CoRNN, u: Tensor, y0: Tensor, z0: Tensor, dt: float, gamma: float, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Equation 2.3, one number after the other; the implicit damping solved for z_n."""
    W, Wcal, V, b = (layer.symbols()[name].detach().numpy() for name in ("W", "Wcal", "V", "b"))
    (B, T, D), H = u.shape, y0.shape[1]
    path_y, path_z = np.zeros((B, T, H)), np.zeros((B, T, H))
    for row in range(B):
        y, z = y0[row].tolist(), z0[row].tolist()
        for n in range(T):
            new = []
            for i in range(H):
                total = b[i]
                for j in range(H):
                    total += W[i, j] * y[j] + Wcal[i, j] * z[j]
                for j in range(D):
                    total += V[i, j] * u[row, n, j].item()
                moved = z[i] + dt * math.tanh(total) - dt * gamma * y[i]
                if layer.damping == "explicit":
                    new.append(moved - dt * epsilon * z[i])
                else:
                    new.append(moved / (1 + dt * epsilon))
            z = new
            y = [y[i] + dt * z[i] for i in range(H)]
            path_y[row, n], path_z[row, n] = y, z
    return path_y, path_z


def gradients(layer: CoRNN, u: Tensor, state: tuple[Tensor, Tensor], use: str) -> list[Tensor]:
    inputs = [x.clone().requires_grad_() for x in (u, *state)]
    outputs, (y, z) = layer(inputs[0], (inputs[1], inputs[2]))
    total = torch.zeros((), dtype=torch.double)
    for k, (name, x) in enumerate((("outputs", outputs), ("y", y), ("z", z))):
        if name in use:
            total = total + (x * draw(*x.shape, seed=7 + k)).sum()
    return list(torch.autograd.grad(total, [*inputs, *layer.parameters()], materialize_grads=True))


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("damping", ["explicit", "implicit"])
def test_every_number_follows_the_equation(damping: str, backend: str) -> None:
    layer = build(2, 5, damping=damping, backend=backend)
    u, y0, z0 = draw(3, 11, 2), draw(3, 5, seed=2), draw(3, 5, seed=3)
    path_y, path_z = by_hand(layer, u, y0, z0, **CONSTANTS)
    outputs, (y, z) = layer(u, (y0, z0))
    np.testing.assert_allclose(outputs.detach(), path_y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(y.detach(), path_y[:, -1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(z.detach(), path_z[:, -1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("damping", ["explicit", "implicit"])
def test_trainable_constants(damping: str) -> None:
    layer = build(2, 4, damping=damping, trainable=True)
    assert [x.item() for x in layer.constants()] == pytest.approx(list(CONSTANTS.values()), rel=1e-6)
    with torch.no_grad():
        layer.raw_dt.fill_(-1.5)
        layer.raw_gamma.fill_(-0.4)  # a ReLU: no spring
        layer.raw_epsilon.fill_(2.5)
    u, y0, z0 = draw(3, 11, 2), draw(3, 4, seed=2), draw(3, 4, seed=3)
    path_y, _ = by_hand(layer, u, y0, z0, dt=1 / (1 + math.exp(1.5)), gamma=0.0, epsilon=2.5)
    outputs, _ = layer(u, (y0, z0))
    np.testing.assert_allclose(outputs.detach(), path_y, rtol=0, atol=1e-13)
    outputs.sum().backward()
    assert layer.raw_dt.grad != 0 and layer.raw_epsilon.grad != 0 and layer.raw_gamma.grad == 0


def test_gradients_of_trainable_constants() -> None:
    leaves = [
        draw(2, 3, 1),
        draw(2, 2),
        draw(2, 2),
        *build(1, 2).parameters(),
        *map(torch.tensor, (0.3, 1.7, 0.6)),
    ]
    leaves = [x.detach().double().clone().requires_grad_() for x in leaves]
    for damping in ("explicit", "implicit"):
        assert torch.autograd.gradcheck(
            lambda *x, damping=damping: cornn(
                *x[:-3], dt=x[-3], gamma=x[-2], epsilon=x[-1], damping=damping, backend="auto"
            ),
            leaves,
        )


@each("damping", ["explicit", "implicit"])
@each("T, H, B", list(itertools.product((1, 7, 63), (1, 3, 5), (1, 4))))
def test_every_gradient_equals_that_of_the_plain_loop(damping: str, T: int, H: int, B: int) -> None:
    plain, fast = (build(2, H, damping=damping, backend=name) for name in ("reference", "torch"))
    u, state = draw(B, T, 2), (draw(B, H, seed=2), draw(B, H, seed=3))
    for a, b in zip(
        gradients(plain, u, state, "outputs y z"), gradients(fast, u, state, "outputs y z"), strict=True
    ):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("limit", "value"), [("STEPS", 1), ("STEPS", 5), ("STEPS", 22), ("BLOCK", 100)])
def test_blocks_of_steps_join(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = build(2, 3)
    u, state = draw(4, 23, 2), (draw(4, 3, seed=2), draw(4, 3, seed=3))
    whole = [gradients(layer, u, state, use) for use in ("outputs y z", "y z")]
    with torch.no_grad():
        outputs, _ = layer(u, state)
    monkeypatch.setattr(autograd, limit, value)
    with torch.no_grad():
        torch.testing.assert_close(layer(u, state)[0], outputs, rtol=0, atol=1e-14)
    parts = [gradients(layer, u, state, use) for use in ("outputs y z", "y z")]
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-13)


def test_second_derivatives() -> None:
    leaves = [draw(2, 3, 1), draw(2, 2), draw(2, 2), *build(1, 2).symbols().values()]
    leaves = [x.detach().clone().requires_grad_() for x in leaves]
    assert torch.autograd.gradgradcheck(lambda *x: cornn(*x, **CONSTANTS, backend="reference")[0], leaves)
    outputs = cornn(*leaves, **CONSTANTS, backend="torch")[0]
    with pytest.raises(InputError, match="backend='reference'"):
        torch.autograd.grad(outputs.sum(), leaves, create_graph=True)


@pytest.mark.parametrize(
    ("init", "inputs", "states"),
    [("joint", 925**-0.5, 925**-0.5), ("separate", 125**-0.5, 400**-0.5), ("imdb", 125**-0.5, 800**-0.5)],
)
@torch.no_grad()
def test_weights_are_uniform_with_the_bounds_of_the_official_layouts(
    init: str, inputs: float, states: float
) -> None:
    s = build(125, 400, init=init).symbols()
    for name, bound in (("V", inputs), ("b", inputs), ("W", states), ("Wcal", states)):
        assert s[name].abs().max() <= bound
        assert s[name].abs().max() == pytest.approx(bound, rel=0.02)
        assert s[name].std() == pytest.approx(bound / 3**0.5, rel=0.1)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("damping", ["explicit", "implicit"])
def test_the_integrator_is_of_first_order(damping: str, backend: str) -> None:
    """With all weights 0 it is a damped oscillator, y'' = -gamma y - epsilon y'."""
    gamma, epsilon, t = 4.0, 0.5, 2.0
    frequency = math.sqrt(gamma - epsilon**2 / 4)
    phase = frequency * t
    exact = math.exp(-epsilon * t / 2) * (math.cos(phase) + epsilon / (2 * frequency) * math.sin(phase))
    errors = []
    for n_steps in (100, 200, 400):
        layer = build(1, 1, dt=t / n_steps, gamma=gamma, epsilon=epsilon, damping=damping, backend=backend)
        with torch.no_grad():
            for p in layer.parameters():
                p.zero_()
            start = torch.ones(1, 1).double(), torch.zeros(1, 1).double()
            _, (y, _) = layer(torch.zeros(1, n_steps, 1).double(), start)
        errors.append(abs(y.item() - exact))
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt must be positive; got 0.0"),
        ({"gamma": -1.0}, "gamma must not be negative"),
        ({"gamma": 0.0, "trainable": True}, "gamma must be positive"),
        ({"epsilon": float("nan")}, "epsilon must not be negative; got nan"),
        ({"damping": "implict"}, "Did you mean implicit"),
        ({"init": "jont"}, "Did you mean joint"),
        ({"trainable": True, "dt": 1.0}, "stays below 1"),
        ({"trainable": True, "backend": "torch"}, "can't train"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(2, 3, **options)


def test_constants_given_as_tensors_need_the_plain_loop() -> None:
    layer = build(1, 2)
    with pytest.raises(InputError, match="only backend reference has gradients for dt"):
        cornn(
            draw(2, 3, 1),
            draw(2, 2),
            draw(2, 2),
            *layer.symbols().values(),
            dt=torch.tensor(0.1).double(),
            gamma=1.0,
            epsilon=1.0,
            backend="torch",
        )
