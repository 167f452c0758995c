"""Cost of a search: runs and hours of each stage, before they are made."""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from physml.queue import planning
from physml.queue.planning import Planned
from physml.records.costs import Cost, core_hours
from physml.records.schema import Record
from physml.run.spec import RunSpec
from physml.search.report import stage_text
from physml.search.spec import load_search, runs_of_winner
from physml.search.staged import Lacking, StagedSearch

MEASURED = 8  # each so many of the trials is measured


@dataclass(frozen=True)
class StagePlan:
    """Cost of a stage."""

    text: str  # its trials and changes
    runs: int  # how many it has
    done: int  # how many of them are done
    hours_each: float | None  # hours of one run; None: unknown
    like: RunSpec  # one of its runs

    @property
    def todo(self) -> list[Planned]:
        """Placeholders for the missing runs, so that pilots can be sized before points are drawn."""
        return [Planned(self.like, "missing", Cost(hours=self.hours_each))] * (self.runs - self.done)

    @property
    def hours(self) -> float | None:
        """Hours for the runs still missing; None if the time of a run is not known."""
        return None if self.hours_each is None else (self.runs - self.done) * self.hours_each


def plan(name: str, *, verify: str = "bytes", repeats: int = 0, missing: bool = False) -> list[StagePlan]:
    """Each stage of a search, or of each of its repeats (`missing`: that is to do), and its final runs."""
    spec = load_search(name)
    if not repeats:
        return _plan(StagedSearch(spec, verify))
    planned = []
    for repeat in spec.repeats_to_do(repeats, missing=missing):
        search = StagedSearch(spec, verify, repeat)
        stages = _plan(search)
        ended = search.running == len(search.stages)
        finals = search.finals if ended else runs_of_winner(spec, search.points[0], verify=verify)
        done = [record for record in map(search.record, finals) if record and ended]
        hours = _hours_of(done) or _measured([finals[0]])[0]
        stages.append(StagePlan(f"{len(finals)} final runs", len(finals), len(done), hours, finals[0]))
        planned += [replace(stage, text=f"repeat {repeat}: {stage.text}") for stage in stages]
    return planned


def _plan(search: StagedSearch) -> list[StagePlan]:
    """Each stage of a search as far as it is known now, and the most that extra trials can add.

    The time of a run is that of finished runs of its stage. Else a few steps of the first trial are measured,
    and of some others in the first stage: the first may have the usual settings, and larger networks take
    longer.
    """
    search.check()
    with contextlib.suppress(Lacking):
        search.advance(lambda _, runs: _refuse_lacking(search, runs))
    planned = []
    extra, extra_hours, larger = 0, 0.0, None
    most = search.spec.trials
    left = (search.spec.widen.times - len(search.rounds) + 1) if search.spec.widen else 0
    for i, stage in enumerate(search.stages):
        reached = [trial for trial, last in enumerate(search.last_stage) if last >= i]
        trials = max(len(reached), most)
        each = len(search.seeds(stage)) * len(stage.splits)
        records = [search.record(spec) for trial in reached for spec in search.specs(i, trial)]
        done = [record for record in records if record]
        like = search.specs(i, 0)[0]
        hours = _hours_of(done)
        if hours is None and (hours := _measured([like])[0]) is not None:
            larger = _over_first(search) if larger is None else larger
            hours *= larger
        about = {"trials": trials, "set": stage.set, "seeds": search.seeds(stage), "splits": stage.splits}
        planned.append(StagePlan(stage_text(about), trials * each, len(done), hours, like))
        if search.spec.widen:
            runs = left * min(search.spec.widen.trials, most) * each
            extra, extra_hours = extra + runs, extra_hours + runs * (hours or 0.0)
        most = stage.keep or most
    if extra:
        text = f"up to {left} times {search.spec.widen.trials} extra trials" if search.spec.widen else ""
        planned.append(StagePlan(text, extra, 0, extra_hours / extra, search.specs(0, 0)[0]))
    return planned


def _refuse_lacking(search: StagedSearch, runs: Sequence[RunSpec]) -> None:
    if any(search.record(spec) is None for spec in runs):
        raise Lacking(75)


def _hours_of(done: list[Record]) -> float | None:
    hours = [core_hours(record) for record in done if record["cost"] and record["status"] == "finished"]
    return statistics.fmean(hours) if hours else None


def _measured(specs: list[RunSpec]) -> list[float | None]:
    """Hours of runs by a few steps of each."""
    planned = planning.plan(specs, probe=not specs[0].config["plugins"])  # a look runs no code of others
    return [run.cost.hours for run in planned]


def _over_first(search: StagedSearch) -> float:
    """How many times as long as the first trial a trial takes in the mean, by some of the first stage."""
    trials = range(len(search.points))  # later ones may not be drawn yet
    some = [0, *trials[MEASURED::MEASURED]] if len(trials) > MEASURED else list(trials)
    specs = [search.specs(0, trial)[0] for trial in some]
    first, *others = (
        _hours_of([record]) if (record := search.record(spec)) else _measured([spec])[0] for spec in specs
    )
    known = [hours for hours in others if hours is not None]
    if not (first and known):
        return 1.0
    return (1 + (len(trials) - 1) * statistics.fmean(known) / first) / len(trials)
