"""How time grows with the sizes: slopes in log-log of T, B and H, around a middle case."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from physml.bench.rounds import Samples, interleave, reason
from physml.bench.variants import Step
from physml.bench.workloads import Workload

MIDDLE = (
    Workload("cornn", "coRNN", "cornn", 200, 32, 8, 64, settings={"dt": 0.05, "gamma": 1.0, "epsilon": 1.0}),
    Workload("lem", "LEM", "lem", 200, 32, 8, 64, settings={"dt": 1.0}),
    Workload("unicornn", "UnICORNN, 2 layers", "unicornn", 200, 32, 8, 64, 2, {"dt": 0.1, "alpha": 1.0}),
)
SWEEPS = {"T": (50, 100, 200, 400), "B": (8, 16, 32, 64, 128), "H": (16, 32, 64, 128, 256)}


def sweep(
    middle: Workload,
    axis: str,
    sizes: Sequence[int],
    variants: Sequence[str],
    *,
    rounds: int,
    budget_s: float,
    device: str,
) -> dict[str, Any]:
    """Times per size, all sizes and variants interleaved, and the slope: 1 is proportional."""
    steps: dict[str, Callable[[], object]] = {}
    refused = {}
    for variant in variants:
        try:
            for size in sizes:
                case = middle.with_sizes({axis: size})
                steps[f"{variant} {size}"] = Step(case, variant, device)
        except Exception as error:  # one that fails must not take the others with it
            refused[variant] = {"not_run": reason(error)}
    samples = interleave(steps, rounds=rounds, budget_s=budget_s, device=device)
    found: dict[str, Any] = {"sizes": list(sizes), "variants": refused}
    for variant in variants:
        done = [samples.get(f"{variant} {size}") for size in sizes]
        if variant in refused or not all(isinstance(s, Samples) for s in done):
            continue
        ms = [s.facts()["ms"] for s in done if isinstance(s, Samples)]
        found["variants"][variant] = {"ms": ms, "slope": slope(sizes, ms)}
    return found


def slope(sizes: Sequence[int], ms: Sequence[float]) -> float:
    """Exponent p of the power law size^p that fits best in log-log.

    Example:
        >>> slope((1, 2, 4), (3.0, 12.0, 48.0))
        2.0
    """
    return round(float(np.polyfit(np.log(sizes), np.log(ms), 1)[0]), 2)
