"""The trackers by the names that `tracker.kind` has for them, but for `none`."""

from physml.run.trackers.mlflow import Mlflow
from physml.run.trackers.tracker import Service
from physml.run.trackers.wandb import Wandb

SERVICES: dict[str, Service] = {"wandb": Wandb(), "mlflow": Mlflow()}
