"""A copy of every run for MLflow: at $MLFLOW_TRACKING_URI, else in mlflow.db beside the work folders."""

import logging
import math
import os
import re
import time
from typing import Any, ClassVar

from physml.base.check import is_number
from physml.base.errors import to_install
from physml.base.paths import work_root
from physml.base.text import shown
from physml.run.trackers.tracker import GuardedTracker, Row, Service, TrackedRun, Tracker

log = logging.getLogger(__name__)

ID = "physml.id"  # the tag by which the copy of a run is found again
LONGEST = 6000  # characters of a parameter's value
MOST = 100  # parameters of one request
AT_ONCE = 500  # metrics of one request, where nobody waits to see them; the server takes 1000
# Otherwise an unreachable server delays a run by minutes, and the client reports its own use.
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def _address() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{work_root() / 'mlflow.db'}"


class Mlflow(Service):
    name: ClassVar[str] = "MLflow"
    package: ClassVar[str] = "mlflow"

    def start(self, run: TrackedRun) -> Tracker:
        if not self.installed():
            log.warning("MLflow gets no copy: mlflow is not installed. Get it: %s", to_install("mlflow"))
            return Tracker()
        return MlflowTracker(run, _address())

    def upload(self, run: TrackedRun) -> Tracker:
        return MlflowTracker(run, _address(), AT_ONCE)

    def address(self) -> str:
        return shown(_address())


class MlflowTracker(GuardedTracker):
    """Experiment = project; group, tables and tags are tags; a run that goes on does so in its first copy."""

    name: ClassVar[str] = "MLflow"

    def __init__(self, run: TrackedRun, address: str, at_once: int = 1) -> None:
        """at_once: metrics that are kept until they are sent in one request."""
        self.address, self.at_once = address, at_once
        self.kept: list[Any] = []
        self.client: Any = None
        super().__init__(run)

    def _begin(self) -> None:
        for key, value in DEFAULTS.items():
            os.environ.setdefault(key, value)
        import mlflow

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        work_root().mkdir(parents=True, exist_ok=True)
        self.client = mlflow.MlflowClient(tracking_uri=self.address)
        experiment = self._experiment(self.tracked.keys["project"])
        self.id = self._found(experiment) or self._created(experiment)

    def _experiment(self, name: str) -> str:
        """Made by the first run; of two at once, one makes it."""
        from mlflow.exceptions import MlflowException

        if existing := self.client.get_experiment_by_name(name):
            return str(existing.experiment_id)
        try:
            return str(self.client.create_experiment(name))
        except MlflowException:
            if existing := self.client.get_experiment_by_name(name):
                return str(existing.experiment_id)
            raise

    def _found(self, experiment: str) -> str | None:
        """The copy of an earlier start, which goes on."""
        runs = self.client.search_runs([experiment], f"tags.`{ID}` = '{self.tracked.id}'", max_results=1)
        if not runs:
            return None
        run_id = str(runs[0].info.run_id)
        steps = [metric.step for metric in self.client.get_metric_history(run_id, "step")]
        self.sent = max(steps, default=-1)
        self.client.update_run(run_id, status="RUNNING")
        return run_id

    def _created(self, experiment: str) -> str:
        from mlflow.entities import Param

        run = self.tracked
        tags = {ID: run.id, "group": run.group, "profile": run.profile}
        tags |= {_name(f"tag.{tag}"): "true" for tag in run.tags}
        created = self.client.create_run(experiment, run_name=run.name, tags=tags)
        values = {_name(key): str(value)[:LONGEST] for key, value in flat(run.config).items()}
        params = [Param(key, value) for key, value in values.items()]
        for first in range(0, len(params), MOST):
            self.client.log_batch(created.info.run_id, params=params[first : first + MOST])
        return str(created.info.run_id)

    def _log(self, row: Row) -> None:
        self._keep(row, row["step"])
        if len(self.kept) >= self.at_once:
            self._send()

    def _keep(self, values: Row, step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        numbers = {key: value for key, value in values.items() if is_number(value) and math.isfinite(value)}
        self.kept += [Metric(_name(key), float(value), now, step) for key, value in numbers.items()]

    def _send(self) -> None:
        metrics, self.kept = self.kept, []
        self.client.log_batch(self.id, metrics=metrics)

    def finish(self, summary: Row, rows: list[Row], exit_code: int) -> None:
        if self.id is None:
            return
        self.guarded("summary", lambda: self._summarise(summary))
        status = "FINISHED" if exit_code == 0 else "KILLED" if exit_code == 75 else "FAILED"
        self.guarded("finish", lambda: self.client.set_terminated(self.id, status=status))

    def _summarise(self, summary: Row) -> None:
        self._keep({key: value for key, value in summary.items() if "/" in key}, max(self.sent, 0))
        self._send()
        for key, value in summary.items():
            if "/" not in key:
                self.client.set_tag(self.id, key, str(value))


def _name(key: str) -> str:
    """A name that MLflow takes: of `layers.*.A`, a pattern of parameters, `layers.-.A`."""
    return re.sub(r"[^/\w.\- :]", "-", key)


def flat(config: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Values by dotted keys.

    Example:
        >>> flat({"seed": 0, "optim": {"lr": 0.1, "betas": [0.9, 0.99]}})
        {'seed': 0, 'optim.lr': 0.1, 'optim.betas': [0.9, 0.99]}
    """
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            values |= flat(value, f"{where}{key}.")
        else:
            values[f"{where}{key}"] = value
    return values
