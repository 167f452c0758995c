"""The runs that a table or figure wants: composed, planned, made, and their records. No torch."""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from physml.base import files
from physml.base.errors import PhysmlError
from physml.base.lock import is_held
from physml.base.paths import display_path, work_root
from physml.config.compose import Composed, compose
from physml.config.composed_cache import ComposedCache
from physml.config.conf_files import shown
from physml.queue import planning, scheduler
from physml.queue.processes import output_lines
from physml.records import record
from physml.records.record import Place
from physml.records.record_index import FolderStats, RecordIndex
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

    @property
    def profile(self) -> str:
        return "smoke" if self.smoke else "full"


class Kept:
    """Cached contents of configs and records, for several tables at once; until `close`.

    Files count as they were at the first look.
    """

    def __init__(self, stats: FolderStats | None = None) -> None:
        self.composed, self.records = ComposedCache(), RecordIndex(stats)
        self._lacking: dict[tuple[str, ...], tuple[str | None, set[Path]]] = {}

    def blocked_by(self, composed: Composed) -> str | None:
        """`run_state.blocked_by`, looked up once for the same data."""
        key = (composed.config["profile"], *composed.datasets)
        if key not in self._lacking:
            with files.noting() as sources:
                self._lacking[key] = run_state.blocked_by(composed.config, composed.datasets), sources
        reason, sources = self._lacking[key]
        files.note(*sources)
        return reason

    def close(self) -> None:
        self.composed.close()
        self.records.close()


class RequestedRuns:
    """The runs that a table or figure wants.

    only: the experiments that may be trained; None: all. kept: shared with others; None: looked up anew.
    `broken` has for an experiment why it cannot be right, `blocked` why it cannot be run here, for want of
    data.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        options: RunOptions,
        ident: str,
        only: Collection[str] | None = None,
        kept: Kept | None = None,
    ) -> None:
        self.runs, self.options, self.id, self.only, self.kept = runs, options, ident, only, kept
        chosen = {"profile": options.profile, "runtime.device": options.device, "data.verify": options.verify}
        self.overrides = [f"{key}={value}" for key, value in chosen.items() if value]
        self.identities: dict[str, str | None] = {}
        self.broken: dict[str, str] = {}
        self.blocked: dict[str, str] = {}
        self.datasets: set[str] = set()  # of conf/dataset, which the runs read
        self.plugins = False  # whether a run reads code or data files of the user
        with self._keeping() as keeping:
            self._compose_all(keeping)

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[Kept]:
        if self.kept is not None:
            yield self.kept
        else:
            with contextlib.closing(Kept()) as own:
                yield own

    def _compose_all(self, keeping: Kept) -> None:
        experiments = list(dict.fromkeys(experiment for experiment, _, _ in self.runs))
        for experiment in tracked(experiments, f"{self.id}: reading configs"):
            self.identities[experiment] = None
            with self._noting_errors(experiment):
                composed, key = keeping.composed.compose(experiment, ["seed=0", "split=0", *self.overrides])
                self.identities[experiment] = key
                self.datasets |= set(composed.datasets)
                self.plugins |= bool(composed.config.get("plugins") or composed.config["task"].get("files"))
                if reason := keeping.blocked_by(composed):
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
        trained = [e for e in self.identities if self.only is None or e in self.only]
        doing = "timing a few steps" if probe else "planning"
        for experiment in tracked([e for e in trained if e not in self.broken], f"{self.id}: {doing}"):
            runs = [run for run in self.runs if run[0] == experiment]
            with self._noting_errors(experiment):
                specs = self._specs(experiment, [(split, seed) for _, split, seed in runs], run or probe)
                made = planning.plan(specs, force=self.options.force, probe=probe)
                planned |= zip(runs, made, strict=True)
        return planned

    def _specs(self, experiment: str, wanted: Sequence[tuple[int, int]], run: bool) -> list[RunSpec]:
        """Composed and checked once, where split and seed are all that the runs differ in."""
        first, other = self._composed(experiment, 0, 0), self._composed(experiment, 1, 1)
        if other.config | {"split": 0, "seed": 0} != first.config:  # an interpolation, say
            return checked_specs([self._composed(experiment, *at) for at in wanted], run=run)
        (spec,) = checked_specs([first], run=run)
        return [
            dataclasses.replace(
                spec,
                config=spec.config | {"split": split, "seed": seed},
                place=dataclasses.replace(spec.place, split=split, seed=seed),
            )
            for split, seed in wanted
        ]

    @property
    def untrainable(self) -> dict[str, str]:
        """Experiment -> why there can be no new run of it."""
        return {**self.blocked, **self.broken}

    def make(self) -> int:
        """Trains what is missing; returns the exit code. What is blocked is no failure: the table says it."""
        planned = self.plan(run=True)
        bad_config = 2 if self.broken else 0
        outcome = scheduler.carry_out(
            list(planned.values()),
            jobs=self.options.jobs,
            force=self.options.force,
            max_hours=self.options.max_hours,
            tables=[self.id],
        )
        for run, one in planned.items():
            if outcome.codes.get(one.spec.label) == 2:
                errors = [line for line in output_lines(one.spec) if line.startswith("error: ")]
                reason = errors[-1].removeprefix("error: ") if errors else None
                self.broken.setdefault(run[0], reason or f"see {display_path(one.spec.output_file)}")
        return max(outcome.exit_code, bad_config)

    def records(self) -> list[Record]:
        """All records of the experiments in this profile: a smoke run is no stale full one."""
        return self._of_profile(lambda experiment: record.records(folder_of(experiment)))

    def wanted_records(self) -> list[Record]:
        """Those of the splits and seeds of the runs alone; of many records the index spares reading most."""
        wanted: dict[str, set[tuple[int, int]]] = {}
        for experiment, split, seed in self.runs:
            wanted.setdefault(experiment, set()).add((split, seed))
        with self._keeping() as keeping:
            return self._of_profile(lambda name: keeping.records.records(folder_of(name), wanted[name]))

    def _of_profile(self, read: Callable[[str], list[Record]]) -> list[Record]:
        found: list[Record] = []
        for experiment in self.identities:
            with self._noting_errors(experiment):
                wanted = (shown(experiment), self.identities[experiment])
                of_profile = (r for r in read(experiment) if r["config"]["profile"] == self.options.profile)
                # A folder of ad hoc runs may have those of another file with the same name.
                own = (r for r in of_profile if r["experiment"] == wanted[0] or r["identity"] == wanted[1])
                found += [{**r, "experiment": experiment} for r in own]
        return found

    def running(self) -> set[Run]:
        """Runs that a process works on now, by their locks."""
        known = [(run, key) for run in self.runs if (key := self.identities[run[0]])]
        places = {run: Place(folder_of(run[0]), key, split=run[1], seed=run[2]) for run, key in known}
        there = {
            folder: set(files.names_in(work_root() / folder))
            for folder in {at.folder for at in places.values()}
        }
        return {
            run
            for run, at in places.items()
            if at.stem in there[at.folder] and is_held(work_root() / at.folder / at.stem)
        }
