"""A search as a study states it: metric, number of trials, space, and stages."""

from dataclasses import dataclass, field
from typing import Any

from physml.base.errors import InputError


@dataclass(frozen=True)
class Stage:
    """One stage of a search: runs of each trial still in it, which are ranked by their mean.

    Args:
        keep: How many of the best go on; None: the last stage, which decides.
        set: Changes of these runs, e.g. trainer.epochs: 50; none: the length of the final runs.
        seeds: Each trial has a run for each; by default the search's seed.
        splits: The same.
    """

    keep: int | None = None
    set: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    splits: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 1:
            raise InputError(f"keep must be at least 1; got {self.keep}.")
        for name, numbers in (("seeds", self.seeds), ("splits", self.splits)):
            if len({*numbers}) < len(numbers) or any(n < 0 for n in numbers):
                raise InputError(f"{name} must be different numbers from 0 on; got {numbers}.")
        if not self.splits:
            raise InputError("splits must name at least one.")


@dataclass(frozen=True)
class Widen:
    """Extra trials in wider ranges, where a best value is on a bound."""

    trials: int  # how many, for every search of the group alike
    times: int = 2  # how often at most

    def __post_init__(self) -> None:
        if self.trials < 1 or not 0 <= self.times <= 2:
            raise InputError(
                f"trials must be at least 1 and times at most 2; got {self.trials} and {self.times}."
            )


@dataclass(frozen=True)
class Tpe:
    """Points by the tree-structured Parzen estimator, from the values of the first stage."""

    first: int  # trials of the low-discrepancy design before
    batch: int  # trials between two estimates; they can run side by side

    def __post_init__(self) -> None:
        if self.first < 10 or self.batch < 1:
            raise InputError(
                f"first must be at least 10 and batch at least 1; got {self.first} and {self.batch}."
            )


@dataclass(frozen=True)
class Search:
    """A search on validation data, the same for each row that names it.

    Without `stages` every trial has one run at full length, and the best one wins.
    """

    metric: str  # e.g. rmse
    better: str  # lower or higher
    trials: int
    seed: int  # of the runs of every trial
    space: dict[str, Any]  # config key -> a range {low, high, log}, or a list to choose from
    set: dict[str, Any] = field(default_factory=dict)  # changes of trials and final runs, config key -> value
    trial: dict[str, Any] = field(default_factory=dict)  # changes of a trial, e.g. trainer.epochs: 60
    points: list[dict[str, Any]] = field(default_factory=list)  # the first trials; the others are drawn
    stages: list[Stage] = field(default_factory=lambda: [Stage()])
    tpe: Tpe | None = None
    widen: Widen | None = None
    equal: list[str] = field(default_factory=list)  # experiments, or rows of the study, with as many trials

    def __post_init__(self) -> None:
        for point in self.points:
            if unlike := {*point} ^ {*self.space}:
                raise InputError(f"each of points must have the keys of space; got {point}: {unlike}.")
        if len(self.points) > self.trials:
            raise InputError(f"points must be at most trials, {self.trials}; got {len(self.points)}.")
        if self.tpe and len(self.points) > self.tpe.first:
            raise InputError(f"points must be at most tpe.first, {self.tpe.first}; got {len(self.points)}.")
        keeps = [stage.keep for stage in self.stages]
        before = [self.trials, *(keep for keep in keeps if keep is not None)]
        if not keeps or keeps[-1] is not None or None in keeps[:-1]:
            raise InputError("every stage but the last needs keep, and the last has none.")
        if before != sorted(before, reverse=True):
            raise InputError(f"no stage may keep more trials than it has; got {before[1:]} of {before[0]}.")
