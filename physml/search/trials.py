"""The trials of a search: their runs, the values that rank them, and all of it for the file of results."""

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from physml.config.search_schema import Stage
from physml.queue.planning import at_places
from physml.records import searches as results
from physml.records.costs import core_hours
from physml.records.schema import Record, scores_of
from physml.records.searches import Content
from physml.run.attempt import DONE
from physml.run.perform import existing
from physml.run.spec import RunSpec
from physml.search.points import Point, Space
from physml.search.space import Bound
from physml.search.spec import DESIGN, SearchSpec, in_folder, run_of, runs_of_winner


@dataclass(frozen=True)
class Round:
    """Trials drawn from one space, and the winner when they had run. bounds: the winner's values on one."""

    trials: int
    space: Space
    best: int | None = None
    bounds: list[Bound] = field(default_factory=list)


class SearchTrials:
    """The trials of a search: their runs, and the values that rank them, read from the records.

    Args:
        repeat: 0 for the search itself; other numbers draw other points.
    """

    def __init__(self, spec: SearchSpec, verify: str = "bytes", repeat: int = 0) -> None:
        self.spec, self.verify, self.repeat = spec, verify, repeat
        self.seed = spec.sampler_seed(repeat)
        self.id = results.repeat_id(spec.id, repeat)
        self.stages = spec.stages
        self.rounds: list[Round] = []
        self.points: list[Point] = []  # of all rounds; the place of a point is its trial's number
        self.last_stage: list[int] = []  # that each trial has reached
        self.wants = 0  # extra rounds
        self.running = 0  # the stage whose runs are being made
        self.written: list[str] = []  # files of the results
        self._specs: dict[tuple[int, int], list[RunSpec]] = {}
        self._finals: list[RunSpec] | None = None
        self._records: dict[str, Record] = {}  # of runs that have ended, by label

    def seeds(self, stage: Stage) -> list[int]:
        return stage.seeds or [self.spec.seed]

    def specs(self, stage: int, trial: int) -> list[RunSpec]:
        """The runs of a trial in a stage: one for each split and seed."""
        key = stage, trial
        if key not in self._specs:
            content = self.stages[stage]
            run = run_of(self.spec, self.points[trial], verify=self.verify, of_stage=content.set)
            places = [(split, seed) for split in content.splits for seed in self.seeds(content)]
            self._specs[key] = at_places(in_folder(run, f"{self.id}/{trial:03d}"), places)
        return self._specs[key]

    def record(self, spec: RunSpec) -> Record | None:
        """The record of a finished or diverged run; None means the run must be repeated."""
        if spec.label not in self._records:
            record = existing(spec)
            if record is None or record["status"] not in DONE:
                return None
            self._records[spec.label] = record
        return self._records[spec.label]

    def score(self, spec: RunSpec, part: str = "valid") -> float | None:
        """The metric of a run; None where there is none, or it has diverged."""
        record = self.record(spec)
        if record is None or record["status"] != "finished":
            return None
        return scores_of(record).get(f"{part}/{self.spec.metric}")

    def mean(self, stage: int, trial: int) -> float | None:
        """None unless every run of the trial in this stage has a value."""
        values = [self.score(spec) for spec in self.specs(stage, trial)]
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

    @property
    def finals(self) -> list[RunSpec]:
        """The final runs of a repeat's winner, on test data; those of the search itself are its table's."""
        if self.repeat and self._finals is None:
            runs = runs_of_winner(self.spec, self.points[self.best], verify=self.verify)
            self._finals = [in_folder(spec, f"{self.id}/final") for spec in runs]
        return self._finals or []


# ---------------------------------------------------------------------------- the file of results


def content_of(search: SearchTrials) -> Content:
    """All that is known of the search, for its file; `best` is there once there is one."""
    rows = [_row(search, trial) for trial in range(len(search.points))]
    last = len(search.stages) - 1
    best = None
    if any(row["status"] == "finished" for row in rows):
        row = rows[search.best]
        values = [search.score(spec) for spec in search.specs(last, row["trial"])]
        sd = statistics.stdev(values) if len(values) > 1 else None  # type: ignore[type-var]
        best = {key: row[key] for key in ("trial", "point", "value")} | {"sd": sd, "values": values}
    return {
        "search": search.spec.described,
        "design": DESIGN,
        "sampler_seed": search.seed,
        "scored": sum(search.mean(0, trial) is not None for trial in range(len(search.points))),
        "wants": search.wants,
        "best": best,
        "stages": [_stage(search, i) for i in range(len(search.stages))],
        "rounds": [asdict(draw) for draw in search.rounds],
        "trials": rows,
        "final": _final(search) if best and search.running == len(search.stages) else None,
    }


def _final(search: SearchTrials) -> Content | None:
    """Test scores of the final runs of a repeat's winner; None before all have ended."""
    scores = {spec.label: search.score(spec, "test") for spec in search.finals}
    values = [value for value in scores.values() if value is not None]
    if not values or not all(search.record(spec) for spec in search.finals):
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    records = filter(None, map(search.record, search.finals))
    ended = [scores_of(record) for record in records if record["status"] == "finished"]
    columns = {
        metric: [number for score in ended if (number := score.get(metric)) is not None]
        for metric in sorted(ended[0])
        if metric.startswith("test/")
    }
    return {
        "metric": search.spec.metric,
        "mean": statistics.fmean(values),
        "sd": sd,
        "values": values,
        "runs": len(scores),
        "means": {m: statistics.fmean(column) for m, column in columns.items() if len(column) == len(ended)},
    }


def _row(search: SearchTrials, trial: int) -> Content:
    reached = search.last_stage[trial]
    means = [search.mean(stage, trial) for stage in range(reached + 1)]
    final = reached == len(search.stages) - 1
    ended = all(search.record(spec) for spec in search.specs(reached, trial))
    status = "missing"
    if ended and means[-1] is None:
        status = "diverged"
    elif ended:
        status = "finished" if final else "waiting" if reached >= search.running else "pruned"
    return {
        "trial": trial,
        "point": search.points[trial],
        "value": means[-1] if status == "finished" else None,
        "status": status,
        "stage": reached + 1,
        "means": means,
        "identity": search.specs(reached, trial)[0].place.identity,
    }


def _stage(search: SearchTrials, i: int) -> Content:
    stage = search.stages[i]
    trials = [trial for trial, reached in enumerate(search.last_stage) if reached >= i]
    ended = [record for trial in trials for spec in search.specs(i, trial) if (record := search.record(spec))]
    return {
        "set": stage.set,
        "seeds": search.seeds(stage),
        "splits": stage.splits,
        "trials": len(trials),
        "runs": sum(len(search.specs(i, trial)) for trial in trials),
        "cpu_hours": round(sum(map(core_hours, ended)), 4),
    }
