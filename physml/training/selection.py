"""Which weights count, and when to stop: small objects, chosen by config.

A row is one evaluation: {"epoch": 3, "step": 12, "valid/rmse": 0.1, ...}. A stopping rule finds "next_lr" in
it too, the learning rate as the schedule has left it.
"""

import math
from typing import Any, ClassVar

from physml.base.check import count, positive
from physml.base.errors import ConfigError, suggest

Row = dict[str, Any]


class _Rule:
    """A rule that looks at one metric of validation or test data; None: the task's own.

    `where` is the key of the config that chooses the rule, `changing` names what of it a checkpoint keeps.
    """

    where = "trainer.stop"
    changing: ClassVar[tuple[str, ...]] = ()

    def __init__(self, metric: str | None = None) -> None:
        self.metric = metric
        self.lower = True

    def bind(self, metric: str, better: dict[str, str]) -> None:
        """Take the task's metric where the config names none; ConfigError for one that the task has not."""
        self.metric = self.metric or metric
        if self.metric not in better:
            raise ConfigError(f"{self.where}.metric: no metric {self.metric}. {suggest(self.metric, better)}")
        self.lower = better[self.metric] == "lower"

    def state_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.changing}
        return {name: v.state_dict() if isinstance(v, _Rule) else v for name, v in values.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self.changing:
            if isinstance(inner := getattr(self, name), _Rule):
                inner.load_state_dict(state[name])
            else:
                setattr(self, name, state[name])


class _Best(_Rule):
    """The first evaluation with the strictly best value."""

    part: ClassVar[str] = "valid"
    needs_test: ClassVar[bool] = False
    where = "trainer.select"
    changing = ("best",)

    def __init__(self, metric: str | None = None) -> None:
        super().__init__(metric)
        self.best: float | None = None

    def selected(self, row: Row) -> bool:
        value = row[f"{self.part}/{self.metric}"]
        if not math.isfinite(value):
            return False
        if self.best is None or (value < self.best if self.lower else value > self.best):
            self.best = value
            return True
        return False

    def rule(self) -> str:
        return f"{'min' if self.lower else 'max'} {self.part}/{self.metric}"


class BestValid(_Best):
    """Best on validation data, ties kept at the earliest epoch: what nearly all official code does."""


class BestTest(_Best):
    """Best on TEST data: only to reproduce a paper that did so. Tables mark it."""

    part = "test"
    needs_test = True


class Last(_Rule):
    """The weights after the last epoch."""

    needs_test: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    def bind(self, metric: str, better: dict[str, str]) -> None:
        pass

    def selected(self, row: Row) -> bool:
        return True

    def rule(self) -> str:
        return "last epoch"


class Waiting(_Rule):
    """A rule that counts from the best evaluation on validation data."""

    changing: ClassVar[tuple[str, ...]] = ("best", "last_better")

    def __init__(self, metric: str | None) -> None:
        super().__init__(metric)
        self.best = BestValid(metric)
        self.best.where = self.where
        self.last_better = 0

    def bind(self, metric: str, better: dict[str, str]) -> None:
        self.best.bind(metric, better)


class Patience(Waiting):
    """Stop after `epochs` epochs without a strictly better value on validation data."""

    def __init__(self, epochs: int, metric: str | None) -> None:
        super().__init__(metric)
        count("trainer.stop.epochs", epochs)
        self.epochs = epochs

    def stops(self, row: Row) -> bool:
        if self.best.selected(row):
            self.last_better = row["epoch"]
        return row["epoch"] - self.last_better >= self.epochs


class CumulativePatience(Patience):
    """Stop once `epochs` evaluations, together and not in a row, were no strictly better ones.

    Source: the official code of GraphCON counts so, where others start anew at each better one.
    """

    changing = ("best", "n_worse")

    def __init__(self, epochs: int, metric: str | None) -> None:
        super().__init__(epochs, metric)
        self.n_worse = 0

    def stops(self, row: Row) -> bool:
        self.n_worse += not self.best.selected(row)
        return self.n_worse >= self.epochs


class Reached(_Rule):
    """Stop at the first evaluation whose validation metric is `value` or better."""

    def __init__(self, value: float, metric: str | None) -> None:
        super().__init__(metric)
        if not math.isfinite(value):
            raise ConfigError(f"trainer.stop.value must be a finite number; got {value}.")
        self.value = value

    def stops(self, row: Row) -> bool:
        value = row[f"valid/{self.metric}"]
        return math.isfinite(value) and (value <= self.value if self.lower else value >= self.value)


class LowRate(_Rule):
    """Stop once the learning rate of the next epoch is below `below`, or the validation metric is too bad.

    Source: the official code of GraphCON on graphs of molecules and superpixels.

    Args:
        below: the learning rate.
        worst: stop too where the validation metric is worse than this; None: never.
        start: the first epoch, counted from 1, that may stop.
    """

    def __init__(self, below: float, worst: float | None, start: int, metric: str | None) -> None:
        super().__init__(metric)
        positive("trainer.stop.below", below)
        self.below, self.worst, self.start = below, worst, start

    def stops(self, row: Row) -> bool:
        if row["epoch"] < self.start:
            return False
        value, worst = row[f"valid/{self.metric}"], self.worst
        hopeless = worst is not None and (value > worst if self.lower else value < worst)
        return bool(row["next_lr"] < self.below or hopeless)
