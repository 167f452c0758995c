"""Recurrent layers against loops over sequences and steps, a step being written from the equations.

Axes: B batch, T time, D features.
"""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawn_layers import leaves, like, numbers
from torch import Tensor, nn

State = tuple[Tensor, ...]
Step = Callable[
    ..., tuple[Tensor, State]
]  # of one sequence: (layer, x, *state) to the output and the new state


def lstm(
    s: dict[str, Tensor], x: Tensor, h: Tensor, c: Tensor, keep: float = 1.0, write: float = 1.0
) -> tuple[Tensor, State]:
    """The one that several layers have in them, by its symbols."""
    i, f, o = (torch.sigmoid(s["W" + k] @ h + s["V" + k] @ x + s["b" + k]) for k in "ifo")
    c = keep * f * c + write * i * torch.tanh(s["Wg"] @ h + s["Vg"] @ x + s["bg"])
    h = o * torch.tanh(c)
    return h, (h, c)


def tanh(layer: nn.Module, x: Tensor, h: Tensor) -> tuple[Tensor, State]:
    s = layer.symbols()
    return (h := torch.tanh(s["W"] @ h + s["V"] @ x + s["b"])), (h,)


def loop(step: Callable[..., tuple[Tensor, State]], u: Tensor, state: Any) -> list[Tensor]:
    """The path and the parts of the last state, each sequence by itself, each step by itself."""
    rows = []
    for k in range(len(u)):
        now, path = tuple(x[k] for x in leaves(state)), []
        for x in u[k]:
            out, now = step(x, *now)
            path.append(out)
        rows.append((torch.stack(path), *now))
    return [torch.stack(x) for x in zip(*rows, strict=True)]


def some_state(layer: nn.Module, B: int = 2) -> Any:
    """One that the layer comes to, so that its parts fit each other."""
    with torch.no_grad():
        return layer(numbers(B, 3, layer.d_in, seed=5))[1]


def slopes(results: list[Tensor], wrt: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a number that depends on all results."""
    aim = torch.stack([(x * numbers(*x.shape, seed=9 + k)).sum() for k, x in enumerate(results)]).sum()
    return torch.autograd.grad(aim, wrt)


def same(actual: list[Tensor], expected: list[Tensor], wrt: list[Tensor], rtol: float = 1e-10) -> None:
    """Values, and gradients, none of which is zero."""
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)
    for got, want in zip(slopes(actual, wrt), slopes(expected, wrt), strict=True):
        assert got.abs().sum() > 0
        torch.testing.assert_close(got, want, rtol=rtol, atol=1e-12)


def follows(
    layer: nn.Module, step: Step, u: Tensor | None = None, *, but: tuple[str, ...] = (), rtol: float = 1e-10
) -> None:
    """Values, and gradients by input, first state and every weight but some, are those of the loop.

    Args:
        layer: in double precision.
        step: one step of it.
        u: (B, T, D), the input; if None, two sequences of seven steps.
        but: names of weights that play no part.
        rtol: the most that gradients may differ.
    """
    u = (2 * numbers(2, 7, layer.d_in) if u is None else u).requires_grad_()
    nested = some_state(layer, len(u))
    state = [x.detach().clone().requires_grad_() for x in leaves(nested)]
    wrt = [u, *state, *(p for name, p in layer.named_parameters() if name not in but)]
    path, last = layer(u, like(nested, iter(state)))
    same([path, *leaves(last)], loop(functools.partial(step, layer), u, state), wrt, rtol)


def blocks_join(layer: nn.Module, u: Tensor, smaller: Callable[[], None]) -> None:
    """After `smaller` has set the size of blocks of steps, outputs and gradients are as before."""
    wrt = [x.requires_grad_() for x in (u, *some_state(layer, len(u)))] + list(layer.parameters())

    def found() -> list[Tensor]:
        with torch.no_grad():
            plain = layer(wrt[0], (wrt[1], wrt[2]))[0]
        (path, last), (_, end) = (layer(wrt[0], (wrt[1], wrt[2])) for _ in range(2))
        return [plain, *slopes([path, *last], wrt), *slopes(list(end), wrt)]

    whole = found()
    smaller()
    parts = found()
    torch.testing.assert_close(parts[0], whole[0], rtol=0, atol=1e-14)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-13)


def first_order(error: Callable[[int], float], n_steps: int, rel: float) -> None:
    """Half the step has half the error, and a quarter of it half of that."""
    errors = [error(k * n_steps) for k in (1, 2, 4)]
    assert errors[0] / errors[1] == pytest.approx(2, rel=rel)
    assert errors[1] / errors[2] == pytest.approx(2, rel=rel)
