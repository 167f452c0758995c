"""Layers against their authors' code: outputs and gradients at fixed weights, in tests/golden/official.json.

The file has numbers that the authors' code gave in float64, its place, commit and date, and no code. Weights,
inputs and the loss are the same formulas on both sides: entry i of the j-th array is 0.4 sin(1 + j + 0.7 i).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.diagonal_ssm import _MIMO
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.linoss import Oscillators
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.lru import _Unit
from physml.models.sequence.nrde import NeuralRDE
from physml.models.sequence.slstm import SLSTM
from physml.models.sequence.sru import SRU

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "official.json").read_text(encoding="utf-8"))
B, T = 2, 5  # axes of the input, with D features

# Layer -> how it is made, and D.
LAYERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "cornn": (lambda: CoRNN(2, 3, dt=0.3, gamma=2.0, epsilon=1.5), 2),
    "lem": (lambda: LEM(2, 3, dt=0.7), 2),
    "linoss_im": (lambda: Oscillators(3, 4, "im", None, 1.0, 0.9, 1.0), 3),
    "linoss_imex": (lambda: Oscillators(3, 4, "imex", None, 1.0, 0.9, 1.0), 3),
    "s5": (lambda: _MIMO(3, 2, None, 0.001, 0.1), 3),
    "lru": (lambda: _Unit(3, 4, 0.0, 0.99, 6.28), 3),
    "ncde": (
        lambda: NeuralRDE(2, 3, depth=1, window=1, d_field=4, n_layers=2, time=True, solver="torchcde"),
        2,
    ),
    "slstm": (lambda: SLSTM(2, 4, n_heads=2), 2),
    "sru": (lambda: SRU(3, 3, highway_bias=-1.0), 3),
    "lipschitz": (
        lambda: LipschitzRNN(2, 3, dt=0.3, beta_a=0.75, beta_w=0.75, gamma_a=0.1, gamma_w=0.2),
        2,
    ),
    "indrnn": (lambda: IndRNN(2, 3, n_layers=1), 2),
}


def numbers(j: int, shape: tuple[int, ...]) -> np.ndarray:
    return 0.4 * np.sin(1 + j + 0.7 * np.arange(int(np.prod(shape)))).reshape(shape)


def made(name: str) -> nn.Module:
    """The layer with its weights by the formula, in the order of their names."""
    layer = LAYERS[name][0]().double()
    with torch.no_grad():
        for j, (_, weight) in enumerate(sorted(layer.named_parameters())):
            weight.copy_(torch.from_numpy(numbers(j, tuple(weight.shape))))
    return layer


def output(name: str, layer: nn.Module, u: Tensor) -> Tensor:
    if hasattr(layer, "widths"):
        return layer(u, tuple(u.new_zeros(B, width) for width in layer.widths))[0]
    y = layer(u)[0]
    return y[:, -1] if name == "ncde" else y


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_its_authors_code_computes(name: str) -> None:
    layer, golden = made(name), GOLDEN[name]
    u = torch.from_numpy(numbers(-1, (B, T, LAYERS[name][1]))).requires_grad_()
    y = output(name, layer, u)
    wanted: dict[str, Any] = {"output": y.detach().numpy()}
    (y * torch.from_numpy(numbers(-2, tuple(y.shape)))).sum().backward()
    gradients = {"input": u.grad, **{n: p.grad for n, p in layer.named_parameters()}}
    wanted |= {n: g.numpy() for n, g in gradients.items() if g is not None}
    assert set(golden["numbers"]) == set(wanted)
    for what, found in wanted.items():
        np.testing.assert_allclose(found, golden["numbers"][what], rtol=0, atol=1e-12, err_msg=what)


def test_the_numbers_say_where_they_are_from() -> None:
    assert set(GOLDEN) == set(LAYERS)
    assert all({"source", "version", "date", "numbers"} == set(one) for one in GOLDEN.values())
