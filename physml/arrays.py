"""What a figure needs beyond metrics: small arrays, written beside the record."""

from typing import Any

import numpy as np
import torch
from torch import nn

from physml.data.task import Task
from physml.errors import ConfigError


class TimeScales:
    """A fixed random sample of the step vectors that a trained LEM uses on the test part.

    Source: LEM paper (arXiv 2110.04744), Figure 4.
    Arrays: dt_n, dtbar_n, each (n,), float32.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    @torch.no_grad()
    def collect(self, net: nn.Module, task: Task, batch_size: int, device: str) -> dict[str, np.ndarray]:
        layer: Any = next((m for m in net.modules() if hasattr(m, "time_scales")), None)
        if layer is None:
            raise ConfigError("arrays: TimeScales needs a layer with learned time scales, such as LEM.")
        found: dict[str, list[np.ndarray]] = {"dt_n": [], "dtbar_n": []}
        for batch in task.batches("test", batch_size):
            scales = layer.time_scales(batch.input.to(device))
            for values, scale in zip(found.values(), scales, strict=True):
                values.append(scale.flatten().cpu().numpy())
        rng = np.random.default_rng(0)
        return {name: _sample(np.concatenate(values), self.n, rng) for name, values in found.items()}


def _sample(values: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    return values[rng.choice(len(values), size=min(n, len(values)), replace=False)].astype(np.float32)
