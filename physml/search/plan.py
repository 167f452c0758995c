"""Cost of a search in stages: runs and hours of each stage, before they are made."""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from physml.queue import planning
from physml.queue.planning import Planned
from physml.records.costs import Cost, core_hours
from physml.records.schema import Record
from physml.run.spec import RunSpec
from physml.search import plain as search
from physml.search.report import stage_text
from physml.search.staged import Lacking, StagedSearch


@dataclass(frozen=True)
class StagePlan:
    """Cost of a stage.

    Args:
        text: Its trials and changes.
        runs: How many it has.
        done: How many of them are done.
        hours_each: Hours of one run; None: unknown.
        like: One of its runs.
    """

    text: str
    runs: int
    done: int
    hours_each: float | None
    like: RunSpec

    @property
    def todo(self) -> list[Planned]:
        """Placeholders for the missing runs, so that pilots can be sized before points are drawn."""
        return [Planned(self.like, "missing", Cost(hours=self.hours_each))] * (self.runs - self.done)

    @property
    def hours(self) -> float | None:
        """Hours for the runs still missing; None if the time of a run is not known."""
        return None if self.hours_each is None else (self.runs - self.done) * self.hours_each


def plan(name: str, *, verify: str = "bytes", sampler_seed: int | None = None) -> list[StagePlan]:
    """Each stage of a search as far as it is known now, and the most that extra trials can add.

    The time of a run is that of finished runs of its stage, else it is measured in a few steps.
    """
    made = StagedSearch(search.load_search(name), verify, sampler_seed)
    made.check()
    made.refuse_blocked()
    with contextlib.suppress(Lacking):
        made.advance(lambda stage, trials: _refuse_lacking(made, stage, trials))
    planned = []
    extra, extra_hours = 0, 0.0
    most = made.spec.trials
    left = (made.spec.widen.times - len(made.rounds) + 1) if made.spec.widen else 0
    for i, stage in enumerate(made.stages):
        reached = [trial for trial, last in enumerate(made.last_stage) if last >= i]
        trials = max(len(reached), most)
        each = len(made.seeds(stage)) * len(stage.splits)
        records = [made.record(one) for trial in reached for one in made.specs(i, trial)]
        done = [one for one in records if one]
        like = made.specs(i, 0)[0]
        hours = _hours_each(like, done)
        about = {"trials": trials, "set": stage.set, "seeds": made.seeds(stage), "splits": stage.splits}
        planned.append(StagePlan(stage_text(about), trials * each, len(done), hours, like))
        if made.spec.widen:
            runs = left * min(made.spec.widen.trials, most) * each
            extra, extra_hours = extra + runs, extra_hours + runs * (hours or 0.0)
        most = stage.keep or most
    if extra:
        text = f"up to {left} times {made.spec.widen.trials} extra trials" if made.spec.widen else ""
        planned.append(StagePlan(text, extra, 0, extra_hours / extra, made.specs(0, 0)[0]))
    return planned


def _refuse_lacking(made: StagedSearch, stage: int, trials: Sequence[int]) -> None:
    if any(made.record(one) is None for trial in trials for one in made.specs(stage, trial)):
        raise Lacking(75)


def _hours_each(first: RunSpec, done: list[Record]) -> float | None:
    hours = [core_hours(one) for one in done if one["cost"] and one["status"] == "finished"]
    if hours:
        return statistics.fmean(hours)
    (planned,) = planning.plan([first], probe=True)
    return planned.cost.hours
