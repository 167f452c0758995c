"""A copy of every run for W&B. Never the truth, never a prompt, never a reason for a run to fail."""

import importlib.util
import logging
import netrc
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

from physml.execution.run_spec import RunSpec

log = logging.getLogger(__name__)

Row = dict[str, Any]

PUBLIC_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # names of W&B's own server in netrc files
Mode = Literal["online", "offline", "disabled"]
INIT_S = 30.0  # longest wait for W&B's servers at the start
FINISH_S = 60.0  # and at the end; what is not sent by then stays on disk for `wandb sync`


class Tracker:
    """Follows a run; this one does nothing."""

    id: str | None = None

    def row(self, row: Row) -> None:
        pass

    def finish(self, summary: Row, rows: list[Row], exit_code: int) -> None:
        pass


def logged_in() -> bool:
    """A key in the environment or in the netrc file: where wandb itself looks before it asks."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    own = os.environ.get("WANDB_BASE_URL", "").partition("://")[2].strip("/")
    try:
        known = netrc.netrc(os.environ.get("NETRC")).hosts
        return any(host in known for host in ([own] if own else PUBLIC_HOSTS))
    except (OSError, netrc.NetrcParseError):
        return False


def mode_of(wanted: str) -> Mode:
    """Decided before wandb is asked anything, for without a key it would ask for one."""
    set_by_user = os.environ.get("WANDB_MODE")
    if set_by_user in ("offline", "dryrun"):
        return "offline"
    if set_by_user == "disabled":
        return "disabled"
    wanted = "online" if set_by_user == "online" else wanted
    if wanted == "online" and not logged_in():
        log.warning("W&B: not logged in, so this run stays offline. `wandb login`, then `wandb sync`.")
    return "online" if wanted in ("auto", "online") and logged_in() else "offline"


def start(spec: RunSpec, tables: list[str]) -> Tracker:
    """A tracker as the config says. Online falls back to offline when W&B cannot be reached."""
    keys = spec.config["tracker"]
    if keys["kind"] == "none":
        return Tracker()
    if "wandb" not in sys.modules and importlib.util.find_spec("wandb") is None:
        if keys["mode"] != "auto":
            log.warning("W&B gets no copy: wandb is not installed. Get it: pip install 'physml[track]'")
        return Tracker()
    mode = mode_of(keys["mode"])
    modes: tuple[Mode, ...] = ("online", "offline") if mode == "online" else (mode,)
    for mode in modes:
        tracker = WandbTracker(spec, tables, mode)
        if tracker.run is not None:
            return tracker
    return Tracker()


class WandbTracker(Tracker):
    """Group = experiment@identity, tags = table ids; each call guarded."""

    def __init__(self, spec: RunSpec, tables: list[str], mode: Mode) -> None:
        self.run: Any = None
        self.failed = False
        self.label, self.folder = spec.label, spec.work_folder
        self._guarded("init", lambda: self._begin(spec, tables, mode))

    def _begin(self, spec: RunSpec, tables: list[str], mode: Mode) -> None:
        import wandb

        place, keys = spec.place, spec.config["tracker"]
        try:
            self.run = wandb.init(
                project=keys["project"],
                group=f"{place.folder}@{place.identity}",
                job_type=spec.config["profile"],
                name=f"{place.folder}-{place.stem}",
                id=f"{place.folder.replace('/', '-')}-{place.stem}"[-120:],
                resume="allow" if mode == "online" else None,
                tags=[*tables, *keys["tags"]],
                config=spec.config,
                dir=str(spec.work_folder),
                mode=mode,
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, init_timeout=INIT_S, finish_timeout=FINISH_S
                ),
            )
        except Exception:
            wandb.teardown()  # else the client holds this run's id as in use, and the next attempt fails
            raise
        self.id = self.run.id

    def row(self, row: Row) -> None:
        if not self.failed:
            self._guarded("log", lambda: self.run.log(row, step=row["step"]))

    def finish(self, summary: Row, rows: list[Row], exit_code: int) -> None:
        if rows:
            self._guarded("plot", lambda: self._plot(rows))
        self._guarded("summary", lambda: self.run.summary.update(summary))
        self._guarded("finish", lambda: self.run.finish(exit_code=exit_code))

    def _plot(self, rows: list[Row]) -> None:
        import wandb

        from physml.reporting.plot import plot_rows

        plot_rows(rows, self.label, self.folder / "curves.png")
        self.run.log({"curves": wandb.Image(str(self.folder / "curves.png"))})

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a tracker's fault is noted and never hurts the run
            said = f"{type(error).__name__}: {error}"
            log.warning("W&B %s failed: %s. The run goes on.", what, said.partition("\n")[0].rstrip("."))
            self.failed = True
