"""How far float32 gradients are from those of the reference loop in float64: same weights, same batch."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from physml.bench.rounds import not_run
from physml.bench.variants import Step
from physml.bench.workloads import Workload


def errors(workload: Workload, variants: Sequence[str], device: str) -> dict[str, Any]:
    """Per variant the worst parameter's |g - g64| / |g64| with its name, or why it did not run."""
    exact = Step(workload, "reference", device)
    exact.module.double()
    exact.u, exact.slope = exact.u.double(), exact.slope.double()
    wanted = exact.gradients()
    found: dict[str, Any] = {}
    for variant in variants:
        try:
            found[variant] = worst(Step(workload, variant, device).gradients(), wanted)
        except Exception as error:  # one that fails must not take the others with it
            found[variant] = not_run(error)
    return found


def worst(gradients: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Any]:
    distances = {name: relative_error(gradients[name], exact) for name, exact in wanted.items()}
    name = max(distances, key=lambda key: distances[key])
    return {"error": float(f"{distances[name]:.2g}"), "parameter": name}


def relative_error(x: Tensor, exact: Tensor) -> float:
    """|x - exact| / |exact| of a whole tensor; infinite where something is not a number."""
    ratio = float(torch.linalg.norm(x.double() - exact) / torch.linalg.norm(exact))
    return ratio if math.isfinite(ratio) else math.inf
