"""NODE, HBNODE and GHBNODE: against loops from their equations and scipy's solver, and their gradients."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from drawn_layers import made, numbers
from refusals import refuses
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from physml.base.errors import InputError, MissingExtra
from physml.models.sequence.neural_ode import GeneralisedHeavyBallNODE, HeavyBallNODE, NeuralODE
from physml.models.sequence.ode import SCHEMES, Solver

D, H, W = 2, 3, 4
SPAN, GAMMA, XI = 0.8, 0.3, 1.2
FINE = {"method": "dopri5", "n_steps": None, "rtol": 1e-9, "atol": 1e-10}

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "node": lambda **how: NeuralODE(D, H, width=W, span=SPAN, **how),
    "hbnode": lambda **how: HeavyBallNODE(D, H, width=W, gamma=GAMMA, span=SPAN, **how),
    "ghbnode": lambda **how: GeneralisedHeavyBallNODE(D, H, width=W, gamma=GAMMA, xi=XI, span=SPAN, **how),
}


def right_side(name: str, s: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    def f(h: np.ndarray) -> np.ndarray:
        return s["theta2"] @ np.tanh(s["theta1"] @ h + s["b1"]) + s["b2"]

    if name == "node":
        return f(x)
    h, m = np.split(x, 2)
    if name == "hbnode":
        return np.concatenate([m, -GAMMA * m + f(h)])
    return np.concatenate([np.tanh(m), -GAMMA * m + f(h) - XI * h])


def exact(name: str, layer: nn.Module, u: np.ndarray) -> np.ndarray:
    """The outputs for one sequence u (T, D), each flow solved by scipy."""
    s = {key: value.detach().numpy() for key, value in layer.symbols().items()}
    x, out = np.zeros(H if name == "node" else 2 * H), []
    for row in u:
        x[:H] = np.tanh(s["W"] @ x[:H] + s["V"] @ row + s["b"])
        flow = solve_ivp(lambda _, x: right_side(name, s, x), (0, SPAN), x, "DOP853", rtol=1e-11, atol=1e-12)
        x = flow.y[:, -1].copy()
        out.append(x[:H].copy())
    return np.stack(out)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("how", [{"n_steps": 40}, FINE], ids=["rk4", "dopri5"])
def test_a_layer_follows_its_equations(name: str, how: dict) -> None:
    if how is FINE:
        pytest.importorskip("torchdiffeq", reason="needs the extra ode")
    layer, u = made(lambda: LAYERS[name](**how)), numbers(2, 3, D)
    y, state = layer(u)
    assert np.abs(y[1].detach().numpy() - exact(name, layer, u[1].numpy())).max() < 1e-7
    assert torch.equal(state[0], y[:, -1])


@pytest.mark.parametrize("name", LAYERS)
def test_the_adjoint_has_the_gradients_of_the_steps_and_evaluates_backwards(name: str) -> None:
    pytest.importorskip("torchdiffeq", reason="needs the extra ode")
    gradients = []
    for adjoint in (False, True):
        layer = made(lambda adjoint=adjoint: LAYERS[name](**FINE, adjoint=adjoint))
        loss = layer(numbers(2, 2, D))[0][:, -1].square().sum()
        forward = layer.field.evaluations
        gradients.append(torch.autograd.grad(loss, list(layer.parameters())))
        assert forward > 20
        assert (layer.field.evaluations > forward) == adjoint
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_the_order_of_each_scheme(scheme: str, order: int) -> None:
    """On y'' = -y, at t = 1: halving the step divides the error by 2 to the power of the order."""

    def f(x: Tensor) -> Tensor:
        return torch.stack([x[1], -x[0]])

    errors = []
    for n in (16, 32):
        x = torch.tensor([1.0, 0.0], dtype=torch.float64)
        for _ in range(n):
            x = SCHEMES[scheme](f, x, 1 / n)
        errors.append(abs(float(x[0]) - np.cos(1.0)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_a_trained_damping_starts_where_it_is_set_and_has_a_gradient() -> None:
    layer = GeneralisedHeavyBallNODE(D, H, width=W, gamma=GAMMA, xi=XI, trained=True)
    gamma, xi = (float(value.detach()) for value in layer.field.gamma_xi())
    assert (gamma, xi) == pytest.approx((GAMMA, XI))
    layer(numbers(1, 3, D).float())[0].sum().backward()
    assert layer.field.raw_gamma.grad is not None and layer.field.raw_xi.grad is not None
    with pytest.raises(InputError, match="gamma must lie between 0 and 1 where it is trained"):
        HeavyBallNODE(D, H, width=W, gamma=1.5, trained=True)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"method": "rk4"}, "method=rk4 needs n_steps, such as 4; got null"),
        ({"method": "rk4", "n_steps": 2, "adjoint": True}, "method=rk4 has fixed steps, and got"),
        ({"method": "dopri5"}, "needs rtol and atol, such as 1e-5; got None and None"),
        ({"method": "dopri5", "n_steps": 3}, "chooses its steps; set n_steps to null; got 3"),
        ({"method": "rk45"}, "method must be one of"),
    ],
)
def test_wrong_settings_of_a_solver(wrong: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Solver(**{"n_steps": None, "rtol": None, "atol": None, "adjoint": False} | wrong)


def test_without_torchdiffeq_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    message = r"^method=dopri5 needs torchdiffeq\. Install it with: pip install 'torchdiffeq>=0\.2\.3'$"
    refuses(MissingExtra, message, Solver, "dopri5", n_steps=None, rtol=1e-3, atol=1e-3, adjoint=False)
