"""Layers that came after the papers: against loops from their equations, stability."""

import functools
import math
from collections.abc import Callable

import pytest
import torch
from drawn_layers import made, numbers
from refusals import refuses
from step_loops import Step, follows
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence import diagonal_ssm
from physml.models.sequence.diagonal_ssm import S4D, S5, hippo_normal
from physml.models.sequence.linoss import LinOSS
from physml.models.sequence.lru import LRU
from physml.models.sequence.min_gated import MinGRU, MinLSTM
from physml.models.sequence.slstm import SLSTM
from physml.models.sequence.wave import WaveRNN
from physml.ops.backend import running

D, H, P = 3, 4, 3

# What is not about compiled cells runs as the loop.
pytestmark = pytest.mark.usefixtures("nothing_is_compiled")


# ----------------------------------------------------- one step of each, for one sequence, from the equations
def min_gru(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    z = torch.sigmoid(s["Vz"] @ x + s["bz"])
    return (h := (1 - z) * h + z * (s["Vh"] @ x + s["bh"])), (h,)


def min_lstm(layer: nn.Module, x: Tensor, h: Tensor):
    s = layer.symbols()
    f, i = (torch.sigmoid(s["V" + k] @ x + s["b" + k]) for k in "fi")
    return (h := f / (f + i) * h + i / (f + i) * (s["Vh"] @ x + s["bh"])), (h,)


def slstm(layer: nn.Module, x: Tensor, h: Tensor, c: Tensor, q: Tensor, m: Tensor):
    s = layer.symbols()
    turned = torch.cat([torch.block_diag(*of_gate) @ h for of_gate in s["R"]])
    z, i, f, o = (s["W"] @ x + s["b"] + turned).chunk(4)
    log_f = torch.log(torch.sigmoid(f))
    new = torch.maximum(log_f + m, i)
    write, keep = torch.exp(i - new), torch.exp(log_f + m - new)
    c, q = keep * c + write * torch.tanh(z), keep * q + write
    h = torch.sigmoid(o) * c / q
    return h, (h, c, q, new)


def wave(layer: nn.Module, x: Tensor, h: Tensor):
    """By torch's convolution on a ring."""
    s = layer.symbols()
    ring = nn.functional.pad(h.reshape(1, 2, 4), (1, 1), mode="circular")
    return (h := torch.tanh(nn.functional.conv1d(ring, s["k"]).flatten() + s["V"] @ x + s["b"])), (h,)


def complex_of(pair: Tensor) -> Tensor:
    return torch.complex(pair[0], pair[1])


def lru(core: nn.Module, x: Tensor, re: Tensor, im: Tensor):
    lam = torch.exp(-torch.exp(core.nu) + 1j * torch.exp(core.theta))
    state = lam * torch.complex(re, im) + torch.exp(core.gamma) * (complex_of(core.B) @ x.to(lam))
    return (complex_of(core.C) @ state).real + core.D * x, (state.real, state.imag)


def s5(core: nn.Module, x: Tensor, re: Tensor, im: Tensor):
    lam, dt = torch.complex(-torch.exp(core.log_re), core.im), torch.exp(core.log_dt)
    state = torch.exp(lam * dt) * torch.complex(re, im)
    state = state + (torch.exp(lam * dt) - 1) / lam * (complex_of(core.B) @ x.to(lam))
    return 2 * (complex_of(core.C) @ state).real + core.D * x, (state.real, state.imag)


def s4d(core: nn.Module, x: Tensor, re: Tensor, im: Tensor):
    out, new = [], []
    for h in range(H):
        lam, dt = torch.complex(-torch.exp(core.log_re[h]), core.im[h]), torch.exp(core.log_dt[h])
        old = torch.complex(re.reshape(H, P)[h], im.reshape(H, P)[h])
        new.append(torch.exp(lam * dt) * old + (torch.exp(lam * dt) - 1) / lam * x[h])
        out.append(2 * (complex_of(core.C)[h] * new[-1]).sum().real + core.D[h] * x[h])
    state = torch.cat(new)
    return torch.stack(out), (state.real, state.imag)


def linoss(core: nn.Module, x: Tensor, *state: Tensor):
    """The schemes as they are written, solved for what is implicit."""
    z, y = (torch.complex(*part.chunk(2)) for part in state)
    A, G, dt = core.constants()
    push = complex_of(core.B) @ x.to(z)
    if core.scheme == "im":
        z = (z + dt * (push - A * y)) / (1 + dt**2 * A)
    elif core.scheme == "imex":
        z = z + dt * (push - A * y)
    else:
        z = (z + dt * (push - A * y)) / (1 + dt * G)
    y = y + dt * z
    return (complex_of(core.C) @ y).real + core.D * x, tuple(torch.cat([a.real, a.imag]) for a in (z, y))


LAYERS: dict[str, tuple[Callable[[], nn.Module], Step]] = {
    "min_gru": (lambda: MinGRU(D, H), min_gru),
    "min_lstm": (lambda: MinLSTM(D, H), min_lstm),
    "slstm": (lambda: SLSTM(D, H, n_heads=2), slstm),
    "wave": (lambda: WaveRNN(D, 8, channels=2, activation="tanh"), wave),
    "lru": (lambda: LRU(D, H, d_state=P, n_layers=2), lru),
    "s5": (lambda: S5(D, H, d_state=P, n_layers=2), s5),
    "s4d": (lambda: S4D(D, H, d_state=P, n_layers=2), s4d),
    **{
        scheme: (lambda scheme=scheme: LinOSS(D, H, d_state=P, n_layers=2, scheme=scheme), linoss)
        for scheme in ("im", "imex", "damped")
    },
}


def steps_of(step: Step, layer: nn.Module, x: Tensor, *state: Tensor):
    """A step of a layer, or of a stack of blocks around recurrences."""
    if not hasattr(layer, "blocks"):
        return step(layer, x, *state)
    x, new = layer.encoder.weight @ x + layer.encoder.bias, []
    for k, block in enumerate(layer.blocks):
        norm = block.norm
        y = (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + norm.eps) * norm.weight + norm.bias
        y, now = step(block.recurrence, y, *state[2 * k : 2 * k + 2])
        y = 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))
        a, b = (block.glu.weight @ y + block.glu.bias).chunk(2)
        x = x + a * torch.sigmoid(b)
        new += now
    return x, tuple(new)


@pytest.mark.parametrize("name", LAYERS)
def test_equals_a_loop_from_the_equations(name: str):
    make, step = LAYERS[name]
    with running("native"):
        follows(made(make), functools.partial(steps_of, step), numbers(2, 7, D), rtol=1e-8)


@pytest.mark.parametrize(
    "limits",
    [
        *({"BLOCK": block, "FINE": fine} for block, fine in ((1, 2), (3, 2), (5, 2), (7, 3), (64, 4))),
        {"LARGE": 0, "PART": 1},
    ],
    ids=str,
)
def test_s4d_is_the_same_in_blocks_of_any_size_and_parts_of_a_batch(monkeypatch, limits: dict[str, int]):
    """Values and gradients, with a whole last block, a part of one, and a single one."""
    for name, value in limits.items():
        monkeypatch.setattr(diagonal_ssm, name, value)
    test_equals_a_loop_from_the_equations("s4d")


def eigenvalues(scheme: str, spread: float, a: float | None = None, **ring: float) -> tuple[Tensor, Tensor]:
    """Moduli of those of a step, and its determinants, with parameters so far from their start."""
    torch.manual_seed(0)
    core = LinOSS(1, 4, d_state=500, n_layers=1, scheme=scheme, **ring).double().blocks[0].recurrence
    with torch.no_grad():
        for p in core.parameters():
            p.add_(spread * torch.randn_like(p))
        if a is not None:
            core.A.fill_(a)
        M = torch.stack(core.matrix()[0], -1).reshape(-1, 2, 2)
    return torch.linalg.eigvals(M).abs(), torch.linalg.det(M)


def test_imex_oscillators_are_symplectic_and_implicit_and_damped_ones_stable() -> None:
    moduli, determinants = eigenvalues("imex", spread=1.0)
    torch.testing.assert_close(determinants, torch.ones_like(determinants))
    torch.testing.assert_close(moduli, torch.ones_like(moduli), rtol=0, atol=1e-6)
    assert eigenvalues("imex", spread=1.0, a=50.0)[0].max() > 1.5
    for scheme, slack in (("im", 1e-9), ("damped", 1e-6)):
        moduli, determinants = eigenvalues(scheme, spread=20.0)
        assert moduli.max() <= 1 + slack and moduli.min() < 0.5
    # damped ones have pairs of eigenvalues
    torch.testing.assert_close(moduli, determinants.sqrt()[:, None].expand(-1, 2), rtol=0, atol=1e-5)
    moduli, _ = eigenvalues("damped", spread=0.0, r_min=0.8, r_max=0.9)  # and start in the ring
    assert moduli.min() >= 0.8 - 1e-4 and moduli.max() <= 0.9 + 1e-4
    assert moduli.max() - moduli.min() > 0.09


def test_lru_lies_in_its_ring_and_s5_starts_at_the_eigenvalues_of_hippo() -> None:
    core = LRU(1, 4, d_state=2000, n_layers=1, r_min=0.5, r_max=0.9, max_phase=1.0).blocks[0].recurrence
    factor = core.factor().detach()
    assert factor.abs().min() >= 0.5 - 1e-4 and factor.abs().max() <= 0.9 + 1e-4
    assert abs(float((factor.abs() ** 2).mean()) - (0.25 + 0.81) / 2) < 0.01  # uniform in area
    assert factor.angle().min() >= 0 and factor.angle().max() <= 1.0
    torch.testing.assert_close(torch.exp(core.gamma.detach()), torch.sqrt(1 - factor.abs() ** 2))
    core.nu.data.add_(10 * torch.randn(2000))
    assert core.factor().abs().max() <= 1.0
    # Those of the matrix itself, written out; S5 starts there.
    size, n = 3, torch.arange(6, dtype=torch.float64)
    root = torch.sqrt(2 * n + 1)
    legs = torch.where(n[:, None] > n, -torch.outer(root, root), 0.0) - torch.diag(n + 1)
    normal = legs + torch.outer(root, root) / 2  # + P P^T, P = (n + 1/2)^(1/2)
    values, vectors = hippo_normal(size)
    torch.testing.assert_close(normal.to(vectors) @ vectors, vectors * values)
    layer = S5(1, 4, d_state=size, n_layers=1).blocks[0].recurrence
    torch.testing.assert_close(layer.im.detach(), values.imag.float())
    assert (values.imag > 0).all() and (layer.discrete()[0].abs() < 1).all()


def test_the_stabiliser_changes_nothing_and_large_gates_do_not_overflow():
    layer, u = made(lambda: SLSTM(D, H, n_heads=2)), numbers(2, 9, D)
    rest = torch.zeros(2, H, dtype=torch.float64)
    plain, _ = layer(u)
    moved, _ = layer(u, (rest, rest, rest, rest + 5.0))
    torch.testing.assert_close(moved, plain)
    layer.b.data[H : 2 * H] = 5000.0  # exp of this is infinite
    assert layer(u)[0].isfinite().all()


@pytest.mark.parametrize("rest", [None, "zeros"])
def test_a_first_input_gate_of_any_size_writes(rest: str | None) -> None:
    """With the logarithm of the normaliser at 0 instead of minus infinity, exp(-110) is 0 in float32."""
    layer, u = SLSTM(2, 4), torch.randn(3, 5, 2)
    with torch.no_grad():
        layer.b[4:8] = -110.0
    with running("native"):
        h, _ = layer(u, None if rest is None else tuple(torch.zeros(3, 4) for _ in range(4)))
    h.sum().backward()
    assert torch.isfinite(h).all() and all(torch.isfinite(p.grad).all() for p in layer.parameters())
    # The first state is the first input alone: h_1 = o tanh(z), whatever the size of the gate.
    z, _, _, o = nn.functional.linear(u[:, 0], layer.W, layer.b).chunk(4, 1)
    torch.testing.assert_close(h[:, 0], torch.sigmoid(o) * torch.tanh(z))


def test_what_is_written_travels_around_each_ring_and_wide_rings_convolve_to_the_same_states(monkeypatch):
    layer = WaveRNN(1, 8, channels=2)
    u = torch.zeros(1, 6, 1)
    u[0, 0] = 1.0
    path, _ = layer(u)
    at = [rings.nonzero()[:, 1].tolist() for rings in path[0].reshape(6, 2, 4)]
    assert at == [[0, 0], [3, 3], [2, 2], [1, 1], [0, 0], [3, 3]]
    layer = made(lambda: WaveRNN(D, 24, channels=2, kernel=5, activation="tanh"))
    u, h = numbers(3, 7, D).requires_grad_(), numbers(3, 24).requires_grad_()
    results = []
    for wide in (1000, 1):
        monkeypatch.setattr("physml.models.sequence.wave.WIDE", wide)
        path, (last,) = layer(u, (h,))
        loss = (path * numbers(3, 7, 24, seed=1)).sum() + last.square().sum()
        results.append([path, last, *torch.autograd.grad(loss, [u, h, *layer.parameters()])])
    torch.testing.assert_close(results[1], results[0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SLSTM(2, 5, n_heads=2), "n_heads must divide"),
        (lambda: WaveRNN(2, 5, channels=2), "channels must divide"),
        (lambda: WaveRNN(2, 8, channels=2, kernel=5), "kernel must be odd"),
        (lambda: LRU(2, 4, d_state=2, n_layers=1, r_max=1.0), "r_min and r_max need"),
        (lambda: S5(2, 4, d_state=2, n_layers=1, dt_min=0.0), "dt_min and dt_max need"),
        (lambda: LinOSS(2, 4, d_state=2, n_layers=1, dropout=1.0), "dropout must lie in"),
        (lambda: LinOSS(2, 4, d_state=2, n_layers=1, r_min=0.0), "r_min and r_max need"),
    ],
)
def test_arguments_that_cannot_be(make: Callable[[], nn.Module], words: str):
    refuses(InputError, words, make)
