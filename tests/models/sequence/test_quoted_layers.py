"""Layers that tables quote, leaky integrators, oscillators: against loops, and what they promise."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawn_layers import made, numbers, train, zeroed
from refusals import refuses
from step_loops import Step, follows, tanh
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.incremental import IncrementalRNN
from physml.models.sequence.kronecker import KroneckerRNN
from physml.models.sequence.leaky import LeakyRNN
from physml.models.sequence.momentum import MomentumLSTM, MomentumRNN
from physml.models.sequence.nais import SequentialNAISNet
from physml.models.sequence.nnrnn import NonNormalRNN
from physml.models.sequence.oscillator import MultilayerOscillator, NeuralOscillator
from physml.models.sequence.relu_gru import ReLUGRU
from physml.models.sequence.skip import SkipGRU, SkipLSTM
from physml.models.sequence.soft_orthogonal import SoftOrthogonalRNN
from physml.models.sequence.sru import SRU
from physml.models.sequence.tarnn import TARNN
from physml.models.sequence.unitary import TINY, FullCapacityURNN, UnitaryRNN
from physml.ops.backend import running

D, H = 3, 4
MU, S, DT = 0.7, 0.4, 0.3

# What is not about compiled cells runs as the loop.
pytestmark = pytest.mark.usefixtures("nothing_is_compiled")


# ----------------------------------------------------- one step of each, for one sequence, from the equations
def relu_gru(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    z, r = (torch.sigmoid(s["W" + k] @ x + s["U" + k] @ h + s["b" + k]) for k in "zr")
    k = torch.clamp(s["Wk"] @ x + s["Uk"] @ (r * h) + s["bk"], min=0)
    return (h := (1 - z) * h + z * k), (h,)


def skipped(s: dict[str, Tensor], wait: Tensor, old: tuple[Tensor, ...], new: tuple[Tensor, ...]):
    tilde = 1 - wait
    g = tilde + (torch.round(tilde) - tilde).detach()  # its slope is taken for 1
    state = tuple(g * b + (1 - g) * a for a, b in zip(old, new, strict=True))
    rise = torch.sigmoid(s["Wp"] @ state[-1] + s["bp"])
    tilde = g * rise + (1 - g) * (tilde + torch.minimum(rise, 1 - tilde))
    return state[0], (*state, 1 - tilde)


def skip_lstm(layer: nn.Module, x: Tensor, h: Tensor, c: Tensor, wait: Tensor):
    s = layer.symbols()
    i, f, g, o = (s["W" + k] @ h + s["V" + k] @ x + s["b" + k] for k in "ifgo")
    new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return skipped(s, wait, (h, c), (torch.sigmoid(o) * torch.tanh(new), new))


def skip_gru(layer: nn.Module, x: Tensor, h: Tensor, wait: Tensor):
    s = layer.symbols()
    r, z = (torch.sigmoid(s["W" + k] @ h + s["V" + k] @ x + s["b" + k]) for k in "rz")
    k = torch.tanh(s["Vk"] @ x + s["Wk"] @ (r * h) + s["bk"])
    return skipped(s, wait, (h,), (z * h + (1 - z) * k,))


def sru(layer: nn.Module, x: Tensor, c: Tensor):
    s, rows = layer.symbols(), []
    new, kept = [], s["Wx"] @ x if "Wx" in s else x
    for i in range(H):  # no unit sees another one
        f = torch.sigmoid(s["Wf"][i] @ x + s["vf"][i] * c[i] + s["bf"][i])
        r = torch.sigmoid(s["Wr"][i] @ x + s["vr"][i] * c[i] + s["br"][i])
        new.append(f * c[i] + (1 - f) * (s["W"][i] @ x))
        rows.append(r * new[i] + (1 - r) * math.sqrt(1 + 2 * math.exp(-0.5)) * kept[i])
    return torch.stack(rows), (torch.stack(new),)


def momentum_rnn(layer: nn.Module, x: Tensor, h: Tensor, v: Tensor):
    s = layer.symbols()
    v = MU * v + S * (s["W"] @ x + s["b1"])
    return (h := torch.tanh(s["U"] @ h + s["b2"] + v)), (h, v)


def momentum_lstm(layer: nn.Module, x: Tensor, h: Tensor, c: Tensor, *parts: Tensor):
    s = layer.symbols()
    v = MU * torch.cat(parts) + S * (s["W"] @ x + s["b1"])
    i, f, g, o = (s["U"] @ h + s["b2"] + v).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c, *v.chunk(4))


def fourier() -> Tensor:
    k = torch.arange(H, dtype=torch.float64)
    return torch.exp(-2j * math.pi * torch.outer(k, k) / H) / math.sqrt(H)


def product_of_factors(layer: UnitaryRNN) -> Tensor:
    """W of the uRNN, factor by factor."""
    F, eye = fourier(), torch.eye(H, dtype=torch.complex128)
    D = [torch.diag(torch.exp(1j * theta)) for theta in layer.theta]
    v = [torch.complex(part[0], part[1]) for part in layer.v]
    R = [eye - 2 * torch.outer(part, part.conj()) / (part.conj() * part).sum() for part in v]
    return D[2] @ R[1] @ F.conj().T @ D[1] @ eye[layer.permutation] @ R[0] @ F @ D[0]


def kronecker_entries(layer: KroneckerRNN) -> Tensor:
    """W, each entry the product of one entry of every factor: the digits of its row and its column."""
    first, second = (torch.complex(W[0], W[1]) for W in layer.factors)
    i, j = torch.arange(H)[:, None], torch.arange(H)
    return first[i // 2, j // 2] * second[i % 2, j % 2]


def complex_step(layer: nn.Module, x: Tensor, re: Tensor, im: Tensor):
    s = layer.symbols()
    W = s["W"]
    if isinstance(layer, UnitaryRNN):
        W = product_of_factors(layer)
    if isinstance(layer, KroneckerRNN):
        W = kronecker_entries(layer)
    z = W @ torch.complex(re, im) + s["V"] @ x.to(s["V"])
    modulus = torch.sqrt(z.real**2 + z.imag**2 + TINY)
    h = z * torch.clamp(modulus + s["b"], min=0) / (modulus + TINY)
    return torch.cat([h.real, h.imag]), (h.real, h.imag)


def schur(layer: NonNormalRNN) -> Tensor:
    below, zero = tuple(torch.tril_indices(H, H, -1)), torch.zeros(H, H, dtype=torch.float64)
    A, Theta = zero.index_put(below, layer.A), zero.index_put(below, layer.T)
    for k, (gamma, theta) in enumerate(zip(layer.gamma, layer.theta, strict=True)):
        cos, sin = theta.cos(), theta.sin()
        Theta[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] += gamma * torch.stack([cos, -sin, sin, cos]).view(2, 2)
    P = torch.matrix_exp(A - A.T)
    return P @ Theta @ P.T


def nnrnn(layer: nn.Module, x: Tensor, h: Tensor):
    p = schur(layer) @ h + layer.U @ x
    return (h := torch.sign(p) * torch.clamp(p.abs() + layer.b, min=0)), (h,)


def incremental(layer: nn.Module, x: Tensor, h: Tensor):
    s, g = layer.symbols(), h
    for eta in s["eta"]:
        g = g + eta * (torch.tanh(s["U"] @ (g + h) + s["W"] @ x + s["b"]) - (g + h))
    return g, (g,)


def tarnn(layer: nn.Module, x: Tensor, h: Tensor, before: Tensor):
    s, z = layer.symbols(), h
    beta = torch.sigmoid(s["Ug"] @ h + s["Wg"] @ x + s["bg"])
    for alpha in s["alpha"]:
        inner = s["U1"] @ z + s["U2"] @ h + s["W1"] @ x + s["W2"] @ before + s["b"]
        z = z + alpha * beta * (torch.tanh(inner) - z - h + s["B1"] @ x + s["B2"] @ h)
    return z, (z, x)


def nais(layer: nn.Module, x: Tensor, h: Tensor):
    P, delta = layer.R.T @ layer.R, 1 - 2 * 0.1
    size = torch.sqrt((P * P).sum())
    assert size > delta
    A = -delta * P / size - 0.1 * torch.eye(H, dtype=torch.float64)
    return (h := h + DT * torch.tanh(A @ h + layer.B @ x + layer.b)), (h,)


def leaky(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    return (h := 0.8 * h + 0.3 * torch.tanh(s["W"] @ h + s["V"] @ x + s["b"])), (h,)


def oscillator(sigma: Callable[[Tensor], Tensor]) -> Step:
    """Thesis (4.1) in steps."""

    def step(layer: nn.Module, x: Tensor, y: Tensor, z: Tensor):
        s = layer.symbols()
        z = z + DT * sigma(s["W"] @ y + s["V"] @ x + s["b"])
        return (y := y + DT * z), (y, z)

    return step


def multilayer(layer: nn.Module, x: Tensor, *state: Tensor):
    """Thesis (4.3): one oscillator whose W has the blocks w and V."""
    first, second = layer.symbols()
    y, z = torch.cat(state[:2]), torch.cat(state[2:])
    W = torch.diag(torch.cat([first["w"], second["w"]]))
    W[H:, :H] = second["V"]
    z = z + DT * torch.sin(W @ y + torch.cat([first["V"] @ x + first["b"], second["b"]]))
    y = y + DT * z
    return y[H:], (*y.chunk(2), *z.chunk(2))


SIGMAS: dict[Any, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("tanh", "sin", "relu", "sigmoid")},
    "softplus": lambda x: torch.log1p(torch.exp(x)),
    "identity": lambda x: x,
    torch.atan: torch.atan,  # any function of a number
}
LAYERS: dict[str, tuple[Callable[[], nn.Module], Step]] = {
    "relu_gru": (lambda: ReLUGRU(D, H), relu_gru),
    "skip_lstm": (lambda: SkipLSTM(D, H), skip_lstm),
    "skip_gru": (lambda: SkipGRU(D, H), skip_gru),
    "sru": (lambda: SRU(D, H, highway_bias=-0.5), sru),
    "sru of equal widths": (lambda: SRU(H, H, highway_bias=-0.5), sru),
    "momentum_rnn": (lambda: MomentumRNN(D, H, mu=MU, s=S), momentum_rnn),
    "momentum_lstm": (lambda: MomentumLSTM(D, H, mu=MU, s=S), momentum_lstm),
    "urnn": (lambda: UnitaryRNN(D, H), complex_step),
    "full_urnn": (lambda: FullCapacityURNN(D, H), complex_step),
    "soft_orthogonal": (lambda: SoftOrthogonalRNN(D, H), tanh),
    "margin": (lambda: SoftOrthogonalRNN(D, H, margin=0.2), tanh),
    "nnrnn": (lambda: NonNormalRNN(D, H), nnrnn),
    "kronecker": (lambda: KroneckerRNN(D, H), complex_step),
    "incremental": (lambda: IncrementalRNN(D, H, n_steps=3, activation="tanh", eta=0.3), incremental),
    "tarnn": (lambda: TARNN(D, H, n_steps=2, activation="tanh", alpha=0.3), tarnn),
    "nais": (lambda: SequentialNAISNet(D, H, dt=DT, epsilon=0.1), nais),
    "leaky": (lambda: LeakyRNN(D, H, alpha=0.8, beta=0.3), leaky),
    **{
        f"oscillator of {getattr(name, '__name__', name)}": (
            lambda name=name: NeuralOscillator(D, H, dt=DT, activation=name),
            oscillator(sigma),
        )
        for name, sigma in SIGMAS.items()
    },
    "multilayer": (lambda: MultilayerOscillator(D, H, n_layers=2, dt=DT, activation="sin"), multilayer),
}


@pytest.mark.parametrize("name", LAYERS)
def test_equals_a_loop_from_the_equations(name: str):
    make, step = LAYERS[name]
    layer = made(make).eval()
    if name.startswith("skip"):
        layer.gate.bp.data.fill_(-0.7)  # some steps are taken, some are not
    with running("native"):
        follows(layer, step, numbers(2, 7, layer.d_in), but=("h0",))


@pytest.mark.parametrize("make", [UnitaryRNN, FullCapacityURNN])
def test_the_matrix_stays_unitary_and_the_trained_first_state_keeps_gradients_finite(make: type) -> None:
    layer = made(lambda: make(D, 6), spread=0.5)
    before = layer.matrix().detach()
    train(layer, 3)
    W, eye = layer.matrix().detach(), torch.eye(6, dtype=torch.complex128)
    torch.testing.assert_close(W @ W.conj().T, eye, rtol=0, atol=1e-6)  # W_0 is stored in single precision
    assert (W - before).abs().max() > 1e-3
    # Black pixels first, as in MNIST: from a zero state slopes of b / sqrt(1e-5) multiply to infinity.
    layer = make(1, 6)
    layer.b.data.fill_(0.1)
    u = torch.zeros(2, 60, 1)
    u[:, -5:] = 1.0
    path, _ = layer(u)
    from_h0, _ = layer(u, tuple(part.expand(2, -1) for part in layer.h0))
    torch.testing.assert_close(path, from_h0)
    for state, finite in ((None, True), (tuple(torch.zeros(2, 2, 6)), False)):
        layer.zero_grad()
        layer(u, state)[0][:, -1].sum().backward()
        assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None) == finite
    layer(u)[0].sum().backward()
    assert layer.h0.grad is not None and (layer.h0.grad != 0).all()


def rank(W: Tensor, weights: list[Tensor]) -> int:
    """Of the tangent of the map from weights to a complex matrix."""
    entries = torch.cat([W.real.flatten(), W.imag.flatten()])
    rows = [torch.autograd.grad(entry, weights, retain_graph=True) for entry in entries]
    return int(torch.linalg.matrix_rank(torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])))


def test_the_full_network_reaches_matrices_that_the_restricted_one_cannot():
    """7 H numbers do not fill H^2 dimensions."""
    restricted, full = UnitaryRNN(1, 9).double(), FullCapacityURNN(1, 9).double()
    assert rank(restricted.matrix(), [restricted.theta, restricted.v]) <= 63
    assert rank(full.matrix(), [full.K]) == 81


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_singular_values_stay_within_the_margin(margin: float):
    s = torch.linalg.svdvals(made(lambda: SoftOrthogonalRNN(D, 6, margin=margin), spread=5.0).matrix())
    assert (s - 1).abs().max() <= margin + 1e-6
    assert margin == 0.0 or (s - 1).abs().max() > 0.1


def test_penalties():
    soft = SoftOrthogonalRNN(D, H, orthogonality=0.5)
    assert soft.penalty().abs() < 1e-10  # an orthogonal start
    soft.W.data.mul_(2.0)  # W^T W - I = 3 I
    torch.testing.assert_close(soft.penalty(), torch.tensor(0.5 * 9 * H))
    assert SoftOrthogonalRNN(D, H).penalty() is None and NonNormalRNN(D, H).penalty() is None
    layer = NonNormalRNN(D, H, delta=0.5, decay=2.0)
    assert layer.penalty() == 0.0
    layer.gamma.data.fill_(3.0)
    layer.T.data.fill_(0.5)
    torch.testing.assert_close(layer.penalty(), torch.tensor(0.5 * 4 * H / 2 + 6 * 0.25))


def test_the_schur_form_is_orthogonal_at_the_start_and_non_normal_with_t():
    layer = NonNormalRNN(D, 6).double()
    V = layer.matrix()
    torch.testing.assert_close(V @ V.T, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-6)
    layer.T.data.fill_(0.3)
    V = layer.matrix()
    assert (V @ V.T - V.T @ V).abs().max() > 0.1


def ornstein_uhlenbeck(dt: float, steps: int) -> Tensor:
    """h at the end, of dh = -gamma h dt + sigma dB from h = 2, gamma = 1, sigma = 0.5; 40,000 paths."""
    layer = zeroed(LeakyRNN(1, 20, alpha=1 - dt, beta=dt, theta=0.5 * math.sqrt(dt)).double())
    torch.manual_seed(0)
    with running("native"):
        path, _ = layer(torch.zeros(2000, steps, 1).double(), (torch.full((2000, 20), 2.0).double(),))
    return path[:, -1]


def test_noise_has_the_moments_of_the_process_and_acts_in_training_alone() -> None:
    # Against the exact laws at t = 1; the standard error is 0.002. A step of 1/2 is visibly off.
    mean, variance = 2 * math.exp(-1), 0.125 * (1 - math.exp(-2))
    fine, coarse = ornstein_uhlenbeck(0.02, 50), ornstein_uhlenbeck(0.5, 2)
    assert abs(fine.mean() - mean) < 0.02 and abs(fine.var() - variance) < 0.01
    assert abs(coarse.mean() - mean) > 0.2
    layer, u = LeakyRNN(2, 3, alpha=0.5, beta=0.5, theta=0.1), torch.zeros(2, 4, 2)
    assert len(layer(u)[0].flatten().unique()) == 24
    layer.eval()
    assert torch.equal(layer(u)[0][0], layer(u)[0][1])


def test_the_energy_of_a_free_oscillator_is_kept_where_explicit_steps_gain_it():
    """Thesis (4.5): H = z^2 / 2 + (1 - cos y) for y'' = sin(-y)."""
    layer = NeuralOscillator(1, 1, dt=0.1, activation="sin").double()
    nn.init.constant_(layer.W, -1.0)
    nn.init.zeros_(layer.b)
    start = torch.full((1, 1), 1.0).double()
    path, (y, z) = layer(torch.zeros(1, 5000, 1).double(), (start, torch.zeros_like(start)))
    assert abs((z**2 / 2 + 1 - torch.cos(y)).item() / (1 - math.cos(1.0)) - 1) < 0.1
    assert path.abs().max() < 1.2
    y, z = 1.0, 0.0
    for _ in range(5000):  # both from the old state: explicit Euler
        y, z = y + 0.1 * z, z - 0.1 * math.sin(y)
    assert z**2 / 2 + 1 - math.cos(y) > 5 * (1 - math.cos(1.0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NonNormalRNN(2, 5), "d_hidden must be even"),
        (lambda: SoftOrthogonalRNN(2, 4, margin=2.0), "margin must lie in"),
        (lambda: SoftOrthogonalRNN(2, 4, margin=0.1, orthogonality=0.1), "Set one of the two"),
        (lambda: MomentumLSTM(2, 4, mu=0.1, s=0.0), "s must be positive"),
        (lambda: KroneckerRNN(2, 6), "d_hidden must be a power of factor, 2; got 6"),
        (lambda: KroneckerRNN(2, 1), "d_hidden must be a power of factor, 2; got 1"),
        (lambda: KroneckerRNN(2, 8, factor=1), "factor must be 2 or more"),
        (lambda: TARNN(2, 4, alpha=0.0), "alpha must be positive"),
        (lambda: SequentialNAISNet(2, 4, dt=1.5), r"dt must lie in \(0, 1\]"),
        (lambda: SequentialNAISNet(2, 4, epsilon=0.5), r"epsilon must lie in \(0, 0.5\)"),
    ],
)
def test_arguments_that_cannot_be(make: Callable[[], nn.Module], words: str):
    refuses(InputError, words, make)
