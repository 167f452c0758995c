"""A search whose trials are asked for one by one, by workers that share a store.

A trial is a run like any other. Its validation metric is reported while it trains, so that a pruner can end
it. A trial whose worker has died is taken over and goes on from its checkpoint.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from physml.base import files
from physml.base.errors import ConfigError, PhysmlError, RunFailed
from physml.base.paths import display_path
from physml.queue import pilot
from physml.run import history
from physml.run import state as run_state
from physml.run.attempt import DONE
from physml.run.perform import existing
from physml.run.spec import RunSpec
from physml.search import plain as search
from physml.search.plain import SearchSpec
from physml.search.points import rounded
from physml.search.state import results_path, unfinished_path
from physml.search.store import END, OWNER, Budget, TrialStore
from physml.training import checkpoint

LOOK = 2.0  # seconds between two looks at the store, and at the values of runs


def adapted(spec: SearchSpec, **chosen: Any) -> SearchSpec:
    """The search with another sampler, pruner or number of trials: without stages, under an id of its own.

    Without any of them the search as it is.
    """
    if not chosen:
        return spec
    if not (spec.shared or "sampler" in chosen or "pruner" in chosen):
        raise ConfigError("--trials is for a search with --sampler or --pruner.")
    plain: dict[str, Any] = {"points": [], "stages": None, "tpe": None, "widen": None, "equal": []}
    made = replace(spec, **plain, **chosen)
    names = [spec.id, made.sampler, *([made.pruner] if made.pruner != "none" else [])]
    return replace(made, id="-".join(names))


def carry_out(
    made: "SharedSearch",
    *,
    own: bool,
    jobs: int | None,
    max_hours: float | None = None,
) -> int:
    """Work on a search until all its trials have ended, then write its results.

    own: the search is the row's, so the best trial becomes its setting.
    Returns the exit code: 1 if a trial failed, 75 if some have not ended.
    """
    spec = made.spec
    if own:
        search.in_this_checkout(spec.experiment)
    search.check_metric(spec, made.first)
    run_state.refuse_blocked(made.first)
    print(f"{spec.id}: {made.left()} of {spec.trials} trials to do, best valid/{spec.metric} counts")
    print(f"trials: {made.store.place}, study {made.store.name}", flush=True)
    with made.store.working():
        pilot.carry_out_from(made, jobs=jobs, max_hours=max_hours)
    if left := made.left():
        print(f"{spec.id}: {left} of {spec.trials} trials have not ended. The same command goes on.")
        return 75
    print("\n".join(made.written(own)))
    return 1 if any(row["status"] == "failed" for row in made.rows()) else 0


class SharedSearch:
    """The trials of one search, as the source of a scheduler's runs."""

    def __init__(self, spec: SearchSpec, storage: str | None, verify: str) -> None:
        self.spec, self.verify = spec, verify
        self.mine: dict[str, Any] = {}  # trials of this worker, by the label of their run
        self.pruned: set[str] = set()
        self.told: dict[str, int] = {}  # the last epoch that was reported
        self.looked_at = {"store": 0.0, "values": 0.0}
        self.finished = self.idle = False
        epochs = search.trial_spec(spec, 0, {}, verify).config["trainer"]["epochs"]
        budget = Budget(spec.space, spec.better, spec.sampler, spec.pruner, spec.trials, spec.seed, epochs)
        about = {key: value for key, value in search.described(spec).items() if key != "trials"}
        self.store = TrialStore(spec.id, about, budget, storage)

    @property
    def first(self) -> RunSpec:
        """A run like those of the trials."""
        return self._run(0, {})

    def _run(self, number: int, point: dict[str, Any]) -> RunSpec:
        one = search.trial_spec(self.spec, number, point, self.verify)
        folder = f"adhoc/search/{self.store.name}/{number:03d}"
        return replace(one, place=replace(one.place, folder=folder))

    def run_of(self, trial: Any) -> RunSpec:
        return self._run(trial.number, rounded(trial.params, self.spec.space))

    def _due(self, what: str) -> bool:
        if time.monotonic() - self.looked_at[what] < LOOK:
            return False
        self.looked_at[what] = time.monotonic()
        return True

    # ------------------------------------------------------------------ a source of runs

    def next(self) -> RunSpec | None:
        """The run of a trial that this worker takes; None: there is none now."""
        if self.finished or not self._due("store"):
            return None
        trial = self.store.take(self._settle)
        self.idle = trial is None
        if trial is None:
            self.finished = self.store.open() == 0
            return None
        self.looked_at["store"] = 0.0  # there may be more
        try:
            spec = self.run_of(trial)
        except PhysmlError as error:  # a point that the setting itself refuses
            print(f"{self.spec.id}: trial {trial.number} is refused: {error}", flush=True)
            self.store.tell(trial, None, "refused")
            return None
        if self._settle(trial):  # made before, of a store that was lost
            return None
        self.mine[spec.label] = trial
        return spec

    def more(self, wait: bool) -> bool:
        """True if trials may still come; without `wait`, only as long as others have not taken them all."""
        return not self.finished and (wait or not self.idle)

    def left(self) -> int:
        return self.store.open()

    def running(self) -> Iterator[RunSpec]:
        """The runs of all workers."""
        for trial in self.store.all():
            if not trial.state.is_finished() and {*trial.params} == {*self.spec.space}:
                yield self.run_of(trial)

    def to_stop(self, running: Iterable[RunSpec]) -> list[RunSpec]:
        """Report the values of runs to the pruner; those that it ends."""
        if self.spec.pruner == "none" or not self._due("values"):
            return []
        return [spec for spec in running if spec.label not in self.pruned and self._prunes(spec)]

    def _prunes(self, spec: RunSpec) -> bool:
        for epoch, value in self._values(spec):
            if epoch > self.told.get(spec.label, -1):
                self.told[spec.label] = epoch
                if self.store.report(self.mine[spec.label], epoch, value):
                    self.pruned.add(spec.label)
                    return True
        return False

    def _values(self, spec: RunSpec) -> Iterator[tuple[int, float]]:
        """Epoch and validation metric of each evaluation of a run."""
        try:
            lines = (spec.work_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                row = json.loads(line)
                yield int(row["epoch"]), float(row[f"valid/{self.spec.metric}"])
            except (ValueError, KeyError, TypeError):  # half a line, or one without this metric
                continue

    def ended(self, spec: RunSpec, code: int) -> tuple[int, str]:
        """Tell the end of a run; its exit code, and the best trial so far."""
        trial = self.mine.pop(spec.label)
        if spec.label in self.pruned and code in (75, -15):
            self.store.tell(trial, None, "pruned")
            checkpoint.remove(spec.work_folder)
            return 0, f"pruned after epoch {self.told[spec.label]}; {self.best_text()}"
        if self._settle(trial):
            return (1 if history.given_up(spec) else 0), self.best_text()
        self.store.give_back(trial)
        return (code if code in (0, 75) else 0), self.best_text()

    def _settle(self, trial: Any) -> bool:
        """Tell the end of a trial whose run has ended."""
        try:
            spec = self.run_of(trial)
        except PhysmlError:
            self.store.tell(trial, None, "refused")
            return True
        made = existing(spec)
        if made and made["status"] in DONE:
            best = made["metrics"]["best"] if made["status"] == "finished" else None
            value = best["valid"].get(self.spec.metric) if best else None
            self.store.tell(trial, value, "diverged" if value is None else "finished")
            return True
        if history.given_up(spec):
            self.store.tell(trial, None, "failed")
            return True
        return False

    # ------------------------------------------------------------------ results

    def _content(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"search": search.described(self.spec), "best": self._best(rows), "trials": rows}

    def best_text(self) -> str:
        """The best trial so far. Writes what there is, for a look at the search while it goes on."""
        rows = self.rows()
        best = self._best(rows)
        files.write_json(unfinished_path(self.spec.id), self._content(rows))
        if best is None:
            return "no value so far"
        return f"best so far: trial {best['trial']}, valid/{self.spec.metric} {best['value']:.4g}"

    def _best(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        scored = [row for row in rows if row["status"] == "finished"]
        sign = 1 if self.spec.better == "lower" else -1
        return min(scored, key=lambda row: sign * row["value"], default=None)

    def rows(self) -> list[dict[str, Any]]:
        """Facts known about each trial."""
        return [self._row(trial) for trial in self.store.all()]

    def _row(self, trial: Any) -> dict[str, Any]:
        status = trial.user_attrs.get(END) if trial.state.is_finished() else "running"
        return {
            "trial": trial.number,
            "point": rounded(trial.params, self.spec.space),
            "value": trial.value if status == "finished" else None,
            "status": status,
            "epochs": max(trial.intermediate_values, default=None),
            "worker": trial.user_attrs.get(OWNER),
        }

    def written(self, own: bool) -> list[str]:
        """Write results/search/<id>.json, and the best beside the study if the search is the row's own."""
        rows, spec = self.rows(), self.spec
        best = self._best(rows)
        path = results_path(spec.id)
        files.write_json(path, self._content(rows))
        unfinished_path(spec.id).unlink(missing_ok=True)
        if best is None:
            raise RunFailed(f"no trial of {spec.id} gave a number; see {display_path(path)}.")
        ends = Counter(row["status"] for row in rows)
        counts = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        files_written = [path]
        if own:
            files_written.insert(0, search.write_found(spec, best, ends["finished"]))
        sign = 1 if spec.better == "lower" else -1
        finished = sorted(
            (row for row in rows if row["status"] == "finished"), key=lambda r: sign * r["value"]
        )
        return [
            f"{spec.id}: {len(rows)} trials ({counts}) by {len({row['worker'] for row in rows})} worker(s)",
            *(f"  trial {row['trial']:3d}  {row['value']:.4g}  {row['point']}" for row in finished[:5]),
            f"best: trial {best['trial']}, valid/{spec.metric} {best['value']:.4g}",
            f"written: {', '.join(map(display_path, files_written))}",
        ]
