"""How far float32 gradients are from those of the reference loop in float64: same weights, same batch."""

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
    distances = {
        name: float(torch.linalg.norm(gradients[name].double() - exact) / torch.linalg.norm(exact))
        for name, exact in wanted.items()
    }
    name = max(distances, key=lambda key: distances[key])
    return {"error": float(f"{distances[name]:.2g}"), "parameter": name}
