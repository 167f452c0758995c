"""The trials of a search as an Optuna study, in a database or a journal, for Optuna's own tools.

The study is a copy: records say what the trials are, and a study that disagrees with them is made again. No
sampler reads it, so nothing in it can run code.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from physml.base import opened
from physml.base.errors import Busy, ConfigError, DataError, MissingExtra, needed_by, to_install
from physml.base.lock import held
from physml.base.paths import display_path, expanded, work_root
from physml.base.text import shown
from physml.records import record
from physml.records.searches import Content
from physml.search.points import Space, direction, distributions, optuna_module

JOURNAL = ".journal"


class TrialStore:
    """The copy of one search.

    Args:
        storage: URL of a database, or path of a journal; None: a SQLite file in the work folder.

    Errors: ConfigError for a storage that cannot be meant.
    """

    def __init__(self, name: str, better: str, storage: str | None = None) -> None:
        self.name, self.better = name, better
        self.folder = work_root() / "search" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        if not storage:
            with needed_by("a search"):
                from sqlalchemy import URL
            file = str(work_root() / "search" / f"{name}.db")  # whatever signs its folder has
            storage = URL.create("sqlite", database=file).render_as_string(hide_password=False)
        self.storage = storage
        self.place = place_of(self.storage)
        self.database: Any = None

    def update(self, content: Content) -> None:
        """Copy the trials of a search; does nothing while another worker copies them."""
        spaces = [draw["space"] for draw in content["rounds"] for _ in range(draw["trials"])]
        trials = [_trial(row, space) for row, space in zip(content["trials"], spaces, strict=True)]
        with contextlib.suppress(Busy), held(self.folder), _reached(self.place):
            storage = self._opened()
            study = self._study(storage)
            kept = study.get_trials(deepcopy=False)
            differing = [pair for pair in zip(kept, trials, strict=False) if _differs(*pair)]
            if differing or len(kept) > len(trials):
                if len(kept) > len(trials) or not all(_goes_on(*pair) for pair in differing):
                    print(f"{self.place}: made again, since it differed from the records", flush=True)
                optuna_module().delete_study(study_name=self.name, storage=storage)
                study, kept = self._study(storage), []
            for old, new in zip(kept, trials, strict=False):
                for step in new.intermediate_values.keys() - old.intermediate_values.keys():
                    storage.set_trial_intermediate_value(old._trial_id, step, new.intermediate_values[step])
                if new.state != old.state:
                    storage.set_trial_state_values(old._trial_id, new.state, new.values)
            study.add_trials(trials[len(kept) :])

    def _study(self, storage: Any) -> Any:
        return optuna_module().create_study(
            study_name=self.name, storage=storage, direction=direction(self.better), load_if_exists=True
        )

    def _opened(self) -> Any:
        storages = optuna_module().storages
        if "://" not in self.storage:
            path = expanded(self.storage).absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            return _journal(path)
        _refuse_irregular(self.storage, self.place)
        try:
            self.database = self.database or storages.RDBStorage(
                self.storage, engine_kwargs={"pool_pre_ping": True}
            )
            return self.database
        except ImportError as error:
            raise MissingExtra(
                f"{self.place} needs a driver that is not installed. "
                f"That of PostgreSQL: {to_install('postgresql')}"
            ) from error


def place_of(storage: str) -> str:
    """A storage without its secrets. ConfigError for what is neither a URL nor the path of a journal."""
    if "://" not in storage and storage.endswith(JOURNAL):
        return display_path(expanded(storage).absolute())
    with needed_by("a database of trials"):
        import sqlalchemy
    try:
        sqlalchemy.make_url(storage)
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
        raise ConfigError(
            "--storage takes a URL such as postgresql+psycopg://user@host/base, or the path of a journal, "
            "trials.journal; what came is neither."
        ) from error
    return shown(storage)


def _trial(row: Content, space: Space) -> Any:
    import optuna

    states = optuna.trial.TrialState
    ends = {"finished": states.COMPLETE, "pruned": states.PRUNED, "diverged": states.FAIL}
    return optuna.trial.create_trial(
        state=ends.get(row["status"], states.RUNNING),
        value=row["value"],
        params=row["point"],
        distributions=distributions(space, row["point"]),
        intermediate_values={i: mean for i, mean in enumerate(row["means"]) if mean is not None},
    )


def _differs(old: Any, new: Any) -> bool:
    """True if a kept trial cannot become what the records say."""
    means = {step: new.intermediate_values.get(step) for step in old.intermediate_values}
    ended = old.state.is_finished() and (old.state, old.values) != (new.state, new.values)
    kept, records = (
        (trial.params, trial.distributions, values)
        for trial, values in ((old, old.intermediate_values), (new, means))
    )
    return ended or kept != records


def _goes_on(old: Any, new: Any) -> bool:
    """True for a pruned trial that a later round ranks again; a study cannot take it up."""
    return old.state.name == "PRUNED" and old.params == new.params


# ---------------------------------------------------------------------------- storages


@contextlib.contextmanager
def _reached(place: str) -> Iterator[None]:
    """DataError, with the place, where a store does not answer or is damaged."""
    with needed_by("a search"):
        import optuna
        import sqlalchemy
    # RuntimeError: tables of another version of Optuna; the last three: values in them that are damaged.
    broken = (
        *(optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError, OSError, RuntimeError),
        *(ValueError, LookupError, TypeError),
    )
    try:
        yield
    except broken as error:
        known = error.strerror if isinstance(error, OSError) else None
        message = shown(known or str(error.__cause__ or error)).strip().partition("\n")[0]
        raise DataError(
            f"{place} does not answer: {message}. Once it does, the same command goes on. "
            "If it is damaged, delete it: it is made again from the records."
        ) from error


def _refuse_irregular(storage: str, place: str) -> None:
    """DataError where a link, FIFO or device is in place of one of SQLite's files, for it would follow it."""
    from sqlalchemy import make_url

    url = make_url(storage)
    if not url.drivername.startswith("sqlite") or not url.database or url.database == ":memory:":
        return
    for ending in ("", "-journal", "-wal", "-shm"):
        if kind := opened.irregular(Path(url.database + ending)):
            raise DataError(
                f"{place}{ending} is {kind}, expected a file. Delete it: it is made again from the records."
            )


def _journal(path: Path) -> Any:
    """Optuna's storage in a file of one line per change. The caller holds the lock of the search.

    Raises:
        DataError: A line is damaged.
    """
    storages = optuna_module().storages

    class Journal(storages.journal.JournalFileBackend):  # type: ignore[name-defined]
        line = 0

        def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
            with opened.reading(path) as file:
                for self.line, text in enumerate(file, 1):
                    if self.line > log_number_from:
                        yield _parsed(text)

    if path.exists() or path.is_symlink():
        content = opened.read_bytes(path, record.LARGEST)
        if not content.endswith(b"\n"):  # half a last line is what a killed writer has left
            with os.fdopen(opened.descriptor(path, os.O_RDWR), "r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    journal = Journal(str(path), threading.Lock())
    try:
        return storages.JournalStorage(journal)
    except Exception as error:  # Optuna fails in many ways on a change that does not fit those before
        raise DataError(
            f"{display_path(path)}:{journal.line}: damaged: {type(error).__name__} {error}. "
            "Delete the file: it is made again from the records."
        ) from error


def _parsed(line: bytes) -> Any:
    """A change; None for a line that is no JSON."""
    try:
        return opened.parsed(line.decode())
    except ValueError:
        return None
