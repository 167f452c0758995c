"""The trackers by the names that `tracker.kind` has for them."""

from physml.run.trackers.mlflow import Mlflow
from physml.run.trackers.tracker import Service, TrackedRun, Tracker
from physml.run.trackers.wandb import Wandb

SERVICES: dict[str, Service] = {"wandb": Wandb(), "mlflow": Mlflow()}


def start(run: TrackedRun) -> Tracker:
    """A tracker as the config says."""
    kind = run.keys["kind"]
    return Tracker() if kind == "none" else SERVICES[kind].start(run)
