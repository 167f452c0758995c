"""A copy of a run for W&B: online, offline, or later from its record. In a sweep, the copy of its agent.

An agent of W&B sets WANDB_SWEEP_ID and WANDB_RUN_ID. The run is then copied under that id, into the sweep's
project: an id or a project of our own would take it out of its sweep.
"""

import logging
import netrc
import os
from typing import Any, ClassVar, Literal

from physml.base.errors import ConfigError, to_install
from physml.base.paths import results_root
from physml.base.text import shown
from physml.run import weights
from physml.run.trackers.tracker import GuardedTracker, Row, Service, TrackedRun, Tracker

log = logging.getLogger(__name__)

PUBLIC_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # names of W&B's own server in netrc files
Mode = Literal["online", "offline", "disabled"]
INIT_S = 30.0  # longest wait for W&B's servers at the start
FINISH_S = 60.0  # and at the end; what is not sent by then stays on disk for `wandb sync`


def logged_in() -> bool:
    """A key in the environment or in the netrc file: where wandb itself looks before it asks."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    own = os.environ.get("WANDB_BASE_URL", "").partition("://")[2].strip("/")
    try:
        known = netrc.netrc(os.environ.get("NETRC")).hosts
        return any(host in known for host in ([own] if own else PUBLIC_HOSTS))
    except (OSError, ValueError, netrc.NetrcParseError):
        return False


def mode_of(mode: str) -> Mode:
    """Decided before wandb is asked anything, for without a key it would ask for one."""
    set_by_user = os.environ.get("WANDB_MODE")
    if set_by_user in ("offline", "dryrun"):
        return "offline"
    if set_by_user == "disabled":
        return "disabled"
    mode = "online" if set_by_user == "online" else mode
    if mode == "online" and not logged_in():
        log.warning("W&B: not logged in, so this run stays offline. `wandb login`, then `physml track sync`.")
    return "online" if mode in ("auto", "online") and logged_in() else "offline"


def made_later(mode: str) -> bool:
    """True where nobody is logged in and nobody chose a mode: `physml track sync` then copies the record.

    An offline copy would take as long as importing torch.
    """
    return mode == "auto" and not (os.environ.get("WANDB_MODE") or in_sweep() or logged_in())


def in_sweep() -> bool:
    """True if an agent of W&B has started this process."""
    return bool(os.environ.get("WANDB_SWEEP_ID"))


class Wandb(Service):
    name: ClassVar[str] = "W&B"
    package: ClassVar[str] = "wandb"

    def start(self, run: TrackedRun) -> Tracker:
        """Online falls back to offline when W&B cannot be reached."""
        if not self.installed():
            if run.keys["mode"] != "auto":
                log.warning("W&B gets no copy: wandb is not installed. Get it: %s", to_install("track"))
            return Tracker()
        if made_later(run.keys["mode"]):
            return Tracker()
        mode = mode_of(run.keys["mode"])
        modes: tuple[Mode, ...] = ("online", "offline") if mode == "online" else (mode,)
        for mode in modes:
            tracker = WandbTracker(run, mode)
            if tracker.run is not None:
                return tracker
        return Tracker()

    def upload(self, run: TrackedRun) -> Tracker:
        return WandbTracker(run, mode_of(run.keys["mode"]))

    def address(self) -> str:
        if os.environ.get("WANDB_MODE") in ("offline", "dryrun"):
            return "offline runs in the work folders"
        return shown(os.environ.get("WANDB_BASE_URL") or f"https://{PUBLIC_HOSTS[0]}")

    def refuse(self) -> None:
        super().refuse()
        if os.environ.get("WANDB_MODE") in ("offline", "dryrun") or mode_of("auto") == "online":
            return
        if os.environ.get("WANDB_MODE") == "disabled":
            raise ConfigError("WANDB_MODE=disabled: nothing is sent.")
        raise ConfigError(
            "not logged in to W&B: nothing is sent. `wandb login`, or set WANDB_MODE=offline to write "
            "offline runs."
        )


class WandbTracker(GuardedTracker):
    """Group = experiment@identity, tags and `about` as the tracked run has them; each call guarded."""

    name: ClassVar[str] = "W&B"

    def __init__(self, run: TrackedRun, mode: Mode) -> None:
        self.run: Any = None
        self.mode = mode
        self.last: int | None = None  # the step of the last row that was logged here
        super().__init__(run)

    def _begin(self) -> None:
        import wandb

        run = self.tracked
        run.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.run = wandb.init(
                **self._place(),
                group=run.group,
                job_type=run.profile,
                name=run.name,
                tags=run.tags,
                config=run.config | {"about": run.about},
                dir=str(run.folder),
                mode=self.mode,
                settings=wandb.Settings(
                    silent=True,
                    console="off",
                    disable_git=True,
                    init_timeout=INIT_S,
                    finish_timeout=FINISH_S,
                    finish_timeout_raises=True,
                ),
            )
        except Exception:
            wandb.teardown()  # else the client holds this run's id as in use, and the next attempt fails
            raise
        self.id = self.run.id
        self.sent = getattr(self.run, "starting_step", 0) - 1

    def _place(self) -> dict[str, Any]:
        """Project and id of the copy; none in a sweep, whose agent sets them in the environment."""
        if in_sweep():
            return {}
        resume = "allow" if self.mode == "online" else None
        return {"project": self.tracked.keys["project"], "id": self.tracked.id, "resume": resume}

    def _log(self, row: Row) -> None:
        self.run.log(row, step=row["step"])
        self.last = row["step"]

    def finish(self, summary: Row, rows: list[Row], exit_code: int) -> None:
        if rows:
            self.guarded("plot", lambda: self._plot(rows))
        if self.last is not None:
            self.guarded("log", lambda: self._log_scores(summary))
        self.guarded("summary", lambda: self.run.summary.update(summary))
        self.guarded("files", self._save)
        self.guarded("finish", lambda: self.run.finish(exit_code=exit_code))

    def _log_scores(self, summary: Row) -> None:
        """In the last row too: a sweep takes its metric from the history."""
        scores = {key: value for key, value in summary.items() if "/" in key and value is not None}
        if scores:
            self.run.log(scores, step=self.last)

    def _save(self) -> None:
        """The record, and the weights where they were kept, as files of the copy."""
        for path in (results_root() / self.tracked.place.relative, self.tracked.folder / weights.NAME):
            if path.is_file():
                self.run.save(str(path), base_path=str(path.parent), policy="now")

    def _plot(self, rows: list[Row]) -> None:
        import wandb

        from physml.report.figure.pictures import plot_rows

        path = self.tracked.folder / "curves.png"
        plot_rows(rows, self.tracked.label, path)
        self.run.log({"curves": wandb.Image(str(path))}, step=self.last)
