"""A search in stages: many short runs, the best of them longer, the last few at full length on several seeds.

Each stage ranks its trials by the mean of the validation metric over its seeds and splits, and the first
`keep` go on. The runs of a stage are trained from their start, so a schedule fits its length. Where the best
value of a range is on its bound, the bound is widened and extra trials are drawn; every search of the group
`equal` gets as many. The winner is the trial with the best mean of all that reached the last stage.

All state is in the records of the runs: a search that was stopped at any moment goes on, and ends with the
same winner.
"""

import csv
import io
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from physml import files
from physml.config.studies import Found, Stage
from physml.errors import ConfigError, PhysmlError, RecordError, RunFailed, needed_by
from physml.execution import planning, run_state, scheduler, search
from physml.execution.attempt import DONE
from physml.execution.run import existing
from physml.execution.run_spec import RunSpec
from physml.execution.search import SearchSpec
from physml.execution.search_report import lines, note, stage_text
from physml.execution.search_results import (
    budget,
    described,
    final_seeds,
    granted,
    results,
    results_path,
    unfinished_path,
)
from physml.execution.search_space import Bound, bounds, widened
from physml.paths import display_path, work_root
from physml.records import curves
from physml.records.schema import Record

ROUND = 1_000_000  # between the sampler seeds of two rounds
CURVE = 12  # rows of a curve that are kept beside a search


@dataclass(frozen=True)
class Round:
    """Trials drawn from one space, and the winner when they had run. bounds: the winner's values on one."""

    trials: int
    space: dict[str, Any]
    best: int | None = None
    bounds: list[Bound] = field(default_factory=list)


class Lacking(Exception):
    """Some runs of a stage have no result."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def staged(name: str) -> bool:
    """Whether a search has stages."""
    return search.load_search(name).stages is not None


def carry_out(
    name: str,
    *,
    jobs: int | None,
    max_hours: float | None = None,
    verify: str = "bytes",
    sampler_seed: int | None = None,
) -> int:
    """Make a search in stages, write all trials to results/search, and the best beside the study.

    sampler_seed: other points than those of the search's own seed. Their results have a file of their own,
    and the settings of the row stay.
    Returns the exit code: 1 if a run failed, 2 for bad input, 75 if runs lack a result otherwise.
    """
    search.in_this_checkout()
    made = StagedSearch(search.load_search(name), verify, sampler_seed)
    made.check()
    try:
        made.advance(_Trainer(made, jobs, max_hours).train)
    except Lacking as error:
        return error.code
    content = made.write()
    for line in lines(content, made.repeats(), made.behind()):
        print(line)
    return 0


class StagedSearch:
    """The state of a search in stages, read from the records of its runs."""

    def __init__(self, spec: SearchSpec, verify: str = "bytes", sampler_seed: int | None = None) -> None:
        self.spec, self.verify = spec, verify
        self.seed = spec.seed if sampler_seed is None else sampler_seed
        self.repeated = self.seed != spec.seed
        self.id = f"{spec.id}-sampler{self.seed}" if self.repeated else spec.id
        self.stages: list[Stage] = spec.stages or []
        self.rounds: list[Round] = []
        self.points: list[dict[str, Any]] = []  # of all rounds; the place of a point is its trial's number
        self.last_stage: list[int] = []  # that each trial has reached
        self.wants = 0  # extra rounds
        self.running = 0  # the stage whose runs are being made
        self._specs: dict[tuple[int, int], list[RunSpec]] = {}
        self._records: dict[str, Record] = {}  # of runs that have ended, by label

    # ------------------------------------------------------------------ before

    def check(self) -> None:
        """ConfigError where the group is not searched alike, or a seed is one of the final runs."""
        spec = self.spec
        for other in spec.equal:
            theirs = search.load_search(other)
            if budget(theirs) != budget(spec):
                raise ConfigError(
                    f"search {spec.id}: {other} has other trials, stages or extra trials; "
                    "searches of one `equal` must have the same."
                )
        if spec.equal and spec.experiment not in spec.equal:
            raise ConfigError(f"search {spec.id}: `equal` must name {spec.experiment} itself.")
        seeds = {seed for stage in self.stages for seed in self.seeds(stage)}
        if shared := seeds & final_seeds(spec.experiment):
            raise ConfigError(
                f"search {spec.id}: seeds {sorted(shared)} are those of the final runs. Use others."
            )
        if self.repeated and not results(spec):
            raise ConfigError(
                f"search {spec.id} has no results yet. Make it without --sampler-seed first: "
                "a repetition has as many trials."
            )
        first = search.trial_spec(spec, 0, search.draw(spec)[0], self.verify)
        search.check_metric(spec, first)
        run_state.refuse_blocked(first)

    def seeds(self, stage: Stage) -> list[int]:
        return stage.seeds or [self.spec.seed]

    # ------------------------------------------------------------------ the search

    def advance(self, train: Callable[[int, Sequence[int]], None]) -> None:
        """Go through all rounds and stages; `train(stage, trials)` makes their runs or raises Lacking."""
        space = self.spec.space
        while True:
            self._begin(space)
            trials = list(range(len(self.points)))
            for i, stage in enumerate(self.stages):
                for trial in trials:
                    self.last_stage[trial] = max(self.last_stage[trial], i)
                self.running = i
                train(i, trials)
                trials = self.ranked(i, trials)[: stage.keep]
                if not trials:
                    raise RunFailed(f"no trial of {self.id} gave a number in stage {i + 1}.")
            self.running = len(self.stages)  # none
            space = self._end(space)
            if len(self.rounds) > self.granted:
                return

    def _begin(self, space: dict[str, Any]) -> None:
        extra = self.spec.widen.trials if self.spec.widen else 0
        number = len(self.rounds)
        drawn = search.draw(
            replace(
                self.spec,
                space=space,
                trials=extra if number else self.spec.trials,
                seed=self.seed + ROUND * number,
                stages=None,
                widen=None,
                equal=[],
            )
        )
        self.rounds.append(Round(len(drawn), space))
        self.points += drawn
        self.last_stage += [0] * len(drawn)

    def _end(self, space: dict[str, Any]) -> dict[str, Any]:
        """Judge the round; returns the space of the next one."""
        best = self.best
        found = [self._accepted(best, one) for one in bounds(space, self.points[best])]
        times = self.spec.widen.times if self.spec.widen else 0
        number = len(self.rounds)
        if number > times:
            often = "once" if times == 1 else f"{times} times"
            why = f"bounds are moved {often} at most" if times else "the search has no extra trials"
            found = [replace(one, widened=None, reason=one.reason or why) for one in found]
        self.rounds[-1] = replace(self.rounds[-1], best=best, bounds=found)
        if any(one.widened is not None for one in found):
            self.wants = number
        return widened(space, found)

    def _accepted(self, best: int, one: Bound) -> Bound:
        """Without a move to a value that the setting itself refuses."""
        if one.widened is None:
            return one
        try:
            search.trial_spec(self.spec, best, self.points[best] | {one.key: one.widened}, self.verify)
        except PhysmlError as error:
            return replace(one, widened=None, reason=f"{one.widened:.3g} is refused: {error}")
        return one

    @property
    def granted(self) -> int:
        """Extra rounds of this search: the most that a search of its group wants."""
        if self.repeated:  # as many as the search that it repeats
            return len((results(self.spec) or {"rounds": [None]})["rounds"]) - 1
        return max(self.wants, granted(self.spec))

    def behind(self) -> list[str]:
        """Searches of the group that have been made and have fewer trials than this one."""
        mine = len(self.rounds)
        others = [other for other in self.spec.equal if other != self.spec.experiment]
        made = {other: results(search.load_search(other)) for other in others}
        return [other for other, content in made.items() if content and len(content["rounds"]) < mine]

    # ------------------------------------------------------------------ runs and their values

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
        """Of a run that has finished or diverged; others are made again."""
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
        """Of all trials that have reached the last stage, in any round."""
        last = len(self.stages) - 1
        return self.ranked(last, [t for t, reached in enumerate(self.last_stage) if reached == last])[0]

    # ------------------------------------------------------------------ results

    def write(self) -> dict[str, Any]:
        """results/search/<id>.json, curves beside it, the Optuna study, and the winner's row."""
        content = self.content()
        best = content["best"]
        path = results_path(self.id)
        found = Found(
            best["trial"],
            best["point"],
            note(content),
            f"results/search/{self.id}.json",
            trials=content["scored"],
            seeds=len(best["values"]),
            stages=[stage_text(one) for one in content["stages"]],
        )
        written = [path, self._write_curves()]
        files.write_json(path, content)
        self._keep(content)
        if not self.repeated:
            written.insert(0, search.write_row(self.spec.experiment, found))
        unfinished_path(self.id).unlink(missing_ok=True)
        return content | {"written": [display_path(one) for one in written]}

    def content(self) -> dict[str, Any]:
        """All that is known of the search, for its file; `best` is there once there is one."""
        rows = [self._row(trial) for trial in range(len(self.points))]
        last = len(self.stages) - 1
        best = None
        if any(row["status"] == "finished" for row in rows):
            row = rows[self.best]
            values = self.values(last, row["trial"])
            sd = statistics.stdev(values) if len(values) > 1 else None  # type: ignore[type-var]
            best = {key: row[key] for key in ("trial", "point", "value")} | {"sd": sd, "values": values}
        return {
            "search": described(self.spec),
            "sampler_seed": self.seed,
            "scored": sum(self.mean(0, trial) is not None for trial in range(len(self.points))),
            "wants": self.wants,
            "best": best,
            "stages": [self._stage(i) for i in range(len(self.stages))],
            "rounds": [asdict(one) for one in self.rounds],
            "trials": rows,
        }

    def _row(self, trial: int) -> dict[str, Any]:
        reached = self.last_stage[trial]
        means = [self.mean(stage, trial) for stage in range(reached + 1)]
        final = reached == len(self.stages) - 1
        ended = all(self.record(one) for one in self.specs(reached, trial))
        status = "missing"
        if ended and means[-1] is None:
            status = "diverged"
        elif ended:
            status = "finished" if final else "waiting" if reached >= self.running else "pruned"
        return {
            "trial": trial,
            "point": self.points[trial],
            "value": means[-1] if status == "finished" else None,
            "status": status,
            "stage": reached + 1,
            "means": means,
            "identity": self.specs(reached, trial)[0].place.identity,
        }

    def _stage(self, i: int) -> dict[str, Any]:
        stage = self.stages[i]
        trials = [trial for trial, reached in enumerate(self.last_stage) if reached >= i]
        costs = [
            cost
            for trial in trials
            for one in self.specs(i, trial)
            if (made := self.record(one)) and (cost := made["cost"])
        ]
        seconds = sum(cost.get("cpu_s", cost["train_s"]) for cost in costs)
        return {
            "set": stage.set,
            "seeds": self.seeds(stage),
            "splits": stage.splits,
            "trials": len(trials),
            "runs": sum(len(self.specs(i, trial)) for trial in trials),
            "cpu_hours": round(seconds / 3600, 4),
        }

    def unfinished(self, stage: int) -> str:
        """Write what there is, and say which trial is best so far."""
        content = self.content()
        files.write_json(unfinished_path(self.id), content)
        trials = [trial for trial, reached in enumerate(self.last_stage) if reached >= stage]
        if not (ranked := self.ranked(stage, trials)):
            return "no value so far"
        mean = self.mean(stage, ranked[0])
        return f"best so far in stage {stage + 1}: trial {ranked[0]}, valid/{self.spec.metric} {mean:.4g}"

    def _write_curves(self) -> Path:
        """The validation metric of every run over its steps, thinned."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["trial", "stage", "split", "seed", "step", f"valid/{self.spec.metric}"])
        for trial, reached in enumerate(self.last_stage):
            for stage in range(reached + 1):
                for one in self.specs(stage, trial):
                    about = [trial, stage + 1, one.place.split, one.place.seed]
                    table.writerows([*about, step, value] for step, value in self._curve(one))
        path = results_path(self.id).with_suffix(".curves.csv")
        files.write_text(path, text.getvalue())
        return path

    def _curve(self, one: RunSpec) -> list[tuple[int, str]]:
        made = self.record(one)
        try:
            if made is None:
                return []
            steps, values = curves.read_curve(made, f"valid/{self.spec.metric}")
        except RecordError:  # a run that diverged before its first evaluation has none
            return []
        last = len(steps) - 1
        kept = sorted({round(last * i / (CURVE - 1)) for i in range(CURVE)})
        return [(int(steps[i]), f"{values[i]:.4g}") for i in kept]

    def _keep(self, content: dict[str, Any]) -> None:
        """The trials as an Optuna study in SQLite, for Optuna's own plots and dashboard."""
        with needed_by("a search"):
            import optuna

        path = work_root() / "search" / f"{self.id}.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        study = optuna.create_study(
            storage=f"sqlite:///{path}",
            study_name=self.id,
            direction="minimize" if self.spec.better == "lower" else "maximize",
        )
        states = optuna.trial.TrialState
        ends = {"finished": states.COMPLETE, "pruned": states.PRUNED, "diverged": states.FAIL}
        spaces = [replace(self.spec, space=one.space) for one in self.rounds for _ in range(one.trials)]
        for row, of_round in zip(content["trials"], spaces, strict=True):
            trial = optuna.trial.create_trial(
                state=ends[row["status"]],
                value=row["value"],
                params=row["point"],
                distributions=search.distributions(of_round),
                intermediate_values={i: mean for i, mean in enumerate(row["means"]) if mean is not None},
            )
            study.add_trial(trial)

    def repeats(self) -> list[dict[str, Any]]:
        """The results of the same search with other sampler seeds, its own among them."""
        own = results_path(self.spec.id)
        paths = [own, *own.parent.glob(f"{self.spec.id}-sampler*.json")]
        made = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
        alike = [one for one in made if one["search"] == described(self.spec) and one["best"]]
        return sorted(alike, key=lambda one: int(one["sampler_seed"]))


class _Trainer:
    """Trains the runs of a stage."""

    def __init__(self, made: StagedSearch, jobs: int | None, max_hours: float | None) -> None:
        self.made, self.jobs = made, jobs
        self.until = None if max_hours is None else time.monotonic() + 3600 * max_hours

    def train(self, stage: int, trials: Sequence[int]) -> None:
        """Lacking unless every run has then finished or diverged."""
        made = self.made
        specs = [one for trial in trials for one in made.specs(stage, trial) if made.record(one) is None]
        if not specs:
            return
        what = f"round {len(made.rounds)}, stage {stage + 1} of {len(made.stages)}"
        print(f"{made.id}: {what}: {len(specs)} runs to do, best valid/{made.spec.metric} counts")
        hours = None if self.until is None else max((self.until - time.monotonic()) / 3600, 1e-9)
        outcome = scheduler.carry_out(
            planning.plan(specs), jobs=self.jobs, max_hours=hours, ended=lambda _: made.unfinished(stage)
        )
        lacking = [one for one in specs if made.record(one) is None]
        if not lacking:
            return
        failed = sum(bool(found and found["status"] == "failed") for found in map(existing, lacking))
        print(
            f"{made.id}: {what}: {len(lacking)} of {len(specs)} runs lack a result ({failed} failed). "
            "The settings stay; the same command makes them.",
            file=sys.stderr,
        )
        code = outcome.exit_code
        raise Lacking(code if code == 2 or (code == 1 and failed) else 75)
