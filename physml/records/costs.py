"""Core-hours and memory of runs, from records, and from a few steps that were measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.check import is_number
from physml.base.errors import RecordError
from physml.base.paths import display_path, results_roots
from physml.records import shipped
from physml.records.schema import Record

NAME = "costs.jsonl"  # below a results root: measured costs, a line per setting
FAULTS = (ValueError, LookupError, TypeError)  # of a line that is none
MOST = 1e12  # of hours, milliseconds or MiB; what is more is no measurement
CORE_HOURS, GPU_HOURS, HOURS = UNITS = ("core-hours", "GPU-hours", "hours")  # the last: on a GPU, then a CPU
MOVED = " + "  # between the devices of a run that was stopped on one and went on on another
# How fast generations of cores train, beside a Zen 4: of records of equal settings, mostly recurrent layers,
# which gain more from wider vectors than products of large matrices do.
SPEED = {"Zen 3": 0.76, "Zen 4": 1.0, "Zen 5": 2.2}


@dataclass(frozen=True)
class Core:
    """A core of a processor: its rate in products of float32 matrices, and its generation."""

    sgemm_gflops: float | None = None
    microarchitecture: str | None = None

    def times(self, other: "Core") -> float | None:
        """How many times as fast as another; None if unknown."""
        generations = [SPEED.get(core.microarchitecture or "") for core in (self, other)]
        rates = generations if all(generations) else [self.sgemm_gflops, other.sgemm_gflops]
        return rates[0] / rates[1] if rates[0] and rates[1] else None


REFERENCE = Core(100.0, "Zen 4")  # whose hours stand in files, the same whoever writes them


@dataclass(frozen=True)
class Cost:
    """Cost of a run, as far as it is known."""

    ms_per_step: float | None = None  # CPU time of a step, of all threads; on a GPU the time that it takes
    hours: float | None = None  # core-hours of all steps and evaluations; on a GPU hours
    memory_mib: float | None = None  # main memory at the peak; gpu_mib: memory of the GPU
    gpu_mib: float | None = None
    core: Core = Core()  # that needed so long

    def on(self, core: Core) -> "Cost":
        """The same on another core; as it is where nothing tells how fast they are beside each other.

        Example:
            >>> Cost(hours=2.0, core=Core(50.0)).on(Core(100.0)).hours
            1.0
            >>> Cost(hours=2.2, core=REFERENCE).on(Core(115.0, "Zen 5")).hours
            1.0
        """
        factor = core.times(self.core)
        if factor is None:
            return self
        ms, hours = (None if value is None else value / factor for value in (self.ms_per_step, self.hours))
        return replace(self, ms_per_step=ms, hours=hours, core=core)


@dataclass(frozen=True)
class Rest:
    """Runs of a table that are still to make, and their cost."""

    runs: int = 0
    hours: float = 0.0  # of those whose cost is known, on REFERENCE
    unknown: int = 0  # runs whose cost nobody has measured

    def __add__(self, other: "Rest") -> "Rest":
        return Rest(self.runs + other.runs, self.hours + other.hours, self.unknown + other.unknown)


def rest(runs: int, hours: float | None) -> Rest:
    """So many runs of a setting, of which one takes so long; None: unknown."""
    return Rest(runs, unknown=runs) if hours is None else Rest(runs, runs * hours)


def on_cpu(record: Record) -> bool:
    return (record.get("machine") or {}).get("device") == "cpu"


def seconds(record: Record, part: str = "") -> float | None:
    """CPU time of training, or of evaluations, `eval_`, or in old records and on a GPU that on the clock."""
    cost: Mapping[str, Any] = record.get("cost") or {}
    return (cost.get(f"{part}cpu_s") if on_cpu(record) else None) or cost.get(f"{part or 'train_'}s")


def core_hours(record: Record) -> float:
    """Hours of training and evaluations, by `seconds`."""
    return ((seconds(record) or 0.0) + (seconds(record, "eval_") or 0.0)) / 3600


def spent_on(record: Record) -> tuple[str, str]:
    """The unit of the hours of a run, and the processor that it was made on, as far as the record tells.

    Example:
        >>> spent_on({"machine": {"device": "cpu", "cpu": "AMD EPYC", "microarchitecture": "Zen 5"}})
        ('core-hours', 'AMD EPYC (Zen 5)')
        >>> spent_on({"machine": {"device": "NVIDIA H200 + cpu"}})
        ('hours', 'NVIDIA H200, then cpu')
    """
    machine: Mapping[str, Any] = record.get("machine") or {}
    device = str(machine.get("device"))
    if MOVED in device:
        return HOURS, device.replace(MOVED, ", then ")
    if not on_cpu(record):
        return GPU_HOURS, device
    name = machine.get("cpu") or "a processor not recorded"
    generation = machine.get("microarchitecture") or (machine.get("cpu") and "generation not recorded")
    return CORE_HOURS, f"{name} ({generation})" if generation else name


def of_record(record: Record, *, cpu: bool = True) -> Cost | None:
    """Cost of a finished run that was on a CPU, or on a GPU, from its first step to the last."""
    cost: Mapping[str, Any] = record.get("cost") or {}
    device = str((record.get("machine") or {}).get("device"))
    if not cost or record["status"] != "finished" or on_cpu(record) != cpu or MOVED in device:
        return None
    steps = record.get("n_steps") or 0
    peak = cost.get("peak_memory_mib")  # of the device: on a GPU not that of main memory
    return Cost(
        ms_per_step=round(1000 * (seconds(record) or 0.0) / steps, 3) if steps else cost["ms_per_step"],
        hours=core_hours(record),
        memory_mib=peak if cpu else None,
        gpu_mib=None if cpu else peak,
        core=_core({**(record.get("machine") or {}), **cost}) if cpu else Core(),
    )


def _core(content: Mapping[str, Any]) -> Core:
    name = content.get("microarchitecture")
    return Core(number(content.get("sgemm_gflops")), name if isinstance(name, str) else None)


def measured() -> dict[str, dict[str, Any]]:
    """The lines of costs.jsonl, by `key`; those of the first results root count.

    Raises:
        RecordError: a line is not one.
    """
    lines: dict[str, dict[str, Any]] = {}
    for root in reversed(results_roots()):
        lines |= {line["key"]: line for line in _lines(root / NAME)}
    return lines


def hours_of_settings() -> dict[str, float]:
    """Identity -> core-hours of a run on REFERENCE, as `measured` has them of CPUs."""
    hours: dict[str, float] = {}
    for key, line in sorted(measured().items()):
        ident, _, how = key.partition("-")
        cost = of_line(line).on(REFERENCE)
        if how.startswith("cpu-") and cost.hours is not None:
            hours.setdefault(ident, cost.hours)
    return hours


def write(root: Path, lines: Mapping[str, Mapping[str, Any]]) -> Path:
    """costs.jsonl, sorted by experiment."""
    ordered = sorted(lines.values(), key=lambda line: (line["experiment"], line["key"]))
    files.write_text(root / NAME, "".join(json.dumps(line) + "\n" for line in ordered))
    return root / NAME


def of_line(line: Mapping[str, Any]) -> Cost:
    """The cost that a line has. A value that is no measurement, such as text, counts as unknown."""
    numbers = {name: number(line.get(name)) for name in Cost.__dataclass_fields__ if name != "core"}
    return Cost(**numbers, core=_core(line))


def number(value: Any) -> float | None:
    """A finite number from 0 on; None for anything else.

    Example:
        >>> number(2.5), number(-1), number("9"), number(float("nan")), number(10**400)
        (2.5, None, None, None, None)
    """
    return value if is_number(value) and 0 <= value <= MOST else None


def named(line: Any) -> dict[str, Any]:
    """A line with its key and experiment. One of FAULTS for anything else."""
    content = dict(line)
    for name in ("key", "experiment"):
        if not isinstance(content[name], str):
            raise TypeError(f"{name} is no text")
    return content


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    try:
        content = opened.read_bytes(path) if path.exists() else b"\n".join(shipped.lines(path))
        texts = content.decode().splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RecordError(f"{display_path(path)} cannot be read: {why}.") from error
    for i, text in enumerate(texts, 1):
        try:
            line = named(opened.parsed(text))
        except FAULTS as error:
            raise RecordError(
                f"{display_path(path)}, line {i}: a measured cost was expected; got {text[:60]!r}. "
                "Delete the line, and measure again with physml table ID --plan --probe."
            ) from error
        lines.append(line)
    return lines
