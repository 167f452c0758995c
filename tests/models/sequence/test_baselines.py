"""What holds for every baseline layer: loops written from the equations, gradients, state, NaN, bad input."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.antisymmetric import AntisymmetricRNN
from physml.models.sequence.fastrnn import FastGRNN, FastRNN
from physml.models.sequence.gated import GRU, LSTM, TanhRNN
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.orthogonal import ExpRNN

D, H = 3, 5
DT, EPSILON, GAMMA = 0.3, 0.2, 0.1
BETA_A, BETA_W, GAMMA_A, GAMMA_W = 0.8, 0.6, 0.05, 0.02
BOUND = 0.9

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: LSTM(D, H),
    "lstm-v1": lambda: LSTM(D, H, dt=DT, dt_version=1),
    "lstm-v2": lambda: LSTM(D, H, dt=DT, dt_version=2),
    "gru": lambda: GRU(D, H),
    "tanh": lambda: TanhRNN(D, H),
    "exprnn": lambda: ExpRNN(D, H),
    "dtriv": lambda: ExpRNN(D, H, init="henaff", base="start", rebase_every=2),
    "lipschitz-euler": lambda: _lipschitz("euler"),
    "lipschitz-rk2": lambda: _lipschitz("rk2"),
    "antisymmetric": lambda: AntisymmetricRNN(D, H, epsilon=EPSILON, gamma=GAMMA),
    "antisymmetric-gated": lambda: AntisymmetricRNN(D, H, epsilon=EPSILON, gamma=GAMMA, gated=True),
    "indrnn": lambda: IndRNN(D, H, n_layers=2, bound=BOUND),
    "fastrnn": lambda: FastRNN(D, H),
    "fastgrnn": lambda: FastGRNN(D, H),
}


def _lipschitz(method: str) -> nn.Module:
    return LipschitzRNN(
        D,
        H,
        dt=DT,
        beta_a=BETA_A,
        beta_w=BETA_W,
        gamma_a=GAMMA_A,
        gamma_w=GAMMA_W,
        method=method,
        init_std=3.0,  # far from linear
    )


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[name]().double()


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=LAYERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


# --- one step of each, for a single sequence, from the equations


def lstm_step(s: dict[str, Tensor], x: Tensor, h: Tensor, c: Tensor, keep: float, write: float):
    i, f, o = (torch.sigmoid(s["W" + k] @ h + s["V" + k] @ x + s["b" + k]) for k in "ifo")
    g = torch.tanh(s["Wg"] @ h + s["Vg"] @ x + s["bg"])
    c = keep * f * c + write * i * g
    return o * torch.tanh(c), c


def gru_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    r, z = (torch.sigmoid(s["W" + k] @ h + s["V" + k] @ x + s["b" + k]) for k in "rz")
    k = torch.tanh(s["Vk"] @ x + s["bk"] + r * (s["Wk"] @ h + s["ck"]))
    return ((1 - z) * k + z * h,)


def tanh_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    return (torch.tanh(s["W"] @ h + s["V"] @ x + s["b"]),)


def exprnn_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    p = s["B"] @ h + s["T"] @ x
    return (torch.where(p < 0, -1.0, 1.0) * torch.clamp(p.abs() + s["b"], min=0) * (p != 0),)


def lipschitz_slope(s: dict[str, Tensor], x: Tensor, h: Tensor) -> Tensor:
    matrices = []
    for M, beta, gamma in ((s["MA"], BETA_A, GAMMA_A), (s["MW"], BETA_W, GAMMA_W)):
        matrices.append((1 - beta) * (M + M.T) + beta * (M - M.T) - gamma * torch.eye(H, dtype=torch.float64))
    A, W = matrices
    return A @ h + torch.tanh(W @ h + s["U"] @ x + s["b"])


def euler_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    return (h + DT * lipschitz_slope(s, x, h),)


def rk2_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    half = h + DT / 2 * lipschitz_slope(s, x, h)
    return (h + DT * lipschitz_slope(s, x, half),)


def antisymmetric_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    turned = (s["W"] - s["W"].T - GAMMA * torch.eye(H, dtype=torch.float64)) @ h
    gate = torch.sigmoid(turned + s["Vz"] @ x + s["bz"]) if "Vz" in s else 1.0
    return (h + EPSILON * gate * torch.tanh(turned + s["V"] @ x + s["b"]),)


def indrnn_step(s: list[dict[str, Tensor]], x: Tensor, *hs: Tensor):
    new = []
    for layer, h in zip(s, hs, strict=True):
        x = torch.clamp(layer["u"] * h + layer["W"] @ x + layer["b"], min=0)
        new.append(x)
    return new[-1], *new


def fastrnn_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    alpha, beta = torch.sigmoid(s["alpha"]), torch.sigmoid(s["beta"])
    return (alpha * torch.tanh(s["W"] @ x + s["U"] @ h + s["b"]) + beta * h,)


def fastgrnn_step(s: dict[str, Tensor], x: Tensor, h: Tensor):
    p = s["W"] @ x + s["U"] @ h
    gate, candidate = torch.sigmoid(p + s["bg"]), torch.tanh(p + s["bc"])
    return ((torch.sigmoid(s["zeta"]) * (1 - gate) + torch.sigmoid(s["nu"])) * candidate + gate * h,)


STEPS = {
    "lstm": lambda s, x, h, c: lstm_step(s, x, h, c, 1.0, 1.0),
    "lstm-v1": lambda s, x, h, c: lstm_step(s, x, h, c, DT, DT),
    "lstm-v2": lambda s, x, h, c: lstm_step(s, x, h, c, 1 - DT, DT),
    "gru": gru_step,
    "tanh": tanh_step,
    "exprnn": exprnn_step,
    "dtriv": exprnn_step,
    "lipschitz-euler": euler_step,
    "lipschitz-rk2": rk2_step,
    "antisymmetric": antisymmetric_step,
    "antisymmetric-gated": antisymmetric_step,
    "fastrnn": fastrnn_step,
    "fastgrnn": fastgrnn_step,
}


def loop(name: str, layer: nn.Module, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
    """Each sequence by itself, each step by itself; the first entry of the state is the output."""
    s = layer.symbols()
    paths, ends = [], []
    for row in range(len(u)):
        now = tuple(x[row] for x in state)
        path = []
        for x in u[row]:
            if name == "indrnn":
                out, *now = indrnn_step(s, x, *now)
            else:
                now = STEPS[name](s, x, *now)
                out = now[0]
            path.append(out)
        paths.append(torch.stack(path))
        ends.append(now)
    return torch.stack(paths), [torch.stack(x) for x in zip(*ends, strict=True)]


def random_state(layer: nn.Module) -> tuple[Tensor, ...]:
    _, state = layer(noise(2, 1, D))
    return tuple(0.5 * noise(2, H) + i for i, _ in enumerate(state))


def test_equals_a_loop_from_the_equations(name: str):
    layer = make(name).eval()
    u, state = 2 * noise(2, 9, D), random_state(layer)
    with torch.no_grad():
        path, end = layer(u, state)
        want, want_end = loop(name, layer, u, state)
    torch.testing.assert_close(path, want, rtol=1e-11, atol=1e-12)
    for got, wanted in zip(end, want_end, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-12)


def test_gradients_equal_those_of_the_loop(name: str):
    layer = make(name)
    u, state = 2 * noise(2, 9, D), random_state(layer)
    inputs = [x.requires_grad_() for x in (u, *state)]
    push = noise(2, 9, H)
    found = []
    for run in (layer.forward, lambda u, state: loop(name, layer, u, state)):
        path, end = run(inputs[0], tuple(inputs[1:]))
        target = (path * push).sum() + sum((x * x).sum() for x in end)
        found.append(torch.autograd.grad(target, [*inputs, *layer.parameters()], allow_unused=True))
    assert all(g is not None and g.abs().sum() > 0 for g in found[0])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [{"d_in": 0, "d_hidden": 4}, {"d_in": 2, "d_hidden": -1}])
@pytest.mark.parametrize("cls", [LSTM, GRU, TanhRNN, ExpRNN, FastRNN, FastGRNN])
def test_sizes_must_be_positive(cls: type, size: dict[str, int]):
    with pytest.raises(InputError, match="must be positive"):
        cls(**size)


def test_lstm_state_dropout_masks_h_where_it_enters_w(monkeypatch):
    torch.manual_seed(0)
    layer = LSTM(2, 5, state_dropout=0.4).double().train()
    mask = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 1, 0]]) / 0.6
    monkeypatch.setattr(
        "physml.models.sequence.gated.F.dropout", lambda ones, p: mask * ones if p == 0.4 else None
    )
    u = torch.randn(2, 7, 2, dtype=torch.double)
    h, c = torch.randn(2, 2, 5, dtype=torch.double).unbind(0)
    outputs, (last_h, last_c) = layer(u, (h, c))
    s, path = layer.symbols(), []
    for x in u.unbind(1):
        i, f, g, o = ((h * mask) @ s[f"W{k}"].T + x @ s[f"V{k}"].T + s[f"b{k}"] for k in "ifgo")
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        path.append(h)
    torch.testing.assert_close(outputs, torch.stack(path, 1), rtol=0, atol=1e-13)
    torch.testing.assert_close((last_h, last_c), (h, c), rtol=0, atol=1e-13)
    torch.manual_seed(0)
    plain = LSTM(2, 5).double()
    assert torch.equal(layer.eval()(u)[0], plain(u)[0])
    with pytest.raises(InputError, match="state_dropout must lie"):
        LSTM(2, 5, state_dropout=-0.1)
