"""The trials of a search in stages: their runs, and the values that rank them, read from the records."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from physml.config.search_schema import Stage
from physml.records.schema import Record
from physml.run.attempt import DONE
from physml.run.perform import existing
from physml.run.spec import RunSpec
from physml.search import plain as search
from physml.search.plain import SearchSpec
from physml.search.points import Point, Space
from physml.search.space import Bound


@dataclass(frozen=True)
class Round:
    """Trials drawn from one space, and the winner when they had run. bounds: the winner's values on one."""

    trials: int
    space: Space
    best: int | None = None
    bounds: list[Bound] = field(default_factory=list)


class SearchTrials:
    """The state of a search in stages, read from the records of its runs.

    Args:
        spec: The search.
        verify: How data are verified.
        sampler_seed: Seed of other points than the search's own.
    """

    def __init__(self, spec: SearchSpec, verify: str = "bytes", sampler_seed: int | None = None) -> None:
        self.spec, self.verify = spec, verify
        self.seed = spec.seed if sampler_seed is None else sampler_seed
        self.repeated = self.seed != spec.seed
        self.id = f"{spec.id}-sampler{self.seed}" if self.repeated else spec.id
        self.stages: list[Stage] = spec.stages or []
        self.rounds: list[Round] = []
        self.points: list[Point] = []  # of all rounds; the place of a point is its trial's number
        self.last_stage: list[int] = []  # that each trial has reached
        self.wants = 0  # extra rounds
        self.running = 0  # the stage whose runs are being made
        self._specs: dict[tuple[int, int], list[RunSpec]] = {}
        self._records: dict[str, Record] = {}  # of runs that have ended, by label

    def seeds(self, stage: Stage) -> list[int]:
        return stage.seeds or [self.spec.seed]

    def specs(self, stage: int, trial: int) -> list[RunSpec]:
        """The runs of a trial in a stage: one for each split and seed."""
        key = stage, trial
        if key not in self._specs:
            content = self.stages[stage]
            base = search.trial_spec(self.spec, trial, self.points[trial], self.verify, content.set)
            base = replace(base, place=replace(base.place, folder=f"adhoc/search/{self.id}/{trial:03d}"))
            self._specs[key] = [
                replace(
                    base,
                    config=base.config | {"split": split, "seed": seed},
                    place=replace(base.place, split=split, seed=seed),
                )
                for split in content.splits
                for seed in self.seeds(content)
            ]
        return self._specs[key]

    def record(self, one: RunSpec) -> Record | None:
        """The record of a finished or diverged run; None means the run must be repeated."""
        if one.label not in self._records:
            made = existing(one)
            if made is None or made["status"] not in DONE:
                return None
            self._records[one.label] = made
        return self._records[one.label]

    def values(self, stage: int, trial: int) -> list[float | None]:
        """The validation metric of each run; None where there is none, or it has diverged."""
        found = []
        for one in self.specs(stage, trial):
            made = self.record(one)
            best = made["metrics"]["best"] if made and made["status"] == "finished" else None
            found.append(best["valid"].get(self.spec.metric) if best else None)
        return found

    def mean(self, stage: int, trial: int) -> float | None:
        """None unless every run of the trial in this stage has a value."""
        values = self.values(stage, trial)
        numbers = [value for value in values if value is not None]
        return statistics.fmean(numbers) if len(numbers) == len(values) else None

    def ranked(self, stage: int, trials: Iterable[int]) -> list[int]:
        """Those with a value, best first; equal ones in their order."""
        means = {trial: mean for trial in trials if (mean := self.mean(stage, trial)) is not None}
        sign = 1 if self.spec.better == "lower" else -1
        return sorted(means, key=lambda trial: sign * means[trial])

    @property
    def best(self) -> int:
        """Number of the best of all trials that have reached the last stage, in any round."""
        last = len(self.stages) - 1
        return self.ranked(last, [t for t, reached in enumerate(self.last_stage) if reached == last])[0]
