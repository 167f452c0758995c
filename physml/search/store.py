"""The trials of a search that many workers share: an Optuna study in a file of the results folder, or in a
database.

A trial is a run. A worker takes a trial under a lock, one at a time, so there are never more than were asked
for; it holds a lock of its own as long as it lives, so the trials of a dead one are known, and taken over.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from physml.base.errors import Busy, ConfigError, DataError, MissingExtra, needed_by
from physml.base.lock import held, is_held
from physml.base.paths import display_path, results_root, work_root
from physml.search.points import Space, optuna_module
from physml.search.space import Range, range_of

PATIENCE_S = 120.0  # for the lock under which trials are taken
OWNER, END = "worker", "end"  # attributes of a trial


@dataclass(frozen=True)
class Budget:
    """Settings that the workers on one study share.

    Args:
        space: Config key to a range, or to a list.
        better: lower or higher.
        sampler: random, tpe, gp or cmaes.
        pruner: none, median or hyperband.
        trials: How many at most; diverged, pruned and failed ones count.
        seed: Seed of the sampler.
        epochs: Epochs of a run, for the pruner.
    """

    space: Space
    better: str
    sampler: str
    pruner: str
    trials: int
    seed: int
    epochs: int


class TrialStore:
    """One study, as one worker sees it.

    Args:
        name: Name of the study.
        about: What its trials have in common: a study of the same name is another one if this differs.
        budget: Space, sampler, pruner and number of trials.
        storage: URL of a database; None: a journal in the results folder.

    Errors: ConfigError where the storage cannot be opened.
    """

    def __init__(self, name: str, about: dict[str, Any], budget: Budget, storage: str | None = None) -> None:
        self.budget = budget
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
        self.name = f"{name}-{digest}"
        self.folder = work_root() / "search" / self.name
        self.worker = f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._optuna = optuna_module()
        with _patiently_held(work_root() / "search"):  # one creates the tables of a new database
            self.place, opened = self._opened(storage)
        with self._alone(), _reached(self.place):
            self.study = self._optuna.create_study(
                study_name=self.name,
                storage=opened,
                direction="minimize" if budget.better == "lower" else "maximize",
                pruner=_pruner(self._optuna, budget),
                load_if_exists=True,
            )

    def _opened(self, storage: str | None) -> tuple[str, Any]:
        """Path or URL of the store, without a password, and Optuna's object."""
        storages = self._optuna.storages
        if storage is None:
            path = results_root() / "search" / f"{self.name}.journal"
            path.parent.mkdir(parents=True, exist_ok=True)
            backend = storages.journal.JournalFileBackend(
                str(path), _JournalLock(path, self.folder / "journal")
            )
            return display_path(path), storages.JournalStorage(backend)
        with needed_by("a database of trials"):
            import sqlalchemy

            try:
                shown = sqlalchemy.make_url(storage).render_as_string(hide_password=True)
            except sqlalchemy.exc.ArgumentError as error:
                raise ConfigError(
                    f"--storage takes a URL such as postgresql+psycopg://user@host/base; got {storage!r}."
                ) from error
            try:
                with _reached(shown):
                    return shown, storages.RDBStorage(storage, engine_kwargs={"pool_pre_ping": True})
            except ImportError as error:
                raise MissingExtra(
                    f"{shown} needs a driver that is not installed. "
                    "That of PostgreSQL: pip install 'physml[postgresql]'"
                ) from error

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Be a worker: others see that this process lives."""
        folder = self.folder / "workers" / self.worker
        with held(folder):
            yield
        shutil.rmtree(folder, ignore_errors=True)

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return _patiently_held(self.folder)

    # ------------------------------------------------------------------ trials

    def all(self) -> list[Any]:
        """Optuna's frozen trials, in their order."""
        with _reached(self.place):
            return list(self.study.get_trials(deepcopy=False))

    def open(self) -> int:
        """Trials that are to begin or to end."""
        trials = self.all()
        return max(self.budget.trials - len(trials), 0) + sum(not one.state.is_finished() for one in trials)

    def take(self, settle: Callable[[Any], bool]) -> Any | None:
        """A trial for this worker: one that a dead worker has left, else a new one; None: there is none now.

        settle: tells the end of a left trial whose run had ended, and whether it could.
        """
        with self._alone(), _reached(self.place):
            trials = list(self.study.get_trials(deepcopy=False))
            for one in trials:
                if one.state.is_finished() or self._has_owner(one):
                    continue
                if {*one.params} < {
                    *self.budget.space
                }:  # its worker was killed before it had drawn the point
                    return self._drawn(one.number, partial(self._trial, one))
                if not settle(one):
                    return self._own(self._trial(one))
            if len(trials) >= self.budget.trials:
                return None
            return self._drawn(len(trials), self.study.ask)

    def _drawn(self, number: int, begun: Callable[[], Any]) -> Any:
        """A trial of ours with a point."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            self.study.sampler = _sampler(self._optuna, self.budget, number)
            trial = self._own(begun())
            for key in self.budget.space:
                _suggest(trial, key, range_of(self.budget.space, key), self.budget.space[key])
        return trial

    def _trial(self, frozen: Any) -> Any:
        return self._optuna.trial.Trial(self.study, frozen._trial_id)

    def _has_owner(self, trial: Any) -> bool:
        name = trial.user_attrs.get(OWNER, "")
        return bool(name) and (name == self.worker or is_held(self.folder / "workers" / name))

    def _own(self, trial: Any) -> Any:
        trial.set_user_attr(OWNER, self.worker)
        return trial

    def give_back(self, trial: Any) -> None:
        """Let another worker go on with a trial."""
        with _reached(self.place):
            self._trial(trial).set_user_attr(OWNER, "")

    def tell(self, trial: Any, value: float | None, status: str) -> None:
        """The end of a trial: finished, with a value; diverged, refused, pruned or failed, without."""
        states = self._optuna.trial.TrialState
        # To a sampler a trial that diverged is what a pruned one is: worse than those with a value.
        state = {"finished": states.COMPLETE, "failed": states.FAIL}.get(status, states.PRUNED)
        with _reached(self.place), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not self.study.get_trials(deepcopy=False)[trial.number].state.is_finished():
                self._trial(trial).set_user_attr(END, status)
                self.study.tell(trial.number, value, state)

    def report(self, trial: Any, epoch: int, value: float) -> bool:
        """Tell a value under way; whether the trial is to be pruned."""
        with _reached(self.place), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.report(value, epoch)
            return bool(trial.should_prune())


def _sampler(optuna: Any, budget: Budget, number: int) -> Any:
    """For one trial: its seed differs from trial to trial, and so between workers."""
    seed, samplers = budget.seed + number, optuna.samplers
    if budget.sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if budget.sampler == "tpe":
        return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    if budget.sampler == "gp":
        return samplers.GPSampler(seed=seed)
    with needed_by("a search by CMA-ES"):
        import cmaes  # noqa: F401
    return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _pruner(optuna: Any, budget: Budget) -> Any:
    pruners, epochs = optuna.pruners, budget.epochs
    if budget.pruner == "median":
        return pruners.MedianPruner(n_startup_trials=8, n_warmup_steps=max(1, epochs // 10))
    if budget.pruner == "hyperband":
        return pruners.HyperbandPruner(max(1, epochs // 27), epochs, reduction_factor=3)
    return pruners.NopPruner()


def _suggest(trial: Any, key: str, span: Range | None, offered: Any) -> None:
    if span is None:
        trial.suggest_categorical(key, offered)
    else:
        trial.suggest_float(key, span.low, span.high, log=span.log)


@contextlib.contextmanager
def _reached(place: str) -> Iterator[None]:
    """DataError, with the place, where a store does not answer."""
    with needed_by("a search"):
        import optuna
        import sqlalchemy
    try:
        yield
    except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.DBAPIError) as error:
        said = str(error.__cause__ or error).strip().partition("\n")[0]
        raise DataError(
            f"{place} does not answer: {said}. Once it does, the same command goes on."
        ) from error


@contextlib.contextmanager
def _patiently_held(folder: Path) -> Iterator[None]:
    """A lock that workers hold for moments, in turn."""
    end = time.monotonic() + PATIENCE_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(held(folder))
                break
            except Busy:
                if time.monotonic() > end:
                    raise
        yield


class _JournalLock:
    """Optuna's lock on a journal, by a lock that the kernel frees when a worker is killed.

    Half a last line, which such a worker has left, is removed before the next one is written.
    """

    def __init__(self, journal: Path, folder: Path) -> None:
        self.journal, self.folder = journal, folder
        self.stack = contextlib.ExitStack()

    def acquire(self) -> bool:
        self.stack.enter_context(_patiently_held(self.folder))
        with self.journal.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if file.read() not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self.stack.close()
