"""A small task that can be slow or go wrong at a chosen step, and a model that can too. Used as a plugin.

Axes: B batch, T time, D features, H hidden units.
"""

import time
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from physml.data.store import Store
from physml.task.base import Metrics, Part, Sums, Task
from physml.task.batch import Batch

Trouble = Literal["none", "nan_loss", "nan_train", "nan_valid", "nan_score", "memory", "few_batches", "load"]
SIZE = {"train": 1.0, "valid": 0.5, "test": 0.5}


class Odd(Task):
    """The mean of a sequence of 5 numbers: input (B, 5, 1), target (B, 1).

    trouble: what goes wrong, from training step `at` on; step_s, eval_s: how long a step and an evaluation
    batch take at least; draws: how often each part was asked for, for tests in one process.
    """

    readout: ClassVar[Literal["last", "every", "node", "graph"]] = "last"
    metric: ClassVar[str] = "mse"
    better: ClassVar[dict[str, Literal["lower", "higher"]]] = {"mse": "lower"}
    n_splits: ClassVar[int] = 2
    draws: ClassVar[list[Part]] = []

    def __init__(
        self, *, n: int, protocol: str, trouble: Trouble, at: int, step_s: float, eval_s: float
    ) -> None:
        self.n, self.protocol, self.trouble, self.at = n, protocol, trouble, at
        self.step_s, self.eval_s = step_s, eval_s
        self.d_in = self.d_out = 1
        self.losses = 0

    def load(self, store: Store, split: int) -> None:
        if self.trouble == "load":
            raise RuntimeError("the data cannot be made")
        self.parts = {}
        for i, (part, share) in enumerate(SIZE.items()):
            u = torch.randn(int(share * self.n), 5, 1, generator=Generator().manual_seed(10 * split + i))
            self.parts[part] = Batch(u, u.mean(1))
        for part in ("train", "valid"):
            if self.trouble == f"nan_{part}":
                self.parts[part].input[0, 0, 0] = torch.nan

    def steps_per_epoch(self, size: int) -> int:
        return -(-self.n // size) + (self.trouble == "few_batches")

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        self.draws.append(part)
        whole = self.parts[part]
        n = len(whole.target)
        order = torch.arange(n) if part != "train" or rng is None else torch.randperm(n, generator=rng)
        for index in order.split(size):
            time.sleep(self.step_s if part == "train" else self.eval_s)
            yield Batch(whole.input[index], whole.target[index])

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        self.losses += 1
        if self.losses > self.at:
            if self.trouble == "nan_loss":
                return F.mse_loss(output, batch.target) * torch.nan
            if self.trouble == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return F.mse_loss(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        error = F.mse_loss(output, batch.target, reduction="sum").item()
        return {"error_sum": torch.nan if self.trouble == "nan_score" else error, "n": float(len(output))}

    def finish(self, sums: Sums) -> Metrics:
        return {"mse": sums["error_sum"] / sums["n"]}

    def references(self) -> dict[str, Metrics]:
        return {"zero": {"mse": self.parts["test"].target.square().mean().item()}}

    def facts(self) -> dict[str, Any]:
        return {"version": self.version, "sizes": {p: len(b.target) for p, b in self.parts.items()}}


class Plain(nn.Module):
    """A recurrent layer of torch, which has no choice of backends."""

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_hidden
        self.gru = nn.GRU(d_in, d_hidden, batch_first=True)

    def forward(self, u: Tensor, state: None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        outputs, last = self.gru(u)
        return outputs, (last[0],)


class Broken(nn.Module):
    """A recurrent layer whose forward has a mistake."""

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_hidden
        self.linear = nn.Linear(d_in, d_hidden)

    def forward(
        self, u: Tensor, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.linear(u.mT), ()
