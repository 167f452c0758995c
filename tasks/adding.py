"""The adding problem: a long memory for two numbers. Axes: B batch, T time."""

import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import each, has_shape, one_of, positive
from physml.base.errors import InputError
from physml.data.store import Store
from physml.task.base import Better, Metrics, Part, Readout, Sums, Task
from physml.task.batch import Batch
from physml.task.trivial import score_reference

EVAL_SEED = {"valid": 10_001, "test": 10_002}


class Adding(Task):
    """Sum the two flagged entries of a sequence of uniform numbers.

    Input (B, T, 2): a number from U[0, 1), and a flag that is 1 at one step of the first half (steps
    0..T//2-1) and at one of the second half. Target (B, 1): the sum of the two flagged numbers. Loss and
    metric: MSE at the last step. Always answering 1 scores 1/6: the level to beat.

    Training sequences are drawn afresh for every step. The stream has no end: an "epoch" is `epoch_steps` of
    them, after which the trainer evaluates.

    Protocols:
      clean: valid and test are two fixed sets, so all runs are judged on the same sequences.
      official: both are drawn afresh at each evaluation, from the generator given to `batches` (as in the
        code of coRNN and LEM, which tests every 100 steps on 1000 new sequences). Without a generator, as
        for the trivial reference, the fixed sets are used.

    Defined in: target: coRNN paper, section 4, "the sum of two numbers of the first dimension at positions"
    of the two 1 entries, "one each in both halves"; metric: mean square error, the same paragraph and Figure
    1; split: none, sequences are drawn; sizes are those of the code.

    Source: Rusch and Mishra, coRNN, ICLR 2021, https://arxiv.org/abs/2010.00951, section 4; its code.

    Args: length: T; n_eval: sequences of valid and of test; epoch_steps: training batches of an epoch;
        protocol: "clean" or "official".
    """

    readout: ClassVar[Readout] = "last"
    metric: ClassVar[str] = "mse"
    better: ClassVar[Better] = {"mse": "lower"}

    def __init__(self, *, length: int, n_eval: int, epoch_steps: int, protocol: str) -> None:
        one_of("protocol", protocol, ("clean", "official"))
        if length < 2:
            raise InputError(f"length must be at least 2, one step for each flag; got {length}.")
        each(positive, n_eval=n_eval, epoch_steps=epoch_steps)
        self.d_in, self.d_out = 2, 1
        self.length, self.n_eval, self.epoch_steps, self.protocol = length, n_eval, epoch_steps, protocol

    def load(self, store: Store, split: int) -> None:
        """Nothing to load: all sequences are drawn when they are used."""

    def steps_per_epoch(self, size: int) -> int:
        return self.epoch_steps

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        positive("size", size)
        if part == "train":
            if rng is None:
                raise InputError("part 'train' is drawn afresh: give a generator as rng.")
            for _ in range(self.epoch_steps):
                yield self._draw(size, rng)
            return
        # One draw, whatever the batch size.
        whole = self._fixed(part) if rng is None or self.protocol == "clean" else self._draw(self.n_eval, rng)
        for index in torch.arange(self.n_eval).split(size):
            yield Batch(input=whole.input[index], target=whole.target[index], index=index)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        return F.mse_loss(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        error = (output.detach() - batch.target).double()
        return {"error_sum": error.square().sum().item(), "error_n": float(error.numel())}

    def finish(self, sums: Sums) -> Metrics:
        return {"mse": sums["error_sum"] / sums["error_n"]}

    def references(self) -> dict[str, Metrics]:
        """Always 1, the mean of the target by its definition: MSE 1/6 in the limit of many sequences."""
        return {"constant": score_reference(self, lambda batch: torch.ones_like(batch.target))}

    def facts(self) -> dict[str, Any]:
        """The fingerprint is a hash of the fixed sets: their bits don't depend on the machine."""
        fingerprint = "fresh at each evaluation"
        if self.protocol == "clean":
            sha = hashlib.sha256()
            for part in EVAL_SEED:
                sha.update(self._fixed(part).input.numpy().tobytes())
            fingerprint = f"sha256 {sha.hexdigest()[:16]}"
        return {
            "version": self.version,
            "sizes": {"valid": self.n_eval, "test": self.n_eval},
            "sha256": {},
            "fingerprint": fingerprint,
        }

    def _fixed(self, part: str) -> Batch:
        return self._draw(self.n_eval, Generator().manual_seed(EVAL_SEED[part]))

    def _draw(self, n: int, rng: Generator) -> Batch:
        half = self.length // 2
        number = torch.rand(n, self.length, generator=rng)
        early = torch.randint(0, half, (n, 1), generator=rng)
        late = torch.randint(half, self.length, (n, 1), generator=rng)
        flag = torch.zeros_like(number).scatter_(1, torch.cat([early, late], 1), 1.0)
        return Batch(torch.stack([number, flag], -1), (number * flag).sum(1, keepdim=True))
