"""Tasks on trajectories that a program computes: predict the state some points ahead.

Axes: N trajectories, P points of each, B batch, T = P - ahead steps, D variables.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import has_shape, positive
from physml.data.cache import Generated
from physml.data.store import Arrays, Store
from physml.task.base import Part, Readout, Task
from physml.task.batch import Batch


class Trajectories(Task):
    """Generated once, then read from the cache. Loss: MSE at every step.

    Input (B, T, D): points 0..T-1; target (B, T, D): points ahead..P-1. A subclass sets `sizes`, the numbers
    of trajectories, and brings `make`, its `key` and a `fingerprint`.
    """

    readout: ClassVar[Readout] = "every"
    ahead: int = 1
    name: ClassVar[str]  # of the cached files

    def key(self) -> dict[str, Any]:
        """Every argument that moves a number of `make`."""
        raise NotImplementedError

    def make(self) -> Arrays:
        """The trajectories of each part: (N, P) or (N, P, D) float64."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """`matches`, `differs by x` (the largest difference), or why there is nothing to compare with."""
        raise NotImplementedError

    def sources(self) -> list[Generated]:
        return [Generated(self.name, self.key(), self.version, self.make)]

    def load(self, store: Store, split: int) -> None:
        (source,) = self.sources()
        arrays = store.get(source)
        paths = {part: torch.from_numpy(arrays[part]).float() for part in self.sizes}
        self._paths = {part: x if x.ndim == 3 else x.unsqueeze(-1) for part, x in paths.items()}

    def to(self, device: str) -> None:
        self._paths = {part: x.to(device) for part, x in self._paths.items()}

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        positive("size", size)
        paths = self._paths[part]
        for index in self.selections(part, size, rng):
            index = index.to(paths.device)
            path = paths[index]
            yield Batch(input=path[:, : -self.ahead], target=path[:, self.ahead :], index=index)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        return F.mse_loss(output, batch.target)

    def compared(self, recorded: Sequence[Sequence[float]], every: int, tolerance: float) -> str:
        """The fingerprint: the first variable of the first training paths, at each `every`-th point."""
        reference = torch.tensor(recorded, dtype=torch.float64)
        n, points = reference.shape
        values = self._paths["train"][:n, : every * points : every, 0].double().cpu()
        gap = (values - reference).abs().max().item()
        return "matches" if gap <= tolerance else f"differs by {gap:.1e}"

    def facts(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "sizes": dict(self.sizes),
            "sha256": {},
            "fingerprint": self.fingerprint(),
        }
