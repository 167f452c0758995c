"""Baseline layers against loops from their equations."""

import functools
from collections.abc import Callable

import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from step_loops import Step, follows, loop, lstm, same, tanh
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.antisymmetric import AntisymmetricRNN
from physml.models.sequence.fastrnn import FastGRNN, FastRNN
from physml.models.sequence.gated import GRU, LSTM, TanhRNN
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.noisy import NoisyRNN
from physml.models.sequence.orthogonal import ExpRNN
from physml.models.sequence.rnn import SequenceModel
from physml.ops.backend import running
from physml.run.record import count_parameters

D, H = 3, 5
DT, EPSILON, GAMMA = 0.3, 0.2, 0.1
SPECTRUM = {"beta_a": 0.8, "beta_w": 0.6, "gamma_a": 0.05, "gamma_w": 0.02}


def gated(keep: float, write: float) -> Step:
    return lambda layer, x, h, c: lstm(layer.symbols(), x, h, c, keep, write)


def gru(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    r, z = (torch.sigmoid(s["W" + k] @ h + s["V" + k] @ x + s["b" + k]) for k in "rz")
    k = torch.tanh(s["Vk"] @ x + s["bk"] + r * (s["Wk"] @ h + s["ck"]))
    return (h := (1 - z) * k + z * h), (h,)


def exprnn(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    p = s["B"] @ h + s["T"] @ x
    return (h := torch.where(p < 0, -1.0, 1.0) * torch.clamp(p.abs() + s["b"], min=0) * (p != 0)), (h,)


def lipschitz_slope(layer: nn.Module, x: Tensor, h: Tensor) -> Tensor:
    s, matrices = layer.symbols(), []
    for name, k in (("MA", "a"), ("MW", "w")):
        M, beta, eye = s[name], SPECTRUM[f"beta_{k}"], torch.eye(H, dtype=torch.float64)
        matrices.append((1 - beta) * (M + M.T) + beta * (M - M.T) - SPECTRUM[f"gamma_{k}"] * eye)
    A, W = matrices
    return A @ h + torch.tanh(W @ h + s["U"] @ x + s["b"])


def euler(layer: nn.Module, x: Tensor, h: Tensor):
    return (h := h + DT * lipschitz_slope(layer, x, h)), (h,)


def rk2(layer: nn.Module, x: Tensor, h: Tensor):
    return (h := h + DT * lipschitz_slope(layer, x, h + DT / 2 * lipschitz_slope(layer, x, h))), (h,)


def noisy(layer: nn.Module, x: Tensor, h: Tensor):
    """Behind the D inputs there may be the factors m and the terms a of the step."""
    x, m, a = x.split([D, H, H]) if len(x) > D else (x, 1.0, 0.0)
    return (h := h + layer.symbols()["d"] * m * lipschitz_slope(layer, x, h) + a), (h,)


def antisymmetric(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    turned = (s["W"] - s["W"].T - GAMMA * torch.eye(H, dtype=torch.float64)) @ h
    gate = torch.sigmoid(turned + s["Vz"] @ x + s["bz"]) if "Vz" in s else 1.0
    return (h := h + EPSILON * gate * torch.tanh(turned + s["V"] @ x + s["b"])), (h,)


def indrnn(layer: nn.Module, x: Tensor, *state: Tensor):
    new = []
    for s, h in zip(layer.symbols(), state, strict=True):
        x = torch.clamp(s["u"] * h + s["W"] @ x + s["b"], min=0)
        new.append(x)
    return x, tuple(new)


def fastrnn(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    alpha, beta = torch.sigmoid(s["alpha"]), torch.sigmoid(s["beta"])
    return (h := alpha * torch.tanh(s["W"] @ x + s["U"] @ h + s["b"]) + beta * h), (h,)


def fastgrnn(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    p = s["W"] @ x + s["U"] @ h
    gate, candidate = torch.sigmoid(p + s["bg"]), torch.tanh(p + s["bc"])
    write = torch.sigmoid(s["zeta"]) * (1 - gate) + torch.sigmoid(s["nu"])
    return (h := write * candidate + gate * h), (h,)


def lipschitz(method: str) -> nn.Module:
    return LipschitzRNN(D, H, dt=DT, method=method, init_std=3.0, **SPECTRUM)  # far from linear


def noisy_of(mult_noise: float, add_noise: float) -> NoisyRNN:
    noise = {"mult_noise": mult_noise, "add_noise": add_noise}
    layer = NoisyRNN(D, H, dt=DT, init_std=3.0, **noise, **SPECTRUM)
    with torch.no_grad():
        layer.d += torch.linspace(-0.1, 0.2, H)
    return layer


TURNED = {"epsilon": EPSILON, "gamma": GAMMA}
LAYERS: dict[str, tuple[Callable[[], nn.Module], Step]] = {
    "lstm": (lambda: LSTM(D, H), gated(1.0, 1.0)),
    "lstm-v1": (lambda: LSTM(D, H, dt=DT, dt_version=1), gated(DT, DT)),
    "lstm-v2": (lambda: LSTM(D, H, dt=DT, dt_version=2), gated(1 - DT, DT)),
    "gru": (lambda: GRU(D, H), gru),
    "tanh": (lambda: TanhRNN(D, H), tanh),
    "exprnn": (lambda: ExpRNN(D, H), exprnn),
    "dtriv": (lambda: ExpRNN(D, H, init="henaff", base="start", rebase_every=2).eval(), exprnn),
    "lipschitz-euler": (lambda: lipschitz("euler"), euler),
    "lipschitz-rk2": (lambda: lipschitz("rk2"), rk2),
    "noisy": (lambda: noisy_of(0.2, 0.1).eval(), noisy),
    "antisymmetric": (lambda: AntisymmetricRNN(D, H, **TURNED), antisymmetric),
    "antisymmetric-gated": (lambda: AntisymmetricRNN(D, H, **TURNED, gated=True), antisymmetric),
    "indrnn": (lambda: IndRNN(D, H, n_layers=2, bound=0.9), indrnn),
    "fastrnn": (lambda: FastRNN(D, H), fastrnn),
    "fastgrnn": (lambda: FastGRNN(D, H), fastgrnn),
}


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("name", LAYERS)
def test_equals_a_loop_from_the_equations(name: str, backend: str):
    make, step = LAYERS[name]
    torch.manual_seed(0)
    with running(backend):
        follows(make().double(), step)


def test_lstm_state_dropout_masks_h_where_it_enters_w(monkeypatch):
    layer = LSTM(2, 5, state_dropout=0.4).double().train()
    masks = {0.4: (mask := torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 1, 0]], dtype=torch.double) / 0.6)}
    monkeypatch.setattr("physml.models.sequence.gated.F.dropout", lambda ones, p: masks[p] * ones)
    u, state = numbers(2, 7, 2), tuple(numbers(2, 5, seed=k).requires_grad_() for k in (2, 3))
    outputs, last = layer(u, state)

    def step(x: Tensor, h: Tensor, c: Tensor):
        return lstm(layer.symbols(), x[:2], h * x[2:], c)

    reference = loop(step, torch.cat([u, mask[:, None].expand(-1, 7, -1)], 2), state)
    same([outputs, *last], reference, [*state, *layer.parameters()])
    torch.manual_seed(0)
    assert torch.equal(layer.eval()(u)[0], LSTM(2, 5).double()(u)[0])


@pytest.mark.parametrize(("mult", "add"), [(0.4, 0.3), (0.4, 0.0), (0.0, 0.3), (0.0, 0.0)])
def test_a_noisy_network_in_training_equals_the_loop_with_the_same_noise(mult: float, add: float):
    """The noise that the layer draws is drawn again here: first all factors, then all terms."""
    layer = noisy_of(mult, add).double().train()
    u, h = (2 * numbers(2, 9, D)).requires_grad_(), (0.5 * numbers(2, H)).requires_grad_()
    torch.manual_seed(5)
    path, last = layer(u, (h,))
    torch.manual_seed(5)
    like = torch.empty(9, 2, H, dtype=torch.float64)
    m = 1 - mult * torch.rand_like(like) if mult else torch.ones_like(like)
    a = add * torch.randn_like(like) if add else torch.zeros_like(like)
    noise = torch.cat([u, *(x.transpose(0, 1) for x in (m, a))], 2)
    same([path, *last], loop(functools.partial(noisy, layer), noise, (h,)), [u, h, *layer.parameters()])


def test_a_noisy_network_has_the_published_parameter_count_and_refuses_noise_out_of_range():
    """34,314 of the Lipschitz network of 128 units, and the vector d."""
    noise = {"dt": 0.01, "mult_noise": 0.02, "add_noise": 0.05}
    net = SequenceModel(lambda d: NoisyRNN(d, 128, **noise), 1, 10, "last", tokens=False)
    assert count_parameters(net) == 34_442
    refuses(InputError, "noise", noisy_of, 1.5, 0.1)
