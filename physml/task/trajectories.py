"""Tasks on trajectories that a program computes: predict the state some points ahead.

Axes: N trajectories, P points of each, B batch, T = P - ahead steps, D variables.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import each, has_shape, one_of, positive, seed
from physml.base.errors import InputError
from physml.data.cache import Generated
from physml.data.store import Arrays, Store
from physml.task.base import Metrics, Part, Readout, Sums, Task
from physml.task.batch import Batch


class Trajectories(Task):
    """Generated once, then read from the cache. Loss: MSE at every step.

    Input (B, T, D): points 0..T-1; target (B, T, D): points ahead..P-1. A subclass sets `sizes`, the numbers
    of trajectories, and brings `make` and a `fingerprint`.
    """

    readout: ClassVar[Readout] = "every"
    ahead: int = 1
    name: ClassVar[str]  # of the cached files
    moving: ClassVar[tuple[str, ...]]  # names of all arguments that move a number of `make`

    def key(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.moving}

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


class Solved(Trajectories):
    """One visible variable of a system at `n_points` uniform points on [0, `t_end`]; scored by RMSE.

    late: steps left out of a score of late steps.
    """

    moving = ("sizes", "n_points", "t_end", "data_seed")
    late: ClassVar[int]
    protocols: ClassVar[tuple[str, ...]]
    d_in = d_out = 1

    def __init__(
        self,
        *,
        n_train: int,
        n_valid: int,
        n_test: int,
        n_points: int,
        t_end: float,
        data_seed: int,
        protocol: str,
    ) -> None:
        one_of("protocol", protocol, self.protocols)
        each(positive, n_train=n_train, n_valid=n_valid, n_test=n_test, t_end=t_end)
        seed("data_seed", data_seed)
        if n_points < self.late + 2:
            raise InputError(
                f"n_points must be at least {self.late + 2}, to have a step {self.late + 1}; got {n_points}."
            )
        self.protocol = protocol
        self.sizes = {"train": n_train, "valid": n_valid, "test": n_test}
        self.n_points, self.t_end, self.data_seed = n_points, float(t_end), data_seed

    def finish(self, sums: Sums) -> Metrics:
        return roots(sums, self.better)


def runge_kutta(slope: Callable[[np.ndarray], np.ndarray], x: np.ndarray, h: float) -> np.ndarray:
    """x after one step of size h by the classical method of order 4."""
    a = slope(x)
    b = slope(x + h / 2 * a)
    c = slope(x + h / 2 * b)
    return x + h / 6 * (a + 2 * b + 2 * c + slope(x + h * c))


def totals(squares: Mapping[str, Tensor]) -> Sums:
    """The sum and the number of squared errors, by metric: for `roots`."""
    sums = torch.stack([square.sum() for square in squares.values()]).tolist()
    return {f"{name}_sum": value for name, value in zip(squares, sums, strict=True)} | {
        f"{name}_n": float(square.numel()) for name, square in squares.items()
    }


def roots(sums: Sums, names: Iterable[str]) -> Metrics:
    """Root mean squares; NaN where no error counts."""
    return {n: (sums[f"{n}_sum"] / sums[f"{n}_n"]) ** 0.5 if sums[f"{n}_n"] else math.nan for n in names}
