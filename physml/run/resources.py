"""Admission control: how many runs the cores, memory and GPUs of this process can hold at once.

Runs of small models are one-threaded, so side by side they share nothing but memory: each allowed core takes
one. On a GPU they also share the GPU, one process each.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from physml.base.errors import ConfigError, DataError

MIB = 2**20
SPARE = 0.05  # of the free memory stays free
GROWTH = 1.1  # one run's peak may be this much above another's of the same setting
SMOKE = 1024  # MiB, for a run at tiny size whose memory is unknown
CONTEXT = 600 * MIB  # of GPU memory, for CUDA itself in every process

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Resources:
    """Peak use of one run: threads, bytes of memory, and of GPU memory if it runs on one."""

    threads: int
    memory: float
    device: str = "cpu"
    gpu_memory: float = 0.0


@dataclass
class Slot:
    """One admitted run: its resources, its GPU, and its process once it runs."""

    needs: Resources
    gpu: int | None = None
    pid: int | None = None
    environment: dict[str, str] = field(default_factory=dict)


class Machine:
    """Admits `jobs` runs, or as many as cores, free memory and GPUs allow; one that fits nowhere runs alone.

    needs_estimate: whether it looks at the resources of runs.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs, self.cores = jobs, cores()
        self.needs_estimate = jobs is None and self.cores > 1

    def slot(self, needs: Resources, taken: Sequence[Slot]) -> Slot | None:
        """A slot beside those that are taken; None if the run has to wait."""
        if self.jobs is not None:
            return Slot(needs) if len(taken) < self.jobs else None
        fits = sum(slot.needs.threads for slot in taken) + needs.threads <= self.cores
        if taken and not (fits and self._memory_fits(needs, taken)):
            return None
        return self._on_gpu(needs, taken) if needs.device.startswith("cuda") else Slot(needs)

    def _memory_fits(self, needs: Resources, taken: Sequence[Slot]) -> bool:
        """True if a run fits into the free memory, less the growth still to come of the running ones."""
        free = free_memory()
        growing = sum(max(0.0, slot.needs.memory - resident(slot.pid)) for slot in taken)
        return free is None or needs.memory <= (1 - SPARE) * free - growing

    def _on_gpu(self, needs: Resources, taken: Sequence[Slot]) -> Slot | None:
        """The GPU with the most memory left, unless the config names one."""
        _, named, index = needs.device.partition(":")
        left = {
            i: free - sum(slot.needs.gpu_memory for slot in taken if slot.gpu == i)
            for i, free in enumerate(gpus())
            if not named or i == int(index)
        }
        if not left:  # no GPU can be looked at: one run after another
            return None if any(slot.needs.device.startswith("cuda") for slot in taken) else Slot(needs)
        best = max(left, key=lambda i: left[i])
        alone = all(slot.gpu != best for slot in taken)
        if not alone and left[best] < needs.gpu_memory:
            return None
        if named:
            return Slot(needs, best)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        name = visible.split(",")[best] if visible else str(best)
        return Slot(needs, best, environment={"CUDA_VISIBLE_DEVICES": name})


# ---------------------------------------------------------------------------- cores and memory


def cores() -> int:
    """CPUs that this process may use: by its affinity, the quotas of its groups, its Slurm job or engine."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = [_granted(name) for name in ("SLURM_CPUS_PER_TASK", "PHYSML_CPUS")]
    return max(1, min([allowed, *map(int, _quotas()), *(int(count) for count in granted if count)]))


def _granted(name: str) -> float | None:
    """Resources that Slurm or Ray grants a job, which not every cluster enforces.

    Errors: ConfigError for a variable of ours that has no number.
    """
    text = os.environ.get(name, "")
    sound = text.isdecimal() and int(text) > 0
    if text and not sound and name.startswith("PHYSML_"):
        raise ConfigError(f"{name} takes a whole number from 1 on; got {text!r}.")
    return float(text) if sound else None


def _quotas() -> Iterator[float]:
    """CPU seconds per second, of every group above us that has a limit."""
    for folder in _groups("cpu"):
        quota, period = (*_words(folder / "cpu.max"), "max", "")[:2]  # version 2
        if quota == "max":  # version 1
            quota = (*_words(folder / "cpu.cfs_quota_us"), "-1")[0]
            period = (*_words(folder / "cpu.cfs_period_us"), "0")[0]
        if int(quota) > 0 and int(period) > 0:
            yield int(quota) / int(period)


def free_memory() -> float | None:
    """Bytes that can still be used: of the machine's, and of every control group's; None: unknown."""
    free = [_group_memory(folder) for folder in _groups("memory")]
    lines = [line.split() for line in _lines(PROC / "meminfo")]
    free += [float(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"]
    granted = _granted("SLURM_MEM_PER_NODE")
    if granted is None and (each := _granted("SLURM_MEM_PER_CPU")):
        granted = each * cores()
    limits = [limit for limit in (granted, _granted("PHYSML_MEMORY_MIB")) if limit is not None]
    if limits:
        free.append(min(limits) * MIB - sum(map(resident, _family())))
    return min((available for available in free if available is not None), default=None)


def _group_memory(folder: Path) -> float | None:
    """Limit less use, where pages of files that can be dropped are not counted as used."""
    for limit_name, use_name, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, use = _words(folder / limit_name), _words(folder / use_name)
        if limit and use and limit[0] != "max":
            stat = dict(line.split() for line in _lines(folder / "memory.stat"))
            return float(limit[0]) - float(use[0]) + float(stat.get(cached, 0))
    return None


def resident(pid: int | None) -> float:
    """Bytes of memory that a process holds now; 0 if nothing is known of it."""
    words = _words(PROC / str(pid) / "statm") if pid else []
    return float(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0.0


def _family() -> list[int]:
    """This process and those below it."""
    parents: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        for line in _lines(stat)[:1]:
            parents.setdefault(int(line.rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    family = [os.getpid()]
    for pid in family:  # grows
        family += parents.get(pid, [])
    return family


def _groups(controller: str) -> list[Path]:
    """Folders of our control group and of all above it, as far as they can be seen."""
    folders: list[Path] = []
    for line in _lines(PROC / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            bases = [CGROUPS, CGROUPS / "unified"]
        elif controller in controllers.split(","):
            bases = [CGROUPS / controllers, CGROUPS / controller]
        else:
            continue
        for base in bases:
            own = base / path.strip("/")
            folders += [
                folder for folder in (own, *own.parents) if folder.is_relative_to(base) and folder.is_dir()
            ]
    return list(dict.fromkeys(folders))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return next(iter(_lines(path)), "").split()


# ---------------------------------------------------------------------------- GPUs


def pick_device(device: str) -> str:
    """The device of `runtime.device`; DataError where it is not there. No memory is taken on it."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise DataError(
            f"runtime.device={device} is not a device of torch. Use auto, cpu or cuda."
        ) from error
    works = chosen.type != "cuda" or torch.cuda.is_available()
    n = torch.get_device_module(chosen).device_count() if works else 0
    if (chosen.index or 0) >= n:
        seen = f"{n or 'no'} {chosen.type.upper()} device{'s, counted from 0' if n > 1 else ''}"
        raise DataError(
            f"runtime.device={device}, but torch {torch.__version__} sees {seen}. Use runtime.device=cpu."
        )
    return "cpu" if chosen.type == "cpu" else str(chosen)


GPU_QUERY = """
import json, torch
print(json.dumps([torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]))
"""


@functools.cache
def gpus() -> tuple[float, ...]:
    """Free bytes of each visible GPU at the first call. A child process asks, so that none stays in use."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", GPU_QUERY], capture_output=True, text=True, timeout=120, check=True
        )
        return tuple(json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return ()
