"""A search in stages: many short runs, the best of them longer, the last few at full length on several seeds.

Each stage ranks its trials by the mean of the validation metric over its seeds and splits, and the first
`keep` go on. The runs of a stage are trained from their start, so a schedule fits its length. The points are
drawn at random; with `tpe` only the first ones are, and the others where those before were good in the first
stage. Where the best value of a range is on its bound, the bound is widened and extra trials are drawn; every
search of the group `equal` gets as many. The winner is the trial with the best mean of all that reached the
last stage.

All state is in the records of the runs: a search that was stopped at any moment goes on, and ends with the
same winner.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from physml.base import files
from physml.base.errors import ConfigError, PhysmlError, RunFailed
from physml.base.paths import display_path
from physml.config.studies import Found
from physml.queue import planning, scheduler
from physml.run import state as run_state
from physml.run.perform import existing
from physml.run.spec import RunSpec
from physml.search import plain as search
from physml.search.content import content_of, write_curves
from physml.search.points import Point, Space, Tried, guided_points, keep, random_points
from physml.search.report import lines, note, stage_text
from physml.search.results import (
    budget,
    described,
    final_seeds,
    granted,
    results,
)
from physml.search.space import Bound, bounds, widened
from physml.search.state import results_path, unfinished_path
from physml.search.trials import Round, SearchTrials

Train = Callable[[int, Sequence[int]], None]

ROUND = 1_000_000  # between the sampler seeds of two rounds


class Lacking(Exception):
    """Some runs of a stage have no result."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def staged(name: str) -> bool:
    """True if a search has stages."""
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
    made = StagedSearch(search.load_search(name), verify, sampler_seed)
    search.in_this_checkout(made.spec.experiment)
    made.check()
    made.refuse_blocked()
    try:
        made.advance(Trainer(made, jobs, max_hours).train)
    except Lacking as error:
        return error.code
    content = made.write()
    for line in lines(content, made.repeats(), made.behind()):
        print(line)
    return 0


class StagedSearch(SearchTrials):
    """A search in stages, from its records and to its results."""

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
        search.check_metric(spec, self._first)

    def refuse_blocked(self) -> None:
        """DataError for data that are missing."""
        run_state.refuse_blocked(self._first)

    @property
    def _first(self) -> RunSpec:
        return search.trial_spec(self.spec, 0, search.draw(self.spec)[0], self.verify)

    # ------------------------------------------------------------------ the search

    def advance(self, train: Train) -> None:
        """Go through all rounds and stages; `train(stage, trials)` makes their runs or raises Lacking."""
        space = self.spec.space
        while True:
            self.running = 0
            self._draw(space, train)
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

    def _draw(self, space: Space, train: Train) -> None:
        """Add the trials of a round. With TPE, a batch is run in the first stage before the next is drawn."""
        number, tpe = len(self.rounds), self.spec.tpe
        wanted = self.spec.trials
        if number:
            wanted = self.spec.widen.trials if self.spec.widen else 0
        seed = self.seed + ROUND * number
        self.rounds.append(Round(wanted, space))
        drawn = min(wanted, tpe.first) if tpe else wanted
        if tpe and number:
            drawn = 0
        given = [] if number else self.spec.points
        self._add([*given, *random_points(space, drawn - len(given), seed)])
        while tpe and drawn < wanted:
            train(0, range(len(self.points)))
            tried = [(point, self.mean(0, trial)) for trial, point in enumerate(self.points)]
            batch = min(tpe.batch, wanted - drawn)
            self._add(guided_points(space, tried, batch, seed + drawn, self.spec.better))
            drawn += batch

    def _add(self, points: list[Point]) -> None:
        self.points += points
        self.last_stage += [0] * len(points)

    def _end(self, space: Space) -> Space:
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

    # ------------------------------------------------------------------ results

    def write(self) -> dict[str, Any]:
        """results/search/<id>.json, curves beside it, the Optuna study, and the winner's row."""
        content = content_of(self)
        best = content["best"]
        path = results_path(self.id)
        found = Found(
            best["trial"],
            self.spec.set | best["point"],
            note(content),
            f"results/search/{self.id}.json",
            trials=content["scored"],
            seeds=len(best["values"]),
            stages=[stage_text(one) for one in content["stages"]],
        )
        written = [path, write_curves(self)]
        files.write_json(path, content)
        spaces = [one.space for one in self.rounds for _ in range(one.trials)]
        tried = [
            Tried(row["point"], space, row["status"], row["value"], row["means"])
            for row, space in zip(content["trials"], spaces, strict=True)
        ]
        keep(self.id, self.spec.better, tried)
        if not self.repeated:
            written.insert(0, search.write_row(self.spec.experiment, found))
        unfinished_path(self.id).unlink(missing_ok=True)
        return content | {"written": [display_path(one) for one in written]}

    def unfinished(self, stage: int) -> str:
        """Write what there is, and say which trial is best so far."""
        content = content_of(self)
        files.write_json(unfinished_path(self.id), content)
        trials = [trial for trial, reached in enumerate(self.last_stage) if reached >= stage]
        if not (ranked := self.ranked(stage, trials)):
            return "no value so far"
        mean = self.mean(stage, ranked[0])
        return f"best so far in stage {stage + 1}: trial {ranked[0]}, valid/{self.spec.metric} {mean:.4g}"

    def repeats(self) -> list[dict[str, Any]]:
        """The results of the same search with other sampler seeds, its own among them."""
        own = results_path(self.spec.id)
        paths = [own, *own.parent.glob(f"{self.spec.id}-sampler*.json")]
        made = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
        alike = [one for one in made if one["search"] == described(self.spec) and one["best"]]
        return sorted(alike, key=lambda one: int(one["sampler_seed"]))


class Trainer:
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
