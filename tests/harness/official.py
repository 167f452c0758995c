"""Layers against numbers that their authors' code gave, in tests/golden/official.json.

An entry has no code, but its place, its commit or release (`version`), the date of that (`date`, where it is
known) and the day on which it was run (`made`): output and gradients in float64 at weights, inputs and a
loss that are the same formulas on both sides, entry i of the j-th array 0.4 sin(1 + j + 0.7 i), and quantiles
of the initial law of each weight. `deviation` says which of our laws and gradients ("gradient of b") are
others, and why.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "official.json").read_text(encoding="utf-8")
)
LINES = torch.tensor([[0, 1], [0, 2], [3, 0], [1, 4], [4, 2], [4, 0], [2, 3]]).T  # node 5 has none
N = 6  # nodes
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
SAME = 1e-11  # the exponential in the code of expRNN is exact to 1e-12 only
WIDER, N_DRAWS = 8, 100  # laws are of layers so much wider, drawn so often
LAW = 0.08  # the most that quantiles may be apart, as a part of the range from the first to the last

GRADIENT = "gradient of "

Make = Callable[[int], nn.Module]  # of a factor on all sizes


def numbers(j: int, shape: tuple[int, ...]) -> np.ndarray:
    return (0.4 * np.sin(1 + j + 0.7 * np.arange(int(np.prod(shape))))).reshape(shape)


def filled(make: Make) -> nn.Module:
    """The layer in float64 with its weights by the formula, in the order of their names."""
    layer = make(1).double()
    with torch.no_grad():
        for j, (_, weight) in enumerate(sorted(layer.named_parameters())):
            weight.copy_(torch.from_numpy(numbers(j, tuple(weight.shape))))
    return layer


def given(*shape: int) -> Tensor:
    return torch.from_numpy(numbers(-1, shape)).requires_grad_()


def found(layer: nn.Module, x: Tensor, y: Tensor) -> dict[str, np.ndarray]:
    """Output, and the gradients of the loss by the input and the weights that it depends on."""
    (y * torch.from_numpy(numbers(-2, tuple(y.shape)))).sum().backward()
    gradients = {"input": x.grad, **{n: p.grad for n, p in layer.named_parameters()}}
    return {"output": y.detach().numpy()} | {n: g.numpy() for n, g in gradients.items() if g is not None}


def check_numbers(name: str, mine: dict[str, np.ndarray]) -> None:
    golden = GOLDEN[name]["numbers"]
    assert set(mine) == set(golden)
    apart = {what: float(abs(value - golden[what]).max()) for what, value in mine.items()}
    others = {what for what, most in apart.items() if not most <= SAME}
    assert others == of_gradients(GOLDEN[name]), f"{name}: {apart}"


def check_layer(name: str, make: Make, output: Callable[[str, nn.Module, Tensor], Tensor]) -> None:
    """With an input as wide as the golden one."""
    layer, x = filled(make), given(*np.shape(GOLDEN[name]["numbers"]["input"]))
    check_numbers(name, found(layer, x, output(name, layer, x)))


def of_gradients(entry: dict[str, Any]) -> set[str]:
    """The inputs and weights whose gradients are others than the code's, as `deviation` says."""
    return {what.removeprefix(GRADIENT) for what in entry.get("deviation", {}) if what.startswith(GRADIENT)}


def check_law(name: str, make: Make) -> None:
    """Quantiles of the weights at the start; those that `deviation` names are others."""
    entry, others = GOLDEN[name], []
    torch.manual_seed(0)
    layers = [make(WIDER) for _ in range(N_DRAWS)]
    for what, quantiles in entry["law"].items():
        drawn = torch.cat([layer.get_parameter(what).detach().flatten() for layer in layers])
        apart = abs(np.quantile(drawn.double().numpy(), QUANTILES) - quantiles)
        if apart.max() > 1e-6 + LAW * (quantiles[-1] - quantiles[0]):
            others.append(what)
    wanted_others = {what for what in entry.get("deviation", {}) if not what.startswith(GRADIENT)}
    assert set(others) == wanted_others, f"{name}: other laws: {others}"
