"""Pilots as tasks of Ray, on a cluster that is there or on one that lasts as long as the command.

Ray is asked for places and retries alone: what is done is told by the records.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, needed_by, to_install
from physml.base.paths import display_path
from physml.base.text import digits
from physml.queue.engines import ray_pilot
from physml.queue.engines.job import Job, Settings, Submission, folder_of_logs, read_settings
from physml.queue.engines.ray_pilot import Order
from physml.run.resources import cores

OBJECTS = 100 * 2**20  # bytes for Ray's object store: nothing of ours goes through it
TOKENS = (2, 52)  # the first Ray whose ports can ask for a token
GRACE_S = 300.0  # for the checkpoints of pilots that were told to stop


@dataclass(frozen=True)
class RaySettings(Settings):
    """Settings of a Ray cluster. `hours` is an estimate only: Ray has no time limit.

    Args:
        address: None: one of the command alone; auto: the one on this machine; or host:port.
        retries: Retries of a pilot that was stopped or killed, or whose node died; -1: always.
        resources: Further ones of each pilot, by the names that nodes were started with.
    """

    address: str | None = None
    retries: int = -1
    resources: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.retries < -1:
            raise ConfigError(f"engine ray: retries must be -1, for always, or more; got {self.retries}.")


class Ray:
    """The engine, with the settings of conf/engine/ray.yaml."""

    def __init__(self, changes: Sequence[str]) -> None:
        self.settings: RaySettings = read_settings(RaySettings, "ray", changes)

    def describe(self, job: Job) -> str:
        kind = "detached actors" if job.detach else "tasks"
        where = self.settings.address
        place = "a Ray cluster on this machine, which ends with the command"
        if where:
            place = "the Ray cluster that runs on this machine" if where == "auto" else f"Ray cluster {where}"
        needs = ", ".join(_shown(*need) for need in _needs(job, self.settings).items())
        retries = "always" if self.settings.retries < 0 else f"{self.settings.retries} times"
        return "\n".join(
            [
                f"{job.workers} {kind} on {place}, each with {needs}; started again {retries}:",
                shlex.join([sys.executable, "-m", "physml", *job.command]),
            ]
        )

    def submit(self, job: Job) -> "RayJob":
        """Raises ConfigError where the pilots cannot be started at all."""
        local = self.settings.address is None
        if local and job.detach:
            raise ConfigError(
                "--detach needs a Ray cluster that goes on: start one by `ray start --head` and add "
                "--engine address=auto. Without an address the cluster ends with this command."
            )
        if local:  # or any user of this machine could have it run code; Ray reads them as it is imported
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        with needed_by("--on ray"):
            import ray
        if local and tuple(map(int, ray.__version__.split(".")[:2])) < TOKENS:
            raise ConfigError(
                f"a Ray cluster of one's own needs Ray {'.'.join(map(str, TOKENS))}, whose ports ask for a "
                f"token; this is Ray {ray.__version__}. Update it: {to_install('ray')}"
            )
        pilots = RayJob(ray, folder_of_logs("ray"), local)
        with contextlib.ExitStack() as stack:
            stack.callback(pilots.close)
            pilots.connect(self.settings, job)
            pilots.start(self.settings, job)
            stack.pop_all()
        return pilots


class RayJob(Submission):
    """Pilots on a cluster.

    Args:
        folder: Shared: logs, and the file that stops the pilots.
        local: The cluster ends with the command.
    """

    attached = True

    def __init__(self, ray: Any, folder: Path, local: bool) -> None:
        self.ray, self.folder, self.local = ray, folder, local
        self.tasks: list[Any] = []
        self.temporary: Path | None = None

    @property
    def text(self) -> str:
        logs, stop = display_path(self.folder / "pilot-*.log"), display_path(self.folder / ray_pilot.STOP)
        return f"Ray pilots; output in {logs}; to stop them: touch {stop}"

    def alive(self) -> int:
        with contextlib.suppress(self.ray.exceptions.RayError):
            return len(self._left(0.0))
        return 0

    def connect(self, settings: RaySettings, job: Job) -> None:
        """To the cluster, which is started where the command has its own."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"address": settings.address or "local"}
        if self.local:
            # Short: it holds sockets, whose paths have at most 107 letters.
            self.temporary = Path(tempfile.mkdtemp(prefix="physml-ray-", dir="/tmp"))
            options |= {
                "num_cpus": cores(),
                "include_dashboard": False,
                "object_store_memory": OBJECTS,
                "_temp_dir": str(self.temporary / "r"),  # which Ray opens to all: not so the folder above
                "_node_ip_address": "127.0.0.1",
            }
        try:
            self.ray.init(
                **options,
                namespace="physml",
                log_to_driver=False,
                logging_level="ERROR",
                ignore_reinit_error=True,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = settings.address or "on this machine"
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"there is no Ray cluster at {where}: {reason}") from error
        if self.local:
            self._refuse_too_small(_needs(job, settings))

    def _refuse_too_small(self, needs: dict[str, float]) -> None:
        """Ray would wait for ever for a node that is large enough."""
        have = self.ray.cluster_resources()
        for name, value in needs.items():
            if value > (most := have.get(name, 0.0)):
                raise ConfigError(
                    f"each pilot is to have {_shown(name, value)}; this machine has {_shown(name, most)}. "
                    "Ask for less by --engine cpus=, gpus= or memory_gib=, or name a larger cluster."
                )

    def start(self, settings: RaySettings, job: Job) -> None:
        self.ray.cloudpickle.register_pickle_by_value(ray_pilot)
        needs = _needs(job, settings)
        options = {
            "num_cpus": needs.pop("CPU"),
            "num_gpus": needs.pop("GPU", 0),
            "memory": int(needs.pop("memory")),
            "resources": needs,
        }
        for number in range(job.workers):
            order = _order(job, self.folder, number)
            if job.detach:
                name = f"{self.folder.name}-{number}"
                actor = self.ray.remote(ray_pilot.DetachedPilot)
                actor.options(
                    **options, name=name, lifetime="detached", max_restarts=settings.retries
                ).remote(order)
            else:
                task = self.ray.remote(ray_pilot.run)
                retried = {"max_retries": settings.retries, "retry_exceptions": True}
                self.tasks.append(task.options(**options, **retried).remote(order))

    def close(self) -> None:
        """Stop what still runs, wait for its checkpoints, and leave the cluster."""
        try:
            if self.tasks:
                (self.folder / ray_pilot.STOP).touch()
                with contextlib.suppress(self.ray.exceptions.RayError):
                    self._left(GRACE_S)
        finally:  # a second Ctrl-C does not wait
            self.ray.shutdown()
            if self.temporary:
                shutil.rmtree(self.temporary, ignore_errors=True)

    def _left(self, wait_s: float) -> list[Any]:
        """Tasks that have not ended after so long."""
        if not self.tasks:
            return []
        _, left = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=wait_s)
        return list(left)


def _needs(job: Job, settings: RaySettings) -> dict[str, float]:
    """Resources of a pilot, by Ray's names."""
    needs = {"CPU": float(job.cpus), "memory": float(round(job.memory_gib * 2**30))}
    return needs | ({"GPU": float(job.gpus)} if job.gpus else {}) | settings.resources


def _shown(name: str, value: float) -> str:
    return f"{digits(value / 2**30, 3)} GiB" if name == "memory" else f"{name} {value:g}"


def _order(job: Job, folder: Path, number: int) -> Order:
    granted = {"PHYSML_CPUS": str(job.cpus), "PHYSML_MEMORY_MIB": str(round(job.memory_gib * 1024))}
    command = [sys.executable, "-m", "physml", *job.command]
    return Order(command, job.environment | granted, str(Path.cwd()), str(folder), number)
