"""Cells to try the compiler on: as many kinds of steps as papers have; and all functions that it knows."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.ops.cell import recurrence


@dataclass
class Cell:
    """A step and its parameters; `states`: how many units each state has, for H units."""

    step: object
    parameters: list[Tensor]
    states: list[int]


def _linear(n_in: int, n_out: int, dtype: torch.dtype, bias: bool = True) -> nn.Linear:
    return nn.Linear(n_in, n_out, bias=bias).to(dtype)


def tanh(D: int, H: int, dtype: torch.dtype) -> Cell:
    V, W = _linear(D, H, dtype), _linear(H, H, dtype)

    def step(u, state):
        h = torch.tanh(V(u) + W(state[0]))
        return h, (h,)

    return Cell(step, [*V.parameters(), *W.parameters()], [H])


def lstm(D: int, H: int, dtype: torch.dtype) -> Cell:
    V, W = _linear(D, 4 * H, dtype), _linear(H, 4 * H, dtype)

    def step(u, state):
        h, c = state
        i, f, g, o = (V(u) + W(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    return Cell(step, [*V.parameters(), *W.parameters()], [H, H])


def lstm_of_one_product(D: int, H: int, dtype: torch.dtype) -> Cell:
    W = _linear(D + H, 4 * H, dtype)

    def step(u, state):
        h, c = state
        gates = F.linear(torch.cat([u, h], 1), W.weight, W.bias)
        i, f, o = gates[:, : 3 * H].sigmoid().split(H, 1)
        c = torch.addcmul(f * c, i, gates[:, 3 * H :].tanh())
        return o * c.tanh(), (o * c.tanh(), c)

    return Cell(step, list(W.parameters()), [H, H])


def gru(D: int, H: int, dtype: torch.dtype) -> Cell:
    V, W = _linear(D, 3 * H, dtype), _linear(H, 3 * H, dtype)

    def step(u, state):
        (h,) = state
        (a, b, c), (d, e, f) = V(u).chunk(3, 1), W(h).chunk(3, 1)
        r, z = torch.sigmoid(a + d), torch.sigmoid(b + e)
        k = torch.tanh(c + r * f)
        h = torch.lerp(k, h, z)
        return h, (h,)

    return Cell(step, [*V.parameters(), *W.parameters()], [H])


def lem(D: int, H: int, dtype: torch.dtype) -> Cell:
    V, W, Wy = _linear(D, 4 * H, dtype), _linear(H, 3 * H, dtype, False), _linear(H, H, dtype, False)

    def step(u, state):
        y, z = state
        (Vz, V1, V2, Vy), (Az, A1, A2) = V(u).chunk(4, 1), W(y).chunk(3, 1)
        step_z = (0.3 * torch.sigmoid(A1 + V1)).clamp(0.05, 0.25)
        step_y = 0.3 * torch.sigmoid(A2 + V2)
        z = (1 - step_z) * z + step_z * torch.tanh(Az + Vz)
        y = (1 - step_y) * y + step_y * torch.tanh(Wy(z) + Vy)
        return y, (y, z)

    return Cell(step, [*V.parameters(), *W.parameters(), *Wy.parameters()], [H, H])


def cornn(D: int, H: int, dtype: torch.dtype) -> Cell:
    V, W, Z = _linear(D, H, dtype), _linear(H, H, dtype, False), _linear(H, H, dtype, False)
    gamma = nn.Parameter(torch.tensor(2.7, dtype=dtype))

    def step(u, state):
        y, z = state
        z = z + 0.1 * (torch.tanh(W(y) + Z(z) + V(u)) - gamma * y - 4.7 * z)
        y = y + 0.1 * z
        return y, (y, z)

    return Cell(step, [*V.parameters(), *W.parameters(), *Z.parameters(), gamma], [H, H])


def midpoint(D: int, H: int, dtype: torch.dtype) -> Cell:
    """Two products after each other, of matrices that are computed from parameters."""
    U, A = _linear(D, H, dtype), nn.Parameter(0.3 * torch.randn(H, H, dtype=dtype))
    W = nn.Parameter(0.3 * torch.randn(H, H, dtype=dtype))

    def step(u, state):
        (h,) = state
        skew = A - A.t() - 0.1 * torch.eye(H, dtype=dtype)
        push = U(u)
        half = h + 0.05 * (h @ skew.t() + torch.tanh(h @ W.t() + push))
        h = h + 0.1 * (half @ skew.t() + torch.tanh(torch.addmm(push, half, W.t())))
        return h, (h,)

    return Cell(step, [*U.parameters(), A, W], [H])


def independent(D: int, H: int, dtype: torch.dtype) -> Cell:
    """Numbers per unit, a learned number, and no product of the state."""
    V, w = _linear(D, H, dtype), nn.Parameter(torch.rand(H, dtype=dtype))
    share = nn.Parameter(torch.tensor(0.4, dtype=dtype))

    def step(u, state):
        (h,) = state
        h = torch.addcmul(V(u), h, w).relu() * torch.sigmoid(share) + 0.1 * F.softplus(h)
        return h - share, (h,)

    return Cell(step, [*V.parameters(), w, share], [H])


def odd_operations(D: int, H: int, dtype: torch.dtype) -> Cell:
    """What is rare: quotients, waves, powers, comparisons, all activations."""
    V, W, E = _linear(D, H, dtype), _linear(H, H, dtype), _linear(H, H, dtype)

    def step(u, state):
        h, c = state
        a = V(u) + W(h)
        b = torch.where(a > 0.1, F.elu(a), torch.sin(a) + torch.cos(c)) / (1.5 + h.square())
        b = b + F.silu(a) * 0.2 + F.gelu(h) * 0.1 + F.leaky_relu(a - c, 0.2) * 0.1 + (c**3) * 0.01
        c = torch.exp(-c.abs()) - torch.log(1 + b**2) + torch.sqrt(1 + a * a).reciprocal()
        h = torch.maximum(torch.tanh(E(b)), 0.3 * c) - F.hardtanh(b, -0.5, 0.5) * 0.1
        return torch.minimum(h, c) + torch.clamp(a, max=0.7), (h, c.detach() * 0.1 + 0.4 * c)

    return Cell(step, [*V.parameters(), *W.parameters(), *E.parameters()], [H, H])


def two_sizes(D: int, H: int, dtype: torch.dtype) -> Cell:
    """States of different sizes; the larger one is memory that is read by a product."""
    n = 2 * H + 1
    V, W, M = _linear(D, H, dtype), _linear(n, H, dtype), _linear(H + n, n, dtype)

    def step(u, state):
        h, m = state
        h = torch.tanh(V(u) + W(m))
        m = 0.5 * m + 0.5 * torch.tanh(M(torch.cat([h, m], 1)))
        return m, (h, m)

    return Cell(step, [*V.parameters(), *W.parameters(), *M.parameters()], [H, n])


def linear(D: int, H: int, dtype: torch.dtype) -> Cell:
    """No elementwise operation at all."""
    V, W = _linear(D, H, dtype), _linear(H, H, dtype)

    def step(u, state):
        h = V(u) + 0.5 * W(state[0])
        return h, (h,)

    return Cell(step, [*V.parameters(), *W.parameters()], [H])


def oscillator(D: int, H: int, dtype: torch.dtype) -> Cell:
    """The old velocity enters a product, and a state is passed on that nothing changes."""
    V, W = _linear(D, H, dtype), _linear(H, H, dtype)

    def step(u, state):
        y, z, start = state
        force = torch.relu(W(torch.cat([y], 1) - 0.1 * z)) + V(u) + start
        z = z + 0.1 * (force - y)
        return y, (y + 0.1 * z, z, start)

    return Cell(step, [*V.parameters(), *W.parameters()], [H, H, H])


def normed_lstm(D: int, H: int, dtype: torch.dtype) -> Cell:
    V, W = _linear(D, 4 * H, dtype), _linear(H, 4 * H, dtype)
    norms = [nn.LayerNorm(n).to(dtype) for n in (4 * H, 4 * H, H)]

    def step(u, state):
        h, c = state
        i, f, g, o = (norms[0](V(u)) + norms[1](W(h))).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(norms[2](c) if H > 1 else c)
        return h, (h, c)

    scales = [p for norm in norms for p in norm.parameters()]
    return Cell(step, [*V.parameters(), *W.parameters(), *scales], [H, H])


def normed_sums(D: int, H: int, dtype: torch.dtype) -> Cell:
    """Norms of sums of products, vectors and a number, in groups; and of a sum with something else in it."""
    V, W = _linear(D, 2 * H, dtype), _linear(H, 2 * H, dtype, bias=False)
    gain, shift = nn.Parameter(torch.rand(2 * H, dtype=dtype)), nn.Parameter(torch.rand(1, dtype=dtype))

    def step(u, state):
        (h,) = state
        a, b = F.group_norm(V(u) + W(h) + shift, 2 if H > 1 else 1, gain).chunk(2, 1)
        h = torch.tanh(shift * a + b * F.layer_norm(V(u) + 0.5 * W(h), (2 * H,))[:, :H])
        return h, (h,)

    return Cell(step, [*V.parameters(), *W.parameters(), gain, shift], [H])


def slstm_with_heads(D: int, H: int, dtype: torch.dtype) -> Cell:
    """Each half of the units is a head, with products of its own, and is normed by itself."""
    V, widths = _linear(D, 4 * H, dtype), [len(x) for x in torch.arange(H).chunk(2)]
    R = [[nn.Parameter(0.3 * torch.randn(n, n, dtype=dtype)) for n in widths] for _ in range(4)]
    gain = nn.Parameter(torch.rand(H, dtype=dtype))

    def step(u, state):
        h, c, n, m = state
        heads = h.split(widths, 1)
        turned = [torch.cat([x @ r for x, r in zip(heads, gate, strict=True)], 1) for gate in R]
        z, i, f, o = (a + b for a, b in zip(V(u).chunk(4, 1), turned, strict=True))
        kept = m - F.softplus(-f)
        m = torch.maximum(kept, i)
        write, keep = torch.exp(i - m), torch.exp(kept - m)
        c, n = keep * c + write * torch.tanh(z), keep * n + write
        h = torch.sigmoid(o) * c / (n.abs() + 1)
        normed = F.group_norm(h, len(widths) if H % 2 == 0 else 1, gain) if H > 1 else gain * h
        return normed, (h, c, n, m)

    return Cell(step, [*V.parameters(), *(r for gate in R for r in gate), gain], [H] * 4)


def unitary(D: int, H: int, dtype: torch.dtype) -> Cell:
    """A permutation between two products by units, a roll, a flip, and units 0, 2, 4, ..."""
    V, W, order = _linear(D, H, dtype), _linear(H, H, dtype), torch.randperm(H)
    a, b = (nn.Parameter(torch.rand(H, dtype=dtype)) for _ in range(2))

    def step(u, state):
        (h,) = state
        h = torch.roll(b * (a * h)[:, order], 1, dims=1) + V(u) + 0.1 * W(h.flip(1))
        return torch.tanh(h)[:, ::2], (h / (1 + h.norm(dim=1, keepdim=True)),)

    return Cell(step, [*V.parameters(), *W.parameters(), a, b], [H])


def attention(D: int, H: int, dtype: torch.dtype) -> Cell:
    """Softmax, means, spreads and norms over units, and a mask of Booleans."""
    V, W = _linear(D, H, dtype), _linear(H, H, dtype)
    scale = nn.Parameter(torch.rand(H, dtype=dtype))

    def step(u, state):
        (h,) = state
        x = V(u) + W(h)
        x = torch.softmax(3 * x, 1) * x + F.normalize(x, dim=-1) + F.rms_norm(x, (H,), scale)
        x = x - 0.1 * x.mean(-1, keepdim=True) / (1 + x.std(1, keepdim=True, correction=0))
        x = torch.where(torch.arange(H) < H // 2, x, torch.log_softmax(x, -1) * 0.1)
        h = torch.tanh(x.sum(1, keepdim=True) * scale * 0.1 + x)
        return h, (h,)

    return Cell(step, [*V.parameters(), *W.parameters(), scale], [H])


def complex_diagonal(D: int, H: int, dtype: torch.dtype) -> Cell:
    """No product of a state but for the output."""
    V, C = _linear(D, 2 * H, dtype), _linear(2 * H, H + 1, dtype, False)
    a, b = (nn.Parameter(torch.rand(H, dtype=dtype) * 0.7) for _ in range(2))

    def step(u, state):
        (re, im), (push_re, push_im) = state, V(u).chunk(2, 1)
        re, im = a * re - b * im + push_re, b * re + a * im + push_im
        return C(torch.cat([re, im], 1)), (re, im)

    return Cell(step, [*V.parameters(), *C.parameters(), a, b], [H, H])


def odd_diagonal(D: int, H: int, dtype: torch.dtype) -> Cell:
    """Two products before all steps, two behind them, and states in every other role.

    One changes places with another, one comes from the input alone, one is passed on, one is wider.
    """
    V, A, E, R = (_linear(n, m, dtype) for n, m in ((D, H), (H, H), (2 * H, H), (H, H)))
    w, s = (nn.Parameter(torch.rand(H, dtype=dtype)) for _ in range(2))
    share = nn.Parameter(torch.tensor(0.4, dtype=dtype))

    def step(u, state):
        x, y, z, before, start, wide = state
        push = A(torch.tanh(V(u)))
        new = w * x - 0.1 * y + push * start
        z = torch.sin(z) * share + push * 0.3
        out = R(torch.tanh(E(torch.cat([new, y], 1)) * s) * z) + before * s
        return out, (y, new, z, push, start, wide * 0.9 + 1)

    leaves = [p for layer in (V, A, E, R) for p in layer.parameters()]
    return Cell(step, [*leaves, w, s, share], [H, H, H, H, H, 2 * H])


DIAGONAL = {f.__name__: f for f in (independent, complex_diagonal, odd_diagonal)}
CELLS = {
    f.__name__: f
    for f in (
        *(tanh, lstm, lstm_of_one_product, gru, lem, cornn, midpoint, independent, odd_operations, two_sizes),
        *(linear, oscillator, normed_lstm, normed_sums, slstm_with_heads, unitary, attention),
    )
}


def made(name, D, H, dtype=torch.float64):
    torch.manual_seed(0)
    return (CELLS | DIAGONAL)[name](D, H, dtype)


def given(cell, B, T, D, dtype=torch.float64):
    u = torch.randn(B, T, D, dtype=dtype, requires_grad=True)
    return u, tuple((0.5 * torch.randn(B, n, dtype=dtype)).requires_grad_() for n in cell.states)


def results(step, u, state, wrt, backend):
    """Outputs, last states, and the gradients of a weighted sum of both."""
    output, last = recurrence(step, u, state, backend=backend)
    weights = torch.Generator().manual_seed(1)
    total = sum(
        (x * torch.randn(x.shape, generator=weights, dtype=torch.float64).to(x.dtype)).sum()
        for x in (output, *last)
    )
    return [output, *last, *torch.autograd.grad(total, wrt, allow_unused=True)]


def distance(x, y):
    if x is None or y is None:
        return 0.0 if x is None and (y is None or not y.any()) else float("inf")
    x, y = x.detach(), y.detach()
    return float((x - y).norm() / (x.norm() + 1e-12))


FUNCTIONS = {
    **{
        name: getattr(torch, name)
        for name in ("sin", "cos", "erf", "exp", "log", "sqrt", "tanh", "sigmoid", "abs")
    },
    **{
        name: getattr(F, name)
        for name in ("softplus", "gelu", "silu", "elu", "hardsigmoid", "hardtanh", "relu")
    },
    "power": lambda x: x.abs() ** 1.7,
    "inverse": lambda x: x**-2,
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh"),
}


def of_each_function(x, names, backend="native"):
    """The functions of x (1, n), each as a state of one compiled step: one compilation for all."""

    def step(u, state):
        return u, tuple(FUNCTIONS[name](u) for name in names)

    states = tuple(torch.zeros_like(x) for _ in names)
    return dict(zip(names, recurrence(step, x[:, None], states, backend=backend)[1], strict=True))
