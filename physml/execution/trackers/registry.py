"""The trackers by the names that `tracker.kind` has for them."""

from physml.execution.trackers.mlflow import Mlflow
from physml.execution.trackers.tracker import Service, TrackedRun, Tracker
from physml.execution.trackers.wandb import Wandb

SERVICES: dict[str, Service] = {"wandb": Wandb(), "mlflow": Mlflow()}


def start(run: TrackedRun) -> Tracker:
    """A tracker as the config says."""
    kind = run.keys["kind"]
    return Tracker() if kind == "none" else SERVICES[kind].start(run)
