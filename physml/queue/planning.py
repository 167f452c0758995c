"""The state of each run and what it will cost, before anything is started."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from physml.base import opened
from physml.base.paths import results_roots, work_root
from physml.queue.processes import ForkServer, start_worker
from physml.records import record
from physml.run.spec import RunSpec
from physml.run.state import State, blocked_by, state_of


@dataclass(frozen=True)
class Cost:
    """Time of a run, and memory at its peak, as far as they are known."""

    ms_per_step: float | None = None
    hours: float | None = None
    memory_mib: float | None = None
    gpu_mib: float | None = None


@dataclass(frozen=True)
class Planned:
    """A run and what is known of it before it is made."""

    spec: RunSpec
    state: State
    cost: Cost = Cost()
    reason: str | None = None  # why it is blocked

    @property
    def said(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state

    @property
    def todo(self) -> bool:
        return self.state in ("stopped", "failed", "missing")


def plan(specs: list[RunSpec], *, force: bool = False, probe: bool = False) -> list[Planned]:
    """Each run with its state; with `probe`, missing ones are timed for a few steps where no record tells."""
    rows = []
    lacking: dict[tuple[Any, ...], str | None] = {}  # what runs of one setting have in common,
    told: dict[tuple[str, str], Cost | None] = {}  # looked up once
    for spec in specs:
        state = state_of(spec)
        if force and state in ("done", "diverged"):
            state = "missing"
        one = Planned(spec, state)
        if one.todo:
            key = (spec.datasets, spec.config["profile"], spec.config["data"]["verify"])
            if key not in lacking:
                lacking[key] = blocked_by(spec.config, spec.datasets)
            if reason := lacking[key]:
                one = Planned(spec, "blocked", reason=reason)
        if one.todo:
            setting = (spec.place.folder, spec.place.identity)
            if setting not in told:
                told[setting] = _of_records(*setting)
            one = replace(one, cost=told[setting] or _of_probe(spec, probe))
        rows.append(one)
    return rows


def _of_records(folder: str, identity: str) -> Cost | None:
    """From the last record of a setting; the others are not read."""
    for root in reversed(results_roots()):
        for path in sorted((root / "runs" / folder).glob(f"{identity}-split*-seed*.json"), reverse=True):
            made = record.read(path)
            if (cost := made.get("cost")) and made["status"] == "finished":
                peak = cost.get("peak_memory_mib")  # of the device: on a GPU not that of main memory
                on_cpu = made.get("machine", {}).get("device") == "cpu"
                hours = (cost["train_s"] + cost["eval_s"]) / 3600
                return Cost(cost["ms_per_step"], hours, *((peak, None) if on_cpu else (None, peak)))
    return None


def _of_probe(
    spec: RunSpec, probe: bool, stopped: Callable[[], bool] = lambda: False, server: ForkServer | None = None
) -> Cost:
    """Timed once, unless `stopped`; later from the file that was kept."""
    keys = spec.config["runtime"]
    name = f"{spec.place.identity}-{keys['device'].replace(':', '-')}-{keys['backend']}"
    kept = work_root() / "probes" / f"{name}-2.json"  # 2: with memory
    if probe and not kept.exists():
        process = start_worker(spec, ["--probe", str(kept)], server=server)
        try:
            while process.poll() is None and not stopped():
                time.sleep(0.05)
        finally:
            process.kill()  # if we were stopped meanwhile
            process.wait()
    if not kept.exists():
        return Cost()
    try:
        told = opened.read_json(kept)
        found = {field.name: told[field.name] for field in fields(Cost)}
    except (OSError, ValueError, LookupError, TypeError):
        return Cost()
    return Cost(**{k: v for k, v in found.items() if type(v) in (int, float) and 0 <= v < math.inf})
