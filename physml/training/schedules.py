"""Learning rates over epochs that torch does not have. They are stepped as torch's: by `trainer.schedule`."""

import math
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from physml.base.check import count, positive, within
from physml.base.errors import InputError


class WarmupCosine(LambdaLR):
    r"""The rate grows linearly in `warmup` epochs, then falls along half a cosine to `floor` of its value.

    .. math:: \frac{k + 1}{w} \ (k < w), \qquad
        f + (1 - f)\, \tfrac12 \Big(1 + \cos \pi \frac{k - w}{n - w}\Big) \ (k \ge w)

    times the rate, in epoch k = 0, 1, ..., with :math:`w` = `warmup`, :math:`n` = `epochs`, f = `floor`; f
    from epoch n on. A rate of its own for some parameters, such as the recurrence, is `optim.lr_factors`.

    Source: the code of S5 and of minimal-LRU, by steps there.

    Args:
        optimizer: whose rates are changed.
        epochs: n, usually `trainer.epochs`.
        warmup: w, less than n; 0 for none.
        floor: f, in [0, 1].
    """

    def __init__(self, optimizer: Optimizer, *, epochs: int, warmup: int, floor: float = 0.0) -> None:
        count("epochs", epochs)
        within("floor", floor, 0.0, 1.0)
        if not 0 <= warmup < epochs:
            raise InputError(f"warmup must lie in [0, {epochs}), below epochs; got {warmup}.")

        def factor(k: int) -> float:
            if k < warmup:
                return (k + 1) / warmup
            done = min(1.0, (k - warmup) / (epochs - warmup))
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))

        super().__init__(optimizer, factor)


class CumulativePlateau(ReduceLROnPlateau):
    r"""The rate times `factor` once `patience` evaluations, not in a row, were no strictly better ones.

    Evaluations count from the one numbered `start` on, the first is 1; what is best is that of all. The count
    starts anew at each reduction, and at nothing else.

    Source: the official code of GraphCON on ZINC.

    Args:
        optimizer: whose rates are reduced.
        mode: "min" or "max" of the task's own metric.
        factor: of the rate, in [0, 1).
        patience: evaluations.
        start: number of the first evaluation that counts.
    """

    def __init__(
        self, optimizer: Optimizer, mode: Literal["min", "max"], *, factor: float, patience: int, start: int
    ) -> None:
        positive("patience", patience)
        if not 0 <= factor < 1:
            raise InputError(f"factor must lie in [0, 1); got {factor}.")
        super().__init__(optimizer, mode, factor, patience, threshold=0.0, threshold_mode="abs")
        self.start = start

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Count one evaluation; `epoch` plays no part."""
        self.last_epoch += 1
        value = float(metrics)
        if value < self.best if self.mode == "min" else value > self.best:
            self.best = value
        elif self.last_epoch >= self.start:
            self.num_bad_epochs += 1
            if self.num_bad_epochs == self.patience:
                self.num_bad_epochs = 0
                for group in self.optimizer.param_groups:
                    group["lr"] *= self.factor
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
