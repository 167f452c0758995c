"""The state of each run and what it will cost, before anything is started."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from physml.base import files, opened
from physml.base.errors import ConfigError
from physml.base.paths import results_roots, work_root
from physml.queue.processes import ForkServer, start_worker
from physml.records import costs, record
from physml.records.costs import Core, Cost
from physml.records.provenance import cpu_facts, cpu_model
from physml.run import history
from physml.run.spec import RunSpec
from physml.run.state import State, blocked_by, state_of, substitute_for

UNKNOWN = Cost()
LONG = 24.0  # core-hours of a run that a person has to ask for


@dataclass(frozen=True)
class Planned:
    """A run and what is known of it before it is made."""

    spec: RunSpec
    state: State
    cost: Cost = UNKNOWN
    reason: str | None = None  # why it is blocked
    substitute: str | None = None  # what is missing, so that it can be made but cannot count
    others: int = 0  # recorded runs of its experiment, none with these settings

    @property
    def said(self) -> str:
        if self.substitute:
            return f"{self.state}, would not count: {self.substitute}"
        if self.state == "missing" and self.others:
            return f"missing; recorded with other settings: {self.others} run{'s' * (self.others > 1)}"
        return f"{self.state}: {self.reason}" if self.reason else self.state

    @property
    def todo(self) -> bool:
        return self.state in ("stopped", "failed", "missing")

    @property
    def counts(self) -> bool:
        return self.todo and not self.substitute


def at_places(spec: RunSpec, places: Sequence[tuple[int, int]]) -> list[RunSpec]:
    """The same run for each split and seed."""
    return [
        replace(
            spec,
            config=spec.config | {"split": split, "seed": seed},
            place=replace(spec.place, split=split, seed=seed),
        )
        for split, seed in places
    ]


def plan(specs: Iterable[RunSpec], *, force: bool = False, probe: bool = False) -> list[Planned]:
    """Each run with its state; with `probe`, missing ones are measured for a few steps if no record tells."""
    rows = []
    known: dict[tuple[str, str], Planned] = {}  # the first run of each setting, with what all of them share
    for spec in specs:
        state = state_of(spec)
        if force and state in ("done", "diverged"):
            state = "missing"
        row = Planned(spec, state)
        if row.todo:
            setting = (spec.place.folder, spec.place.identity)
            if setting not in known:
                reason = blocked_by(spec.config, spec.datasets)
                cost = _of_records(*setting, on_cpu(spec)) or _of_probe(spec, probe and not reason)
                if reason:
                    known[setting] = Planned(spec, "blocked", cost, reason)
                else:
                    substitute = substitute_for(spec.config, spec.datasets)
                    full = spec.config["experiment"] and spec.config["profile"] == "full"
                    others = _of_other_settings(*setting) if full else 0
                    known[setting] = Planned(spec, state, cost, substitute=substitute, others=others)
            shared = known[setting]
            row = replace(shared, spec=spec, state="blocked" if shared.reason else state)
        rows.append(row)
    return rows


def refuse_long(planned: Sequence[Planned]) -> None:
    """ConfigError where a run of this machine's cores takes longer than a person may expect."""
    for run in planned:
        if run.todo and on_cpu(run.spec) and (run.cost.hours or 0.0) > LONG:
            raise ConfigError(
                f"{run.spec.label} takes about {run.cost.hours:.0f} core-hours on this machine. Say --yes to "
                "start it, or --max-hours H to stop in between; the same command goes on."
            )


def _of_records(folder: str, identity: str, cpu: bool) -> Cost | None:
    """From the last record of a setting on such a device; the others are not read."""
    for root in reversed(results_roots()):
        for path in reversed(record.run_paths(root / "runs" / folder)):
            if not path.name.startswith(f"{identity}-"):
                continue
            if cost := costs.of_record(record.read(path), cpu=cpu):
                return _here(cost)
    return None


def _of_other_settings(folder: str, identity: str) -> int:
    """How many recorded runs an experiment has, where none is of this identity."""
    paths = [path for root in results_roots() for path in record.run_paths(root / "runs" / folder)]
    return 0 if any(path.name.startswith(f"{identity}-") for path in paths) else len(paths)


def _here(cost: Cost) -> Cost:
    """The cost on a core of this machine."""
    return cost.on(_core()) if cost.core != Core() else cost


@functools.cache
def _core() -> Core:
    """A core of this machine, its rate measured once for each kind of processor."""
    generation = cpu_facts().get("microarchitecture")
    cpu = f"{cpu_model()}, {generation}"
    kept = work_root() / "probes" / "sgemm.json"
    rates = opened.read_mapping(kept)
    if not costs.number(rates.get(cpu)):
        from physml.run.record import sgemm_gflops

        rates[cpu] = round(sgemm_gflops(), 1)
        with contextlib.suppress(OSError, ValueError):  # it is measured again
            files.write_json(kept, rates)
    return Core(costs.number(rates[cpu]), generation)


def _of_probe(
    spec: RunSpec, probe: bool, stopped: Callable[[], bool] = lambda: False, server: ForkServer | None = None
) -> Cost:
    """Timed once, unless `stopped`; later from the file that was kept."""
    key = _key(spec)
    kept = work_root() / "probes" / f"{key}-3.json"  # 3: CPU time, all evaluations
    if probe and not kept.exists():
        process = start_worker(spec, ["--probe", str(kept)], server=server)
        try:
            while process.poll() is None and not stopped():
                time.sleep(0.05)
        finally:
            process.kill()  # if we were stopped meanwhile
            process.wait()
            if not (spec.work_folder / history.NAME).exists():  # else a run of its own has begun
                spec.file.unlink(missing_ok=True)
    if kept.exists():
        with contextlib.suppress(OSError, *costs.FAULTS):
            return _here(costs.of_line(dict(opened.read_json(kept))))
    line = costs.measured().get(key)
    return _here(costs.of_line(line)) if line else UNKNOWN


def on_cpu(spec: RunSpec) -> bool:
    """Looked up without torch, whose import takes longer than a plan."""
    device = spec.config["runtime"]["device"]
    return device.startswith("cpu") or (device == "auto" and not Path("/dev/nvidiactl").exists())


def _key(spec: RunSpec) -> str:
    kind = "cpu" if on_cpu(spec) else spec.config["runtime"]["device"].replace(":", "-")
    return f"{spec.place.identity}-{kind}-{spec.config['runtime']['backend']}"


def gather_costs(root: Path) -> Path:
    """All measured costs of experiments, of this machine too, written to costs.jsonl of a results root."""
    lines = costs.measured()
    for path in sorted((work_root() / "probes").glob("*-3.json")):
        with contextlib.suppress(OSError, *costs.FAULTS):  # one that has no experiment, or is damaged
            line = costs.named(opened.read_json(path))
            lines[line["key"]] = line
    return costs.write(root, lines)
