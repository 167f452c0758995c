"""How time grows with the sizes: slopes in log-log of T, B and H, around a middle case."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scripts.bench.rounds import Call, interleave
from scripts.bench.variants import steps_of
from scripts.bench.workloads import Workload

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
    rounds: int,
    budget_s: float,
    device: str,
) -> dict[str, Any]:
    """Times per size, all sizes and variants interleaved, and the slope: 1 is proportional."""
    refused: dict[str, Any] = {}
    calls: dict[tuple[str, int], Call] = {}
    for size in sizes:
        steps, lacking = steps_of(middle.with_sizes({axis: size}), variants, device)
        refused = lacking | refused
        calls |= {(variant, size): step for variant, step in steps.items()}
    complete = {name: step for name, step in calls.items() if name[0] not in refused}
    timed = interleave(complete, rounds, budget_s, device)
    result: dict[str, Any] = {"sizes": list(sizes), "variants": refused}
    for variant in variants:
        ms = [timed[variant, size]["ms"] for size in sizes if "ms" in timed.get((variant, size), {})]
        if len(ms) == len(sizes):
            result["variants"][variant] = {"ms": ms, "slope": slope(sizes, ms)}
    return result


def slope(sizes: Sequence[int], ms: Sequence[float]) -> float:
    """Exponent p of the power law size^p that fits best in log-log.

    Example:
        >>> slope((1, 2, 4), (3.0, 12.0, 48.0))
        2.0
    """
    return round(float(np.polyfit(np.log(sizes), np.log(ms), 1)[0]), 2)
