"""Learning rates over epochs that torch does not have. They are stepped as torch's: by `trainer.schedule`."""

from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from physml.base.check import positive, within


class CumulativePlateau(ReduceLROnPlateau):
    r"""The rate times `factor` once `patience` evaluations, not in a row, were no strictly better ones.

    Evaluations count from the one numbered `start` on, the first is 1; what is best is that of all. The count
    starts anew at each reduction, and at nothing else.

    Source: the official code of GraphCON on ZINC.

    Args:
        optimizer: whose rates are reduced.
        mode: "min" or "max" of the task's own metric.
        factor: of the rate, in [0, 1].
        patience: evaluations.
        start: number of the first evaluation that counts.
    """

    def __init__(
        self, optimizer: Optimizer, mode: Literal["min", "max"], *, factor: float, patience: int, start: int
    ) -> None:
        positive("patience", patience)
        within("factor", factor, 0.0, 1.0)
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
