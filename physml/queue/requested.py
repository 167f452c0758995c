"""The runs that a table or figure wants: composed, planned, made, and their records. No torch."""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from physml.base import files
from physml.base.errors import ConfigError, PhysmlError, suggest
from physml.base.lock import is_held
from physml.base.paths import display_path, work_root
from physml.config.compose import Composed, compose
from physml.config.conf_files import shown
from physml.config.identity import identity
from physml.queue import planning, scheduler
from physml.queue.processes import output_lines
from physml.records import record
from physml.records.record import Place
from physml.records.schema import Record
from physml.run import state as run_state
from physml.run.progress import tracked
from physml.run.spec import RunSpec, checked_specs, folder_of

Run = tuple[str, int, int]  # experiment, split, seed


@dataclass(frozen=True)
class RunOptions:
    """How requested runs are made."""

    smoke: bool = False  # at tiny sizes, with made-up data
    device: str | None = None  # of torch; None: that of each config
    verify: str | None = None  # how data files are compared with the published ones; None: as in each config
    force: bool = False  # train again what is done
    jobs: int | None = None  # side by side; None: as many as the machine has room for
    max_hours: float | None = None  # stop after so many, with checkpoints
    yes: bool = False  # runs of very many core-hours too

    @property
    def profile(self) -> str:
        return "smoke" if self.smoke else "full"


class RequestedRuns:
    """The runs that a table or figure wants.

    rows: experiments of rows of the reader's own, with their labels: they alone may be trained; None: all.
    metrics: experiment -> the metrics that its runs must have, such as test/rmse, with the directions that a
        table says.
    `broken` has for an experiment why it cannot be right, `blocked` why it cannot be run here, for want of
    data.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        options: RunOptions,
        ident: str,
        rows: Mapping[str, str] | None = None,
        metrics: Mapping[str, Mapping[str, str | None]] | None = None,
    ) -> None:
        self.runs, self.options, self.id, self.rows = runs, options, ident, rows
        self.metrics = metrics or {}
        self._told: set[str] = set()  # the broken experiments of which the reader has been told
        chosen = {"profile": options.profile, "runtime.device": options.device, "data.verify": options.verify}
        self.overrides = [f"{key}={value}" for key, value in chosen.items() if value]
        self.identities: dict[str, str | None] = {}
        self.provenance: dict[str, dict[str, Any]] = {}  # of the settings, as known today
        self.tasks: dict[str, str] = {}  # the class of each experiment's task
        self.broken: dict[str, str] = {}
        self.blocked: dict[str, str] = {}
        self.datasets: set[str] = set()  # of conf/dataset, which the runs read
        self.plugins = False  # whether a run reads code or data files of the user
        self._compose_all()

    def _compose_all(self) -> None:
        lacking: dict[tuple[str, ...], str | None] = {}  # looked up once for the same data
        experiments = list(dict.fromkeys(experiment for experiment, _, _ in self.runs))
        for experiment in tracked(experiments, f"{self.id}: reading configs"):
            self.identities[experiment] = None
            with self._noting_errors(experiment):
                composed = self._composed(experiment, 0, 0)
                config, data = composed.config, composed.datasets
                self.identities[experiment] = identity(config)
                self.provenance[experiment] = config["provenance"]
                self.tasks[experiment] = config["task"]["_target_"].rpartition(".")[2]
                self.datasets |= set(data)
                self.plugins |= bool(config.get("plugins") or config["task"].get("files"))
                if data not in lacking:
                    lacking[data] = run_state.blocked_by(config, data)
                if reason := lacking[data]:
                    self.blocked[experiment] = reason

    @contextlib.contextmanager
    def _noting_errors(self, experiment: str) -> Iterator[None]:
        """An error of one experiment is kept for its row; the others go on."""
        try:
            yield
        except PhysmlError as error:
            self.broken.setdefault(experiment, str(error))

    def _composed(self, experiment: str, split: int, seed: int) -> Composed:
        return compose([f"experiment={experiment}", f"seed={seed}", f"split={split}", *self.overrides])

    def plan(self, *, probe: bool = False, run: bool = False) -> dict[Run, planning.Planned]:
        """Every run that can be made, with its state. Keys are checked here, before hours of training.

        probe: time a few steps of each. run: whether code of plugins may be run.
        """
        planned: dict[Run, planning.Planned] = {}
        trained = [e for e in self.identities if self.rows is None or e in self.rows]
        doing = "timing a few steps" if probe else "planning"
        for experiment in tracked([e for e in trained if e not in self.broken], f"{self.id}: {doing}"):
            runs = [run for run in self.runs if run[0] == experiment]
            with self._noting_errors(experiment):
                specs = self._specs(experiment, [(split, seed) for _, split, seed in runs], run or probe)
                states = planning.plan(specs, force=self.options.force, probe=probe)
                if run and any(state.todo for state in states):
                    self._refuse_wrong_metrics(experiment, specs[0].config)
                planned |= zip(runs, states, strict=True)
        return planned

    def _refuse_wrong_metrics(self, experiment: str, config: dict[str, Any]) -> None:
        from physml.config.build import build_task

        known: dict[str, str] = getattr(build_task(config), "better", {})  # {} where only its data tell
        for metric, better in self.metrics.get(experiment, {}).items():
            part, _, name = metric.partition("/")
            if known and name not in known:
                hint = suggest(metric, [f"{part}/{other}" for other in known])
                raise ConfigError(f"its task has no metric {metric}. {hint}")
            if known and better and known[name] != better:
                raise ConfigError(f"{known[name]} {name} is better, says its task; the table says {better}.")

    def refuse_broken_rows(self) -> None:
        """ConfigError where a row of the reader's own cannot be run."""
        for experiment, label in (self.rows or {}).items():
            if experiment in self.broken:
                raise ConfigError(f"row {label}: {self.broken[experiment]}")

    def tell_broken(self) -> int:
        """Say why experiments cannot be run, each once; the exit code for that, 0 if all can.

        Errors: ConfigError for a row of the reader's own.
        """
        self.refuse_broken_rows()
        for experiment, reason in self.broken.items():
            if experiment not in self._told:
                print(f"error: {experiment} cannot be run: {reason}", file=sys.stderr)
        self._told |= self.broken.keys()
        return 2 if self.broken else 0

    def _specs(self, experiment: str, places: Sequence[tuple[int, int]], run: bool) -> list[RunSpec]:
        """Composed and checked once, where split and seed are all that the runs differ in."""
        first, other = self._composed(experiment, 0, 0), self._composed(experiment, 1, 1)
        if other.config | {"split": 0, "seed": 0} != first.config:  # an interpolation, say
            return checked_specs([self._composed(experiment, *at) for at in places], run=run)
        (spec,) = checked_specs([first], run=run)
        return planning.at_places(spec, places)

    @property
    def untrainable(self) -> dict[str, str]:
        """Experiment -> why there can be no new run of it."""
        return {**self.blocked, **self.broken}

    def make(self) -> int:
        """Trains what is missing; returns the exit code. What is blocked is no failure: the table says it."""
        planned = self.plan(run=True)
        bad_config = self.tell_broken()
        if not (self.options.yes or self.options.max_hours or scheduler.maker()):
            planning.refuse_long(list(planned.values()))
        outcome = scheduler.carry_out(
            list(planned.values()),
            jobs=self.options.jobs,
            force=self.options.force,
            max_hours=self.options.max_hours,
            tables=[self.id],
        )
        for run, state in planned.items():
            if outcome.codes.get(state.spec.label) == 2:
                errors = [line for line in output_lines(state.spec) if line.startswith("error: ")]
                reason = errors[-1].removeprefix("error: ") if errors else None
                self.broken.setdefault(run[0], reason or f"see {display_path(state.spec.output_file)}")
        self.tell_broken()
        return max(outcome.exit_code, bad_config)

    def records(self) -> list[Record]:
        """All records of the experiments in this profile: a smoke run is no stale full one."""
        return self._of_profile({})

    def wanted_records(self) -> list[Record]:
        """Those of the splits and seeds of the runs alone; others are not read."""
        places: dict[str, set[tuple[int, int]]] = {}
        for experiment, split, seed in self.runs:
            places.setdefault(experiment, set()).add((split, seed))
        return self._of_profile(places)

    def _of_profile(self, places: Mapping[str, Collection[tuple[int, int]]]) -> list[Record]:
        """places: splits and seeds for each experiment; empty: all."""
        records: list[Record] = []
        for experiment in self.identities:
            with self._noting_errors(experiment):
                noting = partial(self._noting_errors, experiment)  # a damaged record, and the others are read
                every = record.records(folder_of(experiment), places=places.get(experiment), noting=noting)
                of_profile = (r for r in every if r["config"]["profile"] == self.options.profile)
                # A folder of ad hoc runs may have those of another file with the same name.
                name, key = shown(experiment), self.identities[experiment]
                own = (r for r in of_profile if r["experiment"] == name or r["identity"] == key)
                records += [self._known(experiment, r) for r in own]
        return records

    def _known(self, experiment: str, recorded: Record) -> Record:
        """A run by the name that was asked for, with what is known today of its settings."""
        known: Record = {**recorded, "experiment": experiment}
        if recorded["identity"] == self.identities[experiment]:
            known["provenance"] = self.provenance[experiment]
        return known

    def running(self) -> set[Run]:
        """Runs that a process works on now, by their locks."""
        known = [(run, key) for run in self.runs if (key := self.identities[run[0]])]
        places = {run: Place(folder_of(run[0]), key, split=run[1], seed=run[2]) for run, key in known}
        names = {
            folder: set(files.names_in(work_root() / folder))
            for folder in {at.folder for at in places.values()}
        }
        return {
            run
            for run, at in places.items()
            if at.stem in names[at.folder] and is_held(work_root() / at.folder / at.stem)
        }
