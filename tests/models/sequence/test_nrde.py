"""Log-signatures against iterated integrals, and neural RDEs and CDEs against loops and known solutions."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from drawn_layers import made, numbers
from refusals import refuses
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.log_signature import log_signature, lyndon_words
from physml.models.sequence.nrde import NeuralRDE

D, H = 2, 3


def iterated_integral(path: Tensor, word: tuple[int, ...]) -> Tensor:
    """Over all lines a <= b <= c of a path: where k integrals share one line they make 1 / k! of a cube."""
    v, total = path.diff(dim=0), torch.zeros((), dtype=torch.float64)
    for lines in itertools.combinations_with_replacement(range(len(v)), len(word)):
        share = math.prod(math.factorial(lines.count(line)) for line in set(lines))
        total = total + math.prod(v[line, i] for line, i in zip(lines, word, strict=True)) / share
    return total


def logarithm(path: Tensor, word: tuple[int, ...]) -> Tensor:
    """Of the signature, at one word: over all ways to cut the word in pieces, from log(1 + s)."""
    total = torch.zeros((), dtype=torch.float64)
    for n in range(1, len(word) + 1):
        for cuts in itertools.combinations(range(1, len(word)), n - 1):
            pieces = [word[a:b] for a, b in itertools.pairwise((0, *cuts, len(word)))]
            total = total + (-1) ** (n + 1) / n * math.prod(iterated_integral(path, p) for p in pieces)
    return total


@pytest.mark.parametrize(("depth", "channels"), [(1, 3), (2, 3), (3, 2)])
def test_it_is_the_logarithm_of_iterated_integrals(depth: int, channels: int):
    paths = numbers(2, 5, channels)
    words = lyndon_words(channels, depth)
    logarithms = torch.stack([torch.stack([logarithm(path, word) for word in words]) for path in paths])
    torch.testing.assert_close(log_signature(paths, depth), logarithms)


def test_lyndon_words_are_as_many_as_dimensions_and_integrals_of_a_known_path_as_known() -> None:
    # X = (t, t^2) in many lines: the area between it and its chord is 1/6, int t dt^2 is 2/3.
    t = torch.linspace(0, 1, 81, dtype=torch.float64)
    path = torch.stack([t, t**2], 1)
    assert abs(iterated_integral(path, (0, 1)) - 2 / 3) < 1e-4
    assert abs(log_signature(path, 2)[2] - 1 / 6) < 1e-4
    assert lyndon_words(2, 3) == [(0,), (1,), (0, 1), (0, 0, 1), (0, 1, 1)]
    for c in (1, 3, 7):
        of_length = [c, c * (c - 1) // 2, (c**3 - c) // 3]
        assert [len(lyndon_words(c, d)) for d in (1, 2, 3)] == np.cumsum(of_length).tolist()
    refuses(InputError, "N of 2 or more", log_signature, torch.zeros(1, 2), 2)
    refuses(InputError, "depth must be 1, 2 or 3", log_signature, torch.zeros(5, 2), 4)
    refuses(InputError, "depth must be 1, 2 or 3", NeuralRDE, D, H, depth=4)
    with pytest.raises(InputError, match="solver=torchcde is for depth 1 and windows of one line"):
        NeuralRDE(D, H, depth=2, window=1, solver="torchcde")


def field(layer: NeuralRDE, z: Tensor) -> Tensor:
    first, *inner, last = [part for part in layer.field if isinstance(part, nn.Linear)]
    x = first.weight @ z + first.bias
    for part in inner:
        x = part.weight @ torch.clamp(x, min=0) + part.bias
    return (last.weight @ torch.tanh(x) + last.bias).reshape(H, -1)


def loop(layer: NeuralRDE, u: Tensor) -> Tensor:
    """One sequence, window by window, with iterated integrals from their sums."""
    T = len(u)
    if layer.time:
        u = torch.cat([torch.arange(T).double()[:, None] / (T - 1), u], 1)
    z = layer.start.weight @ u[0] + layer.start.bias
    path = [z]
    for n in range(1, T):
        start = (n - 1) // layer.window * layer.window
        if n % layer.window == 0 or n == T - 1:
            words = lyndon_words(u.shape[1], layer.depth)
            log = torch.stack([logarithm(u[start : n + 1], word) for word in words])
            k1 = field(layer, z) @ log
            k2 = field(layer, z + k1 / 2) @ log
            k3 = field(layer, z + k2 / 2) @ log
            k4 = field(layer, z + k3) @ log
            z = z + k1 / 6 + k2 / 3 + k3 / 3 + k4 / 6
        path.append(z)
    return torch.stack(path)


LAYERS: dict[str, dict[str, Any]] = {
    "whole windows": {"depth": 2, "window": 3, "n_layers": 2},
    "a shorter window": {"depth": 3, "window": 4, "time": True},
    "one short window": {"depth": 2, "window": 20},
    "ncde": {"depth": 1, "window": 1, "n_layers": 3, "time": True},
}


def layer_of(name: str) -> NeuralRDE:
    return made(lambda: NeuralRDE(D, H, d_field=4, **LAYERS[name]))


@pytest.mark.parametrize("name", LAYERS)
def test_equals_a_loop_from_the_equations(name: str):
    layer, u = layer_of(name), numbers(2, 7, D).requires_grad_()
    wrt = [u, *layer.parameters()]
    path, (last,) = layer(u)
    expected = torch.stack([loop(layer, row) for row in u])
    torch.testing.assert_close(path, expected)
    assert torch.equal(last, path[:, -1])
    gradients, right = (torch.autograd.grad((x * numbers(*x.shape)).sum(), wrt) for x in (path, expected))
    for got, want in zip(gradients, right, strict=True):
        assert got.abs().sum() > 0
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize(
    "options",
    [{"solver": "torchcde", "depth": 1, "time": True}, {"depth": 2, "time": True}, {"depth": 2, "window": 3}],
    ids=str,
)
def test_a_shorter_sequence_stands_still_at_its_end(options: dict[str, Any], length: int):
    layer, u = made(lambda: NeuralRDE(D, H, d_field=4, **options)), numbers(2, 7, D)
    path, (last,) = layer(u, lengths=torch.tensor([length, 7]))
    alone, (end,) = layer(u[:1, :length], lengths=torch.tensor([length]))
    torch.testing.assert_close(path[0, length - 1 :], alone[0, -1:].expand(8 - length, -1))
    torch.testing.assert_close(last[:1], end)


def test_one_input_is_no_path():
    layer, u = layer_of("ncde"), numbers(2, 1, D)
    torch.testing.assert_close(layer(u)[0], layer.start(torch.cat([torch.zeros(2, 1, 1), u], 2)))
