"""Which weights count, and when to stop: small objects, chosen by config.

A row is one evaluation: {"epoch": 3, "step": 12, "valid/rmse": 0.1, ...}. A stopping rule finds "next_lr" in
it too, the learning rate as the schedule has left it.
"""

import math
from typing import Any, ClassVar, Protocol

from physml.errors import ConfigError, suggest

Row = dict[str, Any]


class Selector(Protocol):
    """`selected(row)` says whether the weights of this row replace the kept ones."""

    needs_test: ClassVar[bool]

    def bind(self, metric: str, better: dict[str, str]) -> None: ...
    def selected(self, row: Row) -> bool: ...
    def rule(self) -> str: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class _Best:
    """The first evaluation with the strictly best value."""

    part: ClassVar[str]
    needs_test: ClassVar[bool]
    where = "trainer.select"  # whose metric it is, in the config

    def __init__(self, metric: str | None = None) -> None:  # None: the task's own
        self.metric = metric
        self.best: float | None = None
        self.lower = True

    def bind(self, metric: str, better: dict[str, str]) -> None:
        """Take the task's metric where the config names none."""
        self.metric = self.metric or metric
        self.lower = lower_is_better(self.metric, better, self.where)

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

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = state["best"]


class BestValid(_Best):
    """Best on validation data, ties kept at the earliest epoch: what nearly all official code does."""

    part = "valid"
    needs_test = False


class BestTest(_Best):
    """Best on TEST data: only to reproduce a paper that did so. Tables mark it."""

    part = "test"
    needs_test = True


class Last:
    """The weights after the last epoch."""

    needs_test: ClassVar[bool] = False

    def bind(self, metric: str, better: dict[str, str]) -> None:
        pass

    def selected(self, row: Row) -> bool:
        return True

    def rule(self) -> str:
        return "last epoch"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Patience:
    """Stop after `epochs` epochs without a strictly better value on validation data.

    Args:
        epochs: number of epochs.
        metric: of validation data; None: the task's own.
    """

    def __init__(self, epochs: int, metric: str | None) -> None:
        self.epochs = epochs
        self.best = BestValid(metric)
        self.best.where = "trainer.stop"
        self.last_better = 0

    def bind(self, metric: str, better: dict[str, str]) -> None:
        self.best.bind(metric, better)

    def stops(self, row: Row) -> bool:
        if self.best.selected(row):
            self.last_better = row["epoch"]
        return row["epoch"] - self.last_better >= self.epochs

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best.state_dict(), "last_better": self.last_better}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best.load_state_dict(state["best"])
        self.last_better = state["last_better"]


class CumulativePatience(Patience):
    """Stop once `epochs` evaluations, together and not in a row, were no strictly better ones.

    Source: the official code of GraphCON counts so, where others start anew at each better one.

    Args:
        epochs: number of evaluations.
        metric: of validation data; None: the task's own.
    """

    def __init__(self, epochs: int, metric: str | None) -> None:
        super().__init__(epochs, metric)
        self.n_worse = 0

    def stops(self, row: Row) -> bool:
        self.n_worse += not self.best.selected(row)
        return self.n_worse >= self.epochs

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best.state_dict(), "n_worse": self.n_worse}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best.load_state_dict(state["best"])
        self.n_worse = state["n_worse"]


class Reached:
    """Stop at the first evaluation whose validation metric is `value` or better.

    Args:
        value: of the metric.
        metric: of validation data; None: the task's own.
    """

    def __init__(self, value: float, metric: str | None) -> None:  # None: the task's own
        if not math.isfinite(value):
            raise ConfigError(f"trainer.stop.value must be a finite number; got {value}.")
        self.value, self.metric = value, metric
        self.lower = True

    def bind(self, metric: str, better: dict[str, str]) -> None:
        self.metric = self.metric or metric
        self.lower = lower_is_better(self.metric, better, "trainer.stop")

    def stops(self, row: Row) -> bool:
        value = row[f"valid/{self.metric}"]
        return math.isfinite(value) and (value <= self.value if self.lower else value >= self.value)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class LowRate:
    """Stop once the learning rate of the next epoch is below `below`, or the validation metric is too bad.

    Source: the official code of GraphCON on graphs of molecules and superpixels.

    Args:
        below: the learning rate.
        worst: stop too where the validation metric is worse than this; None: never.
        start: the first epoch, counted from 1, that may stop.
        metric: of validation data; None: the task's own.
    """

    def __init__(self, below: float, worst: float | None, start: int, metric: str | None) -> None:
        if not below > 0:
            raise ConfigError(f"trainer.stop.below must be positive; got {below}.")
        self.below, self.worst, self.start, self.metric = below, worst, start, metric
        self.lower = True

    def bind(self, metric: str, better: dict[str, str]) -> None:
        self.metric = self.metric or metric
        self.lower = lower_is_better(self.metric, better, "trainer.stop")

    def stops(self, row: Row) -> bool:
        if row["epoch"] < self.start:
            return False
        value, worst = row[f"valid/{self.metric}"], self.worst
        hopeless = worst is not None and (value > worst if self.lower else value < worst)
        return bool(row["next_lr"] < self.below or hopeless)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def lower_is_better(metric: str, better: dict[str, str], where: str) -> bool:
    """The task's direction of a metric; ConfigError, naming the config key, if it has none of that name."""
    if metric not in better:
        raise ConfigError(f"{where}.metric: no metric {metric}. {suggest(metric, better)}")
    return better[metric] == "lower"
