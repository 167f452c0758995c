"""Compiled cells against loops, kernels by hand, torch's own layers and JAX: `make bench-cells`.

Each cell is one step, written once for torch and JAX. Timed are forward and backward of one batch, float32,
one thread, in rounds. Axes: B batch, T time, D features, H hidden units.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from physml.base import files
from physml.base.errors import InputError
from physml.base.paths import display_path
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.ops.cell import recurrence
from scripts.bench import store
from scripts.bench.in_jax import one_thread
from scripts.bench.rounds import Call, interleave

Weights = dict[str, Any]
SIZES = ((1000, 32, 2, 16), (784, 128, 1, 128), (17984, 8, 6, 32))  # T, B, D, H
VARIANTS = ("loop", "compiled", "by hand", "torch", "jax")

NOTE = """Forward and backward of one batch, float32, one thread: processor milliseconds of the compiled
cell, and times of the others relative to it. *loop*: the same step in a loop of torch. *by hand*: the kernels
of LEM and coRNN. *torch*: its own layers. *jax*: the same step in a compiled `lax.scan`."""


@dataclass(frozen=True)
class Cell:
    """A step of a cell.

    Args:
        step: `step(x, w, u, state)` -> the new states, of which the first is the output; x has the functions.
        shapes: of the weights, by name, from D and H; products are `u @ w`.
        n_states: how many, each (B, H).
        other: the same layer by another author, from D and H: "by hand" or "torch", and how to make it.
    """

    step: Callable[..., tuple[Any, ...]]
    shapes: Callable[[int, int], dict[str, tuple[int, ...]]]
    n_states: int
    other: tuple[str, Callable[[int, int], nn.Module]] | None = None


def _gates(n: int) -> Callable[[int, int], dict[str, tuple[int, ...]]]:
    return lambda D, H: {"V": (D, n * H), "W": (H, n * H), "b": (n * H,)}


def _parts(x: Any, n: int) -> list[Any]:
    size = x.shape[1] // n
    return [x[:, k * size : (k + 1) * size] for k in range(n)]


def _tanh(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    return (x.tanh(u @ w["V"] + state[0] @ w["W"] + w["b"]),)


def _lstm(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    h, c = state
    i, f, g, o = _parts(u @ w["V"] + h @ w["W"] + w["b"], 4)
    c = x.sigmoid(f) * c + x.sigmoid(i) * x.tanh(g)
    return x.sigmoid(o) * x.tanh(c), c


def _gru(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    (h,) = state
    (Vr, Vz, Vk), (Wr, Wz, Wk) = _parts(u @ w["V"] + w["b"], 3), _parts(h @ w["W"] + w["c"], 3)
    z, k = x.sigmoid(Vz + Wz), x.tanh(Vk + x.sigmoid(Vr + Wr) * Wk)
    return ((1 - z) * k + z * h,)


def _lem(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    y, z = state
    (Vz, V1, V2, Vy), (Az, A1, A2) = _parts(u @ w["V"] + w["b"], 4), _parts(y @ w["W"], 3)
    step_z, step_y = 0.7 * x.sigmoid(A1 + V1), 0.7 * x.sigmoid(A2 + V2)
    z = (1 - step_z) * z + step_z * x.tanh(Az + Vz)
    return (1 - step_y) * y + step_y * x.tanh(z @ w["Wy"] + Vy), z


def _cornn(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    y, z = state
    z = z + 0.05 * (x.tanh(y @ w["W"] + z @ w["Z"] + u @ w["V"] + w["b"]) - 2.7 * y - 4.7 * z)
    return y + 0.05 * z, z


def _lipschitz(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    (h,), push = state, u @ w["V"] + w["b"]
    return (h + 0.03 * (h @ w["A"] + x.tanh(h @ w["W"] + push)),)


def _midpoint(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    (h,), push = state, u @ w["V"] + w["b"]
    half = h + 0.015 * (h @ w["A"] + x.tanh(h @ w["W"] + push))
    return (h + 0.03 * (half @ w["A"] + x.tanh(half @ w["W"] + push)),)


def _antisymmetric(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    (h,) = state
    turned, (z, p) = h @ w["W"], _parts(u @ w["V"] + w["b"], 2)
    return (h + 0.01 * x.sigmoid(turned + z) * x.tanh(turned + p),)


def _fastgrnn(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    (h,) = state
    push = u @ w["V"] + h @ w["W"]
    g, c = x.sigmoid(push + w["b"]), x.tanh(push + w["c"])
    return (g * h + (0.7 * (1 - g) + 0.02) * c,)


def _indrnn(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    return (x.relu(u @ w["V"] + w["b"] + w["w"] * state[0]),)


def _modrelu(x: Any, w: Weights, u: Any, state: Any) -> tuple[Any, ...]:
    p = state[0] @ w["W"] + u @ w["V"]
    return (x.sign(p) * x.relu(abs(p) + w["b"]),)


def _with(gates: int, **more: Callable[[int], tuple[int, ...]]) -> Callable[[int, int], dict[str, Any]]:
    return lambda D, H: {**_gates(gates)(D, H), **{name: shape(H) for name, shape in more.items()}}


def _square(H: int) -> tuple[int, int]:
    return (H, H)


def _torch(kind: Callable[..., nn.Module]) -> tuple[str, Callable[[int, int], nn.Module]]:
    return "torch", lambda D, H: kind(D, H, batch_first=True)


CELLS = {
    "tanh": Cell(_tanh, _gates(1), 1, _torch(nn.RNN)),
    "LSTM": Cell(_lstm, _gates(4), 2, _torch(nn.LSTM)),
    "GRU": Cell(_gru, _with(3, c=lambda H: (3 * H,)), 1, _torch(nn.GRU)),
    "LEM": Cell(
        _lem,
        lambda D, H: {"V": (D, 4 * H), "b": (4 * H,), "W": (H, 3 * H), "Wy": (H, H)},
        2,
        ("by hand", lambda D, H: LEM(D, H, dt=0.7, backend="native")),
    ),
    "coRNN": Cell(
        _cornn,
        _with(1, Z=_square),
        2,
        ("by hand", lambda D, H: CoRNN(D, H, dt=0.05, gamma=2.7, epsilon=4.7, backend="native")),
    ),
    "Lipschitz": Cell(_lipschitz, _with(1, A=_square), 1),
    "Lipschitz RK2": Cell(_midpoint, _with(1, A=_square), 1),
    "antisymmetric, gated": Cell(
        _antisymmetric, lambda D, H: {"V": (D, 2 * H), "b": (2 * H,), "W": (H, H)}, 1
    ),
    "FastGRNN": Cell(_fastgrnn, _with(1, c=lambda H: (H,)), 1),
    "IndRNN": Cell(_indrnn, lambda D, H: {"V": (D, H), "b": (H,), "w": (H,)}, 1),
    "modReLU": Cell(_modrelu, _gates(1), 1),
}


class TorchStep:
    """Forward and backward of one batch by torch, in a loop or compiled."""

    def __init__(self, cell: Cell, weights: dict[str, Tensor], u: Tensor, backend: str) -> None:
        self.cell, self.u, self.backend = cell, u, backend
        self.weights = {name: w.clone().requires_grad_() for name, w in weights.items()}
        H = weights["b"].shape[0] if "w" in weights else weights["W"].shape[0]
        self.state = tuple(u.new_zeros(len(u), H) for _ in range(cell.n_states))

    def __call__(self) -> list[Tensor]:
        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
            new = self.cell.step(torch, self.weights, u, state)
            return new[0], new

        outputs, _ = recurrence(step, self.u, self.state, backend=self.backend)
        return list(torch.autograd.grad(outputs, list(self.weights.values()), torch.ones_like(outputs)))


class LayerStep:
    """The same of a layer."""

    def __init__(self, layer: nn.Module, u: Tensor) -> None:
        self.layer, self.u = layer, u

    def __call__(self) -> None:
        outputs = self.layer(self.u)[0]
        torch.autograd.grad(outputs, list(self.layer.parameters()), torch.ones_like(outputs))


class JaxStep:
    """The same in JAX, as a compiled scan."""

    def __init__(self, cell: Cell, weights: dict[str, Tensor], u: Tensor) -> None:
        jax = one_thread()
        x = SimpleNamespace(
            tanh=jax.numpy.tanh, sigmoid=jax.nn.sigmoid, relu=jax.nn.relu, sign=jax.numpy.sign
        )
        H = TorchStep(cell, weights, u, "reference").state[0].shape[1]
        state = tuple(jax.numpy.zeros((len(u), H)) for _ in range(cell.n_states))

        def run(w: Weights, u: Any) -> Any:
            def advance(state: Any, u: Any) -> Any:
                new = cell.step(x, w, u, state)
                return new, new[0]

            return jax.lax.scan(advance, state, u)[1]

        def both(w: Weights, u: Any) -> Any:
            outputs, backward = jax.vjp(lambda w: run(w, u), w)
            return backward(jax.numpy.ones_like(outputs))[0]

        inputs = ({n: p.numpy() for n, p in weights.items()}, u.transpose(0, 1).contiguous().numpy())
        self.inputs = jax.device_put(inputs)
        self.compiled, self.wait = jax.jit(both).lower(*self.inputs).compile(), jax.block_until_ready

    def __call__(self) -> Any:
        return self.wait(self.compiled(*self.inputs))


def steps_of(name: str, size: Sequence[int], variants: Sequence[str]) -> dict[str, Call]:
    """The variants of a cell that there are, for one batch of a size (T, B, D, H)."""
    cell, (T, B, D, H) = CELLS[name], size
    torch.manual_seed(0)
    shapes = cell.shapes(D, H)
    weights = {n: torch.randn(shape) / max(shape[0], 2) ** 0.5 / 2 for n, shape in shapes.items()}
    u = torch.randn(B, T, D)
    calls: dict[str, Call] = {}
    for variant in variants:
        if variant in ("loop", "compiled"):
            backend = "reference" if variant == "loop" else "native"
            calls[variant] = TorchStep(cell, weights, u, backend)
        elif variant == "jax":
            try:
                calls[variant] = JaxStep(cell, weights, u)
            except InputError as error:
                print(f"jax: {error}")
        elif cell.other is not None and cell.other[0] == variant:
            calls[variant] = LayerStep(cell.other[1](D, H), u)
    return calls


def table(cells: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Milliseconds of the compiled cell, and times of the others relative to it."""
    lines = [
        "| cell, T, B, D, H | compiled, ms | " + " | ".join(v for v in VARIANTS if v != "compiled") + " |"
    ]
    lines.append("|" + "---|" * (len(VARIANTS) + 1))
    for title, facts in cells.items():
        own = facts["compiled"]["ms"]
        times = [facts.get(v, {}).get("ms") for v in VARIANTS if v != "compiled"]
        others = ["" if ms is None else f"{ms / own:.2f}" for ms in times]
        lines.append(f"| {title} | {own:.3g} | " + " | ".join(others) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.cells", description=__doc__)
    parser.add_argument("--cell", choices=CELLS, action="append", help="only this cell; may be repeated")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for one cell at one size")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing written")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sizes = ((20, 3, 2, 4),) if options.quick else SIZES
    moment, cells = store.moment("cpu", 1), {}
    for size in sizes:
        for name in options.cell or CELLS:
            variants = [v for v in options.variants.split(",") if v != "loop" or size[0] <= 1000]
            title = f"{name}, {', '.join(map(str, size))}"
            cells[title] = interleave(steps_of(name, size, variants), options.rounds, options.budget)
            print(table({title: cells[title]}).splitlines()[-1], flush=True)
    print(table(cells))
    if not options.quick and not options.cell:
        write(cells, moment)


def write(cells: dict[str, dict[str, dict[str, Any]]], moment: dict[str, Any]) -> None:
    facts = store.machine("cpu")
    path = store.path_of(f"cells-{store.machine_class(facts)}")
    files.write_json(path, {"machine": facts, **moment, "load_after": store.load(), "cells": cells})
    files.write_text(path.with_suffix(".md"), f"# Compiled cells\n\n{NOTE}\n\n{table(cells)}\n")
    print(f"written: {display_path(path)}")


if __name__ == "__main__":
    main()
