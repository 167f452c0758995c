"""A copy of every run for W&B. Never the truth, never a prompt, never a reason for a run to fail."""

import logging
import netrc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from physml.runspec import RunSpec

log = logging.getLogger(__name__)


class Tracker(Protocol):
    id: str | None

    def row(self, row: dict[str, Any]) -> None: ...
    def finish(self, summary: dict[str, Any], plot: Path | None, exit_code: int) -> None: ...


class NoTracker:
    id: str | None = None

    def row(self, row: dict[str, Any]) -> None:
        pass

    def finish(self, summary: dict[str, Any], plot: Path | None, exit_code: int) -> None:
        pass


def logged_in() -> bool:
    """A key in the environment or in ~/.netrc: all that wandb itself would look at without asking."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").partition("://")[2].strip("/")
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def mode_of(wanted: str) -> str:
    """`auto` becomes online or offline before wandb is asked anything."""
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "online"):
        return os.environ["WANDB_MODE"]
    if wanted == "auto":
        return "online" if logged_in() else "offline"
    return wanted


def start(spec: RunSpec, tables: list[str]) -> Tracker:
    keys = spec.config["tracker"]
    if keys["kind"] == "none":
        return NoTracker()
    tracker = WandbTracker(spec, keys, tables)
    return tracker if tracker.run is not None else NoTracker()


class WandbTracker:
    """Group = experiment@identity, tags = table ids; each call guarded."""

    def __init__(self, spec: RunSpec, keys: dict[str, Any], tables: list[str]) -> None:
        self.run: Any = None
        self.id: str | None = None
        self._guarded("init", lambda: self._init(spec, keys, tables))

    def _init(self, spec: RunSpec, keys: dict[str, Any], tables: list[str]) -> None:
        import wandb

        folder = spec.work_folder
        place = spec.place
        self.run = wandb.init(
            project=keys["project"],
            group=f"{place.folder}@{place.identity}",
            job_type=spec.config["profile"],
            name=f"{place.folder}-{place.stem}",
            id=f"{place.folder.replace('/', '-')}-{place.stem}"[-120:],
            resume="allow",
            tags=[*tables, *keys["tags"]],
            config=spec.config,
            dir=str(folder),
            mode=mode_of(keys["mode"]),
            settings=wandb.Settings(silent=True, init_timeout=30, disable_git=True, console="off"),
        )
        self.id = self.run.id

    def row(self, row: dict[str, Any]) -> None:
        self._guarded("log", lambda: self.run.log(row, step=row["step"]))

    def finish(self, summary: dict[str, Any], plot: Path | None, exit_code: int) -> None:
        def end() -> None:
            import wandb

            self.run.summary.update(summary)
            if plot is not None:
                self.run.log({"curves": wandb.Image(str(plot))})
            self.run.finish(exit_code=exit_code)

        self._guarded("finish", end)

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a tracker's fault is noted and never hurts the run
            log.warning("W&B %s failed: %s: %s. The run goes on without it.", what, type(error).__name__, error)
            self.run = None if what == "init" else self.run
