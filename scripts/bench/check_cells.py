"""Cells that `check_backends` compiles. Axes: B batch, T time, D features, H hidden units.

A step here is `step(weights, u, state)`; its weights are drawn in the shapes listed.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from scripts.bench.workloads import Workload

Weights = dict[str, Tensor]
State = tuple[Tensor, ...]


def lstm(w: Weights, u: Tensor, state: State) -> tuple[Tensor, State]:
    h, c = state
    i, f, g, o = (F.linear(u, w["V"], w["b"]) + F.linear(h, w["W"])).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, (h, c)


def lem(w: Weights, u: Tensor, state: State) -> tuple[Tensor, State]:
    """One step of LEM, to compare with `physml.ops.lem`, whose kernels are written by hand."""
    y, z = state
    v, a = F.linear(u, w["V"], w["b"]).chunk(4, 1), F.linear(y, w["W"]).chunk(3, 1)
    step_z, step_y = (0.3 * torch.sigmoid(v[k] + a[k]) for k in (1, 2))
    z = torch.lerp(z, torch.tanh(v[0] + a[0]), step_z)
    y = torch.lerp(y, torch.tanh(v[3] + F.linear(z, w["Wy"])), step_y)
    return y, (y, z)


def midpoint(w: Weights, u: Tensor, state: State) -> tuple[Tensor, State]:
    """h' = tanh(W h + V u + b) - s h by the midpoint rule: two products after each other."""
    (h,) = state
    push = F.linear(u, w["V"], w["b"])
    half = h + 0.05 * (torch.tanh(F.linear(h, w["W"]) + push) - w["s"] * h)
    h = h + 0.1 * (torch.tanh(F.linear(half, w["W"]) + push) - w["s"] * half)
    return h, (h,)


def diagonal(w: Weights, u: Tensor, state: State) -> tuple[Tensor, State]:
    """A linear recurrence in complex numbers: products come before and behind all steps."""
    (re, im), (push_re, push_im) = state, F.linear(u, w["V"]).chunk(2, 1)
    re, im = w["a"] * re - w["b"] * im + push_re, w["b"] * re + w["a"] * im + push_im
    return F.linear(torch.cat([re, im], 1), torch.cat([w["C"], w["E"]], 1)), (re, im)


# The weights of each cell, (rows / H, columns), none for a vector, and how many states it has.
SHAPES: dict[str, tuple[dict[str, tuple[int, str]], int]] = {
    "lstm": ({"V": (4, "D"), "W": (4, "H"), "b": (4, "")}, 2),
    "lem": ({"V": (4, "D"), "W": (3, "H"), "Wy": (1, "H"), "b": (4, "")}, 2),
    "midpoint": ({"V": (1, "D"), "W": (1, "H"), "b": (1, ""), "s": (1, "")}, 1),
    "diagonal": ({"V": (2, "D"), "C": (1, "H"), "E": (1, "H"), "a": (1, ""), "b": (1, "")}, 2),
}
CELLS = tuple(
    Workload(
        f"cell-{step.__name__}", f"compiled {step.__name__}", "cell", 200, 60, 3, 96, settings={"step": step}
    )
    for step in (lstm, lem, midpoint, diagonal)
)


def draw(cell: Workload, rng: torch.Generator) -> dict[str, Tensor]:
    """Input, states and weights, these uniform in [-H^(-1/2), H^(-1/2)]."""
    shapes, n_states = SHAPES[cell.settings["step"].__name__]
    tensors = {"u": torch.randn(cell.B, cell.T, cell.D, generator=rng)}
    for k in range(n_states):
        tensors[f"state{k}"] = torch.randn(cell.B, cell.H, generator=rng) / 2
    for name, (rows, columns) in shapes.items():
        size = [rows * cell.H, *(cell.sizes[x] for x in columns)]
        tensors[name] = (2 * torch.rand(size, generator=rng) - 1) * cell.H**-0.5
    return tensors
