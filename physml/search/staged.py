"""A search in stages: many short runs, the best of them longer, the last few at full length on several seeds.

Each stage ranks its trials by the mean of the validation metric over its seeds and splits, and the first
`keep` go on; every combination of categories has its share of the second stage. The runs of a stage are
trained from their start, so a schedule fits its length. Where the best value of a range is on its bound, the
bound is widened and extra trials are drawn; every search of the group `equal` gets as many. The winner is the
trial with the best mean of all that reached the last stage. A search without stages has one.

All state is in the records of the runs: a search that was stopped at any moment goes on, and ends with the
same winner. So any number of workers can carry out one search in a shared folder: all of them draw the same
points, and the lock of each run keeps two from making it.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from physml.base import files
from physml.base.errors import PhysmlError, RunFailed
from physml.base.paths import display_path
from physml.config.studies import Found
from physml.queue import planning, scheduler
from physml.records import searches as results
from physml.records.record import checked
from physml.records.searches import Content
from physml.run import state as run_state
from physml.run.perform import existing
from physml.run.spec import RunSpec
from physml.search import report
from physml.search.points import Point, Space, designed, estimated, optuna_module, promoted
from physml.search.space import Bound, bounds, widened
from physml.search.spec import check, in_this_checkout, load_search, run_of, write_found
from physml.search.store import TrialStore
from physml.search.trials import Round, SearchTrials, content_of

Train = Callable[[str, Sequence[RunSpec]], None]

ROUND = 1_000_000  # between the sampler seeds of two rounds


class Lacking(Exception):
    """Some runs of a stage have no result. Its argument is the exit code."""


def carry_out(
    name: str,
    *,
    jobs: int | None,
    max_hours: float | None = None,
    verify: str = "bytes",
    repeats: int = 0,
    missing: bool = False,
    storage: str | None = None,
    yes: bool = False,
) -> int:
    """Make a search, write all trials to results/search, and the best beside the study.

    Args:
        repeats: Repeat it so often with other points instead; the settings of the row stay.
        missing: Leave out the repeats whose results there are.
        storage: Place of the copy of the trials, as `TrialStore` takes it.
        yes: Start runs of more than 24 core-hours too; else they are refused, unless max_hours is given.

    Returns the exit code: 1 if a run failed, 2 for bad input, 75 if runs lack a result otherwise.
    """
    spec = load_search(name)
    in_this_checkout(spec.experiment)
    optuna_module()  # refused before any run where it is not installed
    numbers = spec.repeats_to_do(repeats, missing=missing) if repeats else [0]
    until = None if max_hours is None else time.monotonic() + 3600 * max_hours
    for number in numbers:
        search = StagedSearch(spec, verify, number)
        search.check(run=True)
        store = TrialStore(search.id, spec.better, storage)
        trainer = Trainer(search, jobs, until, store, yes or until is not None or bool(scheduler.maker()))
        try:
            search.advance(trainer.train)
            trainer.train("final runs", search.finals)
        except Lacking as error:
            return int(error.args[0])
        content = search.write()
        trainer.store.update(content)
        print("\n".join(report.lines(content, search.behind(), search.written)))
    if repeats:
        print("\n".join(report.repeat_lines(spec.id)))
    return 0


class StagedSearch(SearchTrials):
    """A search, from the records of its runs to its results."""

    def check(self, *, run: bool = False) -> None:
        """ConfigError for a search that cannot be made so; DataError for data that are missing."""
        check(self.spec, run=run)
        run_state.refuse_blocked(run_of(self.spec, {}, verify=self.verify))

    # ------------------------------------------------------------------ the search

    def advance(self, train: Train) -> None:
        """Go through all rounds and stages; `train(what, runs)` makes runs or raises Lacking."""
        space = self.spec.space
        while True:
            self.running = 0
            self._draw(space, train)
            if not self._ends(0, range(len(self.points)), space, train):
                raise RunFailed(f"no trial of {self.id} gave a number in every stage.")
            self.running = len(self.stages)  # none
            space = self._end(space)
            if len(self.rounds) > max(self.wants, self.spec.granted):
                return

    def _ends(self, i: int, trials: Sequence[int], space: Space, train: Train) -> bool:
        """True if one of the trials has a value in the last stage.

        The best go on first, and where all of these diverge later, as many of the next.
        """
        for trial in trials:
            self.last_stage[trial] = max(self.last_stage[trial], i)
        self.running = i
        self._train(i, trials, train)
        ranked, keep = self.ranked(i, trials), self.stages[i].keep or len(trials)
        if i + 1 == len(self.stages):
            return bool(ranked)
        first = promoted(space, self.points, ranked, keep) if i == 0 else ranked[:keep]
        rest = [trial for trial in ranked if trial not in first]
        groups = [first, *(rest[k : k + keep] for k in range(0, len(rest), keep))]
        return any(self._ends(i + 1, group, space, train) for group in groups if group)

    def _train(self, stage: int, trials: Iterable[int], train: Train) -> None:
        what = f"round {len(self.rounds)}, stage {stage + 1} of {len(self.stages)}"
        train(what, [spec for trial in trials for spec in self.specs(stage, trial)])

    def _draw(self, space: Space, train: Train) -> None:
        """Add the trials of a round. With TPE, a batch is run in the first stage before the next is drawn."""
        number, tpe = len(self.rounds), self.spec.tpe
        n_trials = self.spec.trials
        if number:
            n_trials = self.spec.widen.trials if self.spec.widen else 0
        seed, begun = self.seed + ROUND * number, len(self.points)
        self.rounds.append(Round(0, space))
        self._add([] if number else self.spec.given)
        first = min(n_trials, (0 if number else tpe.first) if tpe else n_trials)
        self._add(designed(space, self.points, begun + first - len(self.points), seed))
        while tpe and (left := begun + n_trials - len(self.points)) > 0:
            self._train(0, range(len(self.points)), train)
            tried = [(point, self.mean(0, trial)) for trial, point in enumerate(self.points)]
            drawn = estimated(space, tried, min(tpe.batch, left), seed, self.spec.better)
            if not drawn:  # every point of a space of lists
                return
            self._add(drawn)

    def _add(self, points: list[Point]) -> None:
        self.points += points
        self.last_stage += [0] * len(points)
        self.rounds[-1] = replace(self.rounds[-1], trials=self.rounds[-1].trials + len(points))

    def _end(self, space: Space) -> Space:
        """Judge the round; returns the space of the next one."""
        best = self.best
        on_bound = [self._accepted(best, bound) for bound in bounds(space, self.points[best])]
        times = self.spec.widen.times if self.spec.widen else 0
        number = len(self.rounds)
        if number > times:
            often = "once" if times == 1 else f"{times} times"
            why = f"bounds are moved {often} at most" if times else "the search has no extra trials"
            on_bound = [replace(bound, widened=None, reason=bound.reason or why) for bound in on_bound]
        self.rounds[-1] = replace(self.rounds[-1], best=best, bounds=on_bound)
        if any(bound.widened is not None for bound in on_bound):
            self.wants = number
        return widened(space, on_bound)

    def _accepted(self, best: int, bound: Bound) -> Bound:
        """Without a move to a value that the setting itself refuses."""
        if bound.widened is None:
            return bound
        try:
            run_of(self.spec, self.points[best] | {bound.key: bound.widened}, verify=self.verify)
        except PhysmlError as error:
            return replace(bound, widened=None, reason=f"{bound.widened:.3g} is refused: {error}")
        return bound

    def behind(self) -> list[str]:
        """Searches of the group that have been made and have fewer trials than this one."""
        others = {other: load_search(other).results for other in self.spec.equal}
        return [
            other
            for other, content in others.items()
            if content and len(content["rounds"]) < len(self.rounds)
        ]

    # ------------------------------------------------------------------ results

    def write(self) -> Content:
        """results/search/<id>.json, and the winner's row."""
        content = content_of(self)
        best, path = content["best"], results.results_path(self.id)
        files.write_json(path, checked(content))
        self.written = [display_path(path)]
        if not self.repeat:
            facts = {"drawn": len(self.points), "trials": content["scored"], "seeds": len(best["values"])}
            settings = self.spec.set | best["point"]
            best_setting = Found(best["trial"], f"results/search/{self.id}.json", settings, **facts)
            self.written.insert(0, write_found(self.spec, best_setting))
        results.unfinished_path(self.id).unlink(missing_ok=True)
        return content

    def unfinished(self) -> Content:
        """Write what there is."""
        content = content_of(self)
        files.write_json(results.unfinished_path(self.id), checked(content))
        return content


class Trainer:
    """Trains runs of a search, and keeps a copy of its trials.

    Args:
        until: Time of the monotonic clock after which no run is started.
        any_length: Start runs of any length.
    """

    def __init__(
        self,
        search: StagedSearch,
        jobs: int | None,
        until: float | None,
        store: TrialStore,
        any_length: bool,
    ) -> None:
        self.search, self.jobs, self.until, self.store = search, jobs, until, store
        self.any_length = any_length

    def train(self, what: str, specs: Sequence[RunSpec]) -> None:
        """Lacking unless every run has then finished or diverged."""
        search = self.search
        todo = [spec for spec in specs if search.record(spec) is None]
        if not todo:
            return
        planned = planning.plan(todo)
        if not self.any_length:
            planning.refuse_long(planned)
        self.store.update(search.unfinished())
        print(f"{search.id}: {what}: {len(todo)} runs to do, best valid/{search.spec.metric} counts")
        hours = None if self.until is None else max((self.until - time.monotonic()) / 3600, 1e-9)
        outcome = scheduler.carry_out(
            planned, jobs=self.jobs, max_hours=hours, ended=lambda _: self._best_text()
        )
        self.store.update(search.unfinished())
        lacking = [spec for spec in todo if search.record(spec) is None]
        if not lacking:
            return
        failed = sum(bool(record and record["status"] == "failed") for record in map(existing, lacking))
        print(
            f"{search.id}: {what}: {len(lacking)} of {len(todo)} runs lack a result ({failed} failed). "
            "The settings stay; the same command makes them.",
            file=sys.stderr,
        )
        code = outcome.exit_code
        raise Lacking(code if code == 2 or (code == 1 and failed) else 75)

    def _best_text(self) -> str:
        best = results.best_trial(self.search.unfinished())
        if best is None:
            return "no value so far"
        return f"best so far: trial {best['trial']}, valid/{self.search.spec.metric} {best['value']:.4g}"
