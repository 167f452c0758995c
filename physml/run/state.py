"""The state of one run, told by its files: record, lock, checkpoint, data."""

from collections.abc import Sequence
from typing import Any, Literal

from physml.base.lock import is_held
from physml.data.datasets import upstream
from physml.data.locate import blocked, lacking_optional, refuse_absent
from physml.data.store import store_of
from physml.run.attempt import DONE
from physml.run.perform import existing
from physml.run.spec import RunSpec
from physml.training import checkpoint

State = Literal["done", "diverged", "running", "stopped", "failed", "missing", "blocked"]


def blocked_by(config: dict[str, Any], datasets: Sequence[str]) -> str | None:
    """Which data a run of this config lacks; looks at names of files alone, and smoke runs lack none."""
    return blocked(datasets, store_of(config)) if config["profile"] == "full" else None


def substitute_for(config: dict[str, Any], datasets: Sequence[str]) -> str | None:
    """Data that a run of this config would replace by made-up ones, so that it cannot count; or None."""
    asked = [name for name in datasets if name in config["task"].values()]
    return lacking_optional(asked, store_of(config)) if config["profile"] == "full" else None


def refuse_blocked(spec: RunSpec) -> None:
    """DataError, with all one needs to get the data, where a run lacks them."""
    if spec.config["profile"] == "full":
        for name in spec.datasets:
            refuse_absent(upstream(name), store_of(spec.config))


def state_of(spec: RunSpec) -> State:
    done = existing(spec)
    if done and done["status"] in DONE:
        return "diverged" if done["status"] == "diverged" else "done"
    if is_held(spec.work_folder):
        return "running"
    if done:
        return "failed"
    return "stopped" if checkpoint.exists(spec.work_folder) else "missing"
