"""Cells to try the compiler on: as many kinds of steps as papers have; and all functions that it knows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.ops.cell import recurrence


@dataclass
class Cell:
    """A step and its parameters; `states`: how many units each state has, for H units."""

    step: Callable[..., Any]
    parameters: list[Tensor]
    states: list[int]


KINDS: dict[str, Callable[..., Any]] = {
    "": nn.Linear,
    "bare": partial(nn.Linear, bias=False),
    "norm": nn.LayerNorm,
    "heads": lambda n: nn.ParameterList(
        0.3 * torch.randn(len(x), len(x)) for _ in range(4) for x in torch.arange(n).chunk(2)
    ),
    "matrix": lambda n: 0.3 * torch.randn(n, n),
    "units": lambda n: 0.7 * torch.rand(n),
    "number": torch.tensor,
    "order": torch.randperm,
}
CELLS: dict[str, Callable[..., Cell]] = {}
DIAGONAL: dict[str, Callable[..., Cell]] = {}


def cell(states: str, weights: str, of: dict[str, Callable[..., Cell]] = CELLS) -> Callable[..., Any]:
    """Makes a cell of a step (u, *states, *weights) by the sizes of both; `D>4*H:bare` is one of KINDS."""

    def decorate(step: Callable[..., Any]) -> Callable[..., Any]:
        def make(D: int, H: int, dtype: torch.dtype) -> Cell:
            operands: list[Any] = []
            for word in weights.split():
                sizes, _, kind = word.partition(":")
                x = KINDS[kind](*(eval(n, {"D": D, "H": H}) for n in sizes.split(">")))
                if isinstance(x, nn.Module):
                    operands.append(x.to(dtype))
                else:
                    operands.append(nn.Parameter(x.to(dtype)) if x.is_floating_point() else x)
            parameters = [p for x in operands for p in (x.parameters() if isinstance(x, nn.Module) else [x])]
            return Cell(
                lambda u, state: step(u, *state, *operands),
                [p for p in parameters if p.requires_grad],
                [eval(n, {"H": H}) for n in states.split()],
            )

        of[step.__name__] = make
        return step

    return decorate


@cell("H", "D>H H>H")
def tanh(u, h, V, W):
    h = torch.tanh(V(u) + W(h))
    return h, (h,)


@cell("H H", "D>4*H H>4*H")
def lstm(u, h, c, V, W):
    i, f, g, o = (V(u) + W(h)).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c)


@cell("H H", "D+H>4*H")
def lstm_of_one_product(u, h, c, W):
    H = h.shape[1]
    gates = F.linear(torch.cat([u, h], 1), W.weight, W.bias)
    i, f, o = gates[:, : 3 * H].sigmoid().split(H, 1)
    c = torch.addcmul(f * c, i, gates[:, 3 * H :].tanh())
    return o * c.tanh(), (o * c.tanh(), c)


@cell("H", "D>3*H H>3*H")
def gru(u, h, V, W):
    (a, b, c), (d, e, f) = V(u).chunk(3, 1), W(h).chunk(3, 1)
    r, z = torch.sigmoid(a + d), torch.sigmoid(b + e)
    h = torch.lerp(torch.tanh(c + r * f), h, z)
    return h, (h,)


@cell("H H", "D>4*H H>3*H:bare H>H:bare")
def lem(u, y, z, V, W, Wy):
    (Vz, V1, V2, Vy), (Az, A1, A2) = V(u).chunk(4, 1), W(y).chunk(3, 1)
    step_z = (0.3 * torch.sigmoid(A1 + V1)).clamp(0.05, 0.25)
    step_y = 0.3 * torch.sigmoid(A2 + V2)
    z = (1 - step_z) * z + step_z * torch.tanh(Az + Vz)
    y = (1 - step_y) * y + step_y * torch.tanh(Wy(z) + Vy)
    return y, (y, z)


@cell("H H", "D>H H>H:bare H>H:bare 2.7:number")
def cornn(u, y, z, V, W, Z, gamma):
    z = z + 0.1 * (torch.tanh(W(y) + Z(z) + V(u)) - gamma * y - 4.7 * z)
    y = y + 0.1 * z
    return y, (y, z)


@cell("H", "D>H H:matrix H:matrix")
def midpoint(u, h, U, A, W):
    """Two products after each other, of matrices that are computed from parameters."""
    skew, push = A - A.t() - 0.1 * torch.eye(len(A), dtype=A.dtype), U(u)
    half = h + 0.05 * (h @ skew.t() + torch.tanh(h @ W.t() + push))
    h = h + 0.1 * (half @ skew.t() + torch.tanh(torch.addmm(push, half, W.t())))
    return h, (h,)


def independent(u, h, V, w, share):
    """Numbers per unit, a learned number, and no product of the state."""
    h = torch.addcmul(V(u), h, w).relu() * torch.sigmoid(share) + 0.1 * F.softplus(h)
    return h - share, (h,)


for group in (CELLS, DIAGONAL):
    cell("H", "D>H H:units 0.4:number", group)(independent)


@cell("H H", "D>H H>H H>H")
def odd_operations(u, h, c, V, W, E):
    """What is rare: quotients, waves, powers, comparisons, all activations."""
    a = V(u) + W(h)
    b = torch.where(a > 0.1, F.elu(a), torch.sin(a) + torch.cos(c)) / (1.5 + h.square())
    b = b + F.silu(a) * 0.2 + F.gelu(h) * 0.1 + F.leaky_relu(a - c, 0.2) * 0.1 + (c**3) * 0.01
    c = torch.exp(-c.abs()) - torch.log(1 + b**2) + torch.sqrt(1 + a * a).reciprocal()
    h = torch.maximum(torch.tanh(E(b)), 0.3 * c) - F.hardtanh(b, -0.5, 0.5) * 0.1
    return torch.minimum(h, c) + torch.clamp(a, max=0.7), (h, c.detach() * 0.1 + 0.4 * c)


@cell("H 2*H+1", "D>H 2*H+1>H 3*H+1>2*H+1")
def two_sizes(u, h, m, V, W, M):
    """States of different sizes; the larger one is memory that is read by a product."""
    h = torch.tanh(V(u) + W(m))
    m = 0.5 * m + 0.5 * torch.tanh(M(torch.cat([h, m], 1)))
    return m, (h, m)


@cell("H", "D>H H>H")
def linear(u, h, V, W):
    """No elementwise operation at all."""
    h = V(u) + 0.5 * W(h)
    return h, (h,)


@cell("H H H", "D>H H>H")
def oscillator(u, y, z, start, V, W):
    """The old velocity enters a product, and a state is passed on that nothing changes."""
    z = z + 0.1 * (torch.relu(W(torch.cat([y], 1) - 0.1 * z)) + V(u) + start - y)
    return y, (y + 0.1 * z, z, start)


@cell("H H", "D>4*H H>4*H 4*H:norm 4*H:norm H:norm")
def normed_lstm(u, h, c, V, W, norm_u, norm_h, norm_c):
    i, f, g, o = (norm_u(V(u)) + norm_h(W(h))).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(norm_c(c) if c.shape[1] > 1 else c)
    return h, (h, c)


@cell("H", "D>2*H H>2*H:bare 2*H:units 1:units")
def normed_sums(u, h, V, W, gain, shift):
    """Norms of sums of products, vectors and a number, in groups; and of a sum with something else in it."""
    H = h.shape[1]
    a, b = F.group_norm(V(u) + W(h) + shift, 2 if H > 1 else 1, gain).chunk(2, 1)
    h = torch.tanh(shift * a + b * F.layer_norm(V(u) + 0.5 * W(h), (2 * H,))[:, :H])
    return h, (h,)


@cell("H H H H", "D>4*H H:heads H:units")
def slstm_with_heads(u, h, c, n, m, V, R, gain):
    """Each half of the units is a head, with products of its own, and is normed by itself."""
    H, of_heads = h.shape[1], len(R) // 4
    heads = h.split([len(r) for r in R[:of_heads]], 1)
    gates = (R[k : k + of_heads] for k in range(0, len(R), of_heads))
    turned = [torch.cat([x @ r for x, r in zip(heads, gate, strict=True)], 1) for gate in gates]
    z, i, f, o = (a + b for a, b in zip(V(u).chunk(4, 1), turned, strict=True))
    kept = m - F.softplus(-f)
    m = torch.maximum(kept, i)
    write, keep = torch.exp(i - m), torch.exp(kept - m)
    c, n = keep * c + write * torch.tanh(z), keep * n + write
    h = torch.sigmoid(o) * c / (n.abs() + 1)
    return F.group_norm(h, 2 if H % 2 == 0 else 1, gain) if H > 1 else gain * h, (h, c, n, m)


@cell("H", "D>H H>H H:units H:units H:order")
def unitary(u, h, V, W, a, b, order):
    """A permutation between two products by units, a roll, a flip, and units 0, 2, 4, ..."""
    h = torch.roll(b * (a * h)[:, order], 1, dims=1) + V(u) + 0.1 * W(h.flip(1))
    return torch.tanh(h)[:, ::2], (h / (1 + h.norm(dim=1, keepdim=True)),)


@cell("H", "D>H H>H H:units")
def attention(u, h, V, W, scale):
    """Softmax, means, spreads and norms over units, and a mask of Booleans."""
    x, H = V(u) + W(h), len(scale)
    x = torch.softmax(3 * x, 1) * x + F.normalize(x, dim=-1) + F.rms_norm(x, (H,), scale)
    x = x - 0.1 * x.mean(-1, keepdim=True) / (1 + x.std(1, keepdim=True, correction=0))
    x = torch.where(torch.arange(H) < H // 2, x, torch.log_softmax(x, -1) * 0.1)
    h = torch.tanh(x.sum(1, keepdim=True) * scale * 0.1 + x)
    return h, (h,)


@cell("H H", "D>2*H 2*H>H+1:bare H:units H:units", DIAGONAL)
def complex_diagonal(u, re, im, V, C, a, b):
    """No product of a state but for the output."""
    push_re, push_im = V(u).chunk(2, 1)
    re, im = a * re - b * im + push_re, b * re + a * im + push_im
    return C(torch.cat([re, im], 1)), (re, im)


@cell("H H H H H 2*H", "D>H H>H 2*H>H H>H H:units H:units 0.4:number", DIAGONAL)
def odd_diagonal(u, x, y, z, before, start, wide, V, A, E, R, w, s, share):
    """Two products before all steps, two behind them, and states in every other role.

    One changes places with another, one comes from the input alone, one is passed on, one is wider.
    """
    push = A(torch.tanh(V(u)))
    new = w * x - 0.1 * y + push * start
    z = torch.sin(z) * share + push * 0.3
    out = R(torch.tanh(E(torch.cat([new, y], 1)) * s) * z) + before * s
    return out, (y, new, z, push, start, wide * 0.9 + 1)


def made(name, D, H, dtype=torch.float64):
    torch.manual_seed(0)
    return (CELLS | DIAGONAL)[name](D, H, dtype)


def pair(name, D, H, dtype=torch.float32):
    """A cell of this dtype, and in float64 with the same weights."""
    rounded, exact = made(name, D, H, dtype), made(name, D, H)
    for x, y in zip(exact.parameters, rounded.parameters, strict=True):
        x.data.copy_(y)
    return rounded, exact


def given(cell, B, T, D, dtype=torch.float64):
    u = torch.randn(B, T, D, dtype=dtype, requires_grad=True)
    return u, tuple((0.5 * torch.randn(B, n, dtype=dtype)).requires_grad_() for n in cell.states)


def double(*tensors):
    return [x.detach().double().requires_grad_() for x in tensors]


def results(step, u, state, wrt, backend):
    """Outputs, last states, and the gradients of a weighted sum of both."""
    output, last = recurrence(step, u, state, backend=backend)
    weights = torch.Generator().manual_seed(1)
    total = sum(
        (x * torch.randn(x.shape, generator=weights, dtype=torch.float64).to(x.dtype)).sum()
        for x in (output, *last)
    )
    return [output, *last, *torch.autograd.grad(total, wrt, allow_unused=True)]


def compare(rounded, exact, u, state, backend, tolerance):
    """Results of a backend against those of the loop in float64; returns the former."""
    computed = results(rounded.step, u, state, [*rounded.parameters, *state, u], backend)
    u, *state = double(u, *state)
    expected = results(exact.step, u, tuple(state), [*exact.parameters, *state, u], "reference")
    near(computed, expected, tolerance)
    return computed


def distance(x, y):
    if x is None or y is None:
        return 0.0 if x is None and (y is None or not y.any()) else float("inf")
    x, y = x.detach().double(), y.detach().double()
    return float((x - y).norm() / (x.norm() + 1e-12))


def near(values, expected, tolerance):
    for x, y in zip(expected, values, strict=True):
        assert distance(x, y) < tolerance


OF_TORCH = ("sin", "cos", "erf", "exp", "log", "sqrt", "tanh", "sigmoid", "abs")
OF_NN = ("softplus", "gelu", "silu", "elu", "hardsigmoid", "hardtanh", "relu")
FUNCTIONS = {
    **{name: getattr(torch, name) for name in OF_TORCH},
    **{name: getattr(F, name) for name in OF_NN},
    "power": lambda x: x.abs() ** 1.7,
    "inverse": lambda x: x**-2,
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh"),
}
OF_POSITIVE = ("log", "sqrt", "power", "inverse")


def of_each_function(x, names, backend="native"):
    """The functions of x (1, n), each as a state of one compiled step: one compilation for all."""

    def step(u, state):
        return u, tuple(FUNCTIONS[name](u) for name in names)

    states = tuple(torch.zeros_like(x) for _ in names)
    return dict(zip(names, recurrence(step, x[:, None], states, backend=backend)[1], strict=True))


def errors_of_functions(positive, n, dtype, backend):
    """Of each function and its slope at n numbers the largest error, relative to what is above 1."""
    x = torch.linspace(0.01 if positive else -20, 20, n)[None].to(dtype).requires_grad_()
    names = [name for name in FUNCTIONS if (name in OF_POSITIVE) == positive]
    errors = {}
    for name, y in of_each_function(x, names, backend).items():
        (exact,) = double(x)
        expected = FUNCTIONS[name](exact)
        (slope,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        exactly = torch.cat([expected, *torch.autograd.grad(expected.sum(), exact)])
        errors[name] = ((torch.cat([y, slope]).double() - exactly).abs() / (1 + exactly.abs())).max()
    return errors


def with_masks(backend, W, V, mask, u, noise):
    """Outputs and gradients of a step of several inputs, parts of one, and a mask."""

    def step(inputs, state):
        u, noise = inputs
        h = F.linear(state[0] * mask, W) + F.linear(u[:, :3], V)
        h = torch.tanh(h) + u[..., 3:] * noise + 0.1 * mask
        return h, (h,)

    output, _ = recurrence(step, (u, noise), (torch.zeros_like(mask),), backend=backend)
    return output, *torch.autograd.grad(output.square().sum(), [W, V, mask, u, noise])


def masks(dtype, B=3, T=4, H=5):
    torch.manual_seed(0)
    shapes = [(H, H), (H, 3), (B, H), (B, T, H + 3), (B, T, H)]
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]
