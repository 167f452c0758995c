"""What fits on this machine side by side: the cores, memory and GPUs that this process may use.

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
from typing import Protocol

MIB = 2**20
SPARE = 0.05  # of the free memory stays free
GROWTH = 1.1  # one run's peak may be this much above another's of the same setting
CONTEXT = 600 * MIB  # of GPU memory, for CUDA itself in every process

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Needs:
    """What one run takes at its peak: threads, bytes of memory, and of a GPU's if it runs on one."""

    threads: int
    memory: float
    device: str = "cpu"
    gpu_memory: float = 0.0


@dataclass
class Seat:
    """The place of one run: what it needs, on which GPU it is, and its process once it runs."""

    needs: Needs
    gpu: int | None = None
    pid: int | None = None
    environment: dict[str, str] = field(default_factory=dict)


class Room(Protocol):
    """Where runs find their places. asks: whether it has to know what they need."""

    asks: bool

    def seat(self, needs: Needs, taken: Sequence[Seat]) -> Seat | None:
        """A place beside those that are taken; None if it has to wait."""


@dataclass(frozen=True)
class Count:
    """So many, whatever they need: what a person has said."""

    jobs: int
    asks = False

    def seat(self, needs: Needs, taken: Sequence[Seat]) -> Seat | None:
        return Seat(needs) if len(taken) < self.jobs else None


class Machine:
    """As many as cores, free memory and GPUs allow; one that fits nowhere runs alone."""

    def __init__(self) -> None:
        self.cores = cores()
        self.asks = self.cores > 1

    def seat(self, needs: Needs, taken: Sequence[Seat]) -> Seat | None:
        fits = sum(one.needs.threads for one in taken) + needs.threads <= self.cores
        if taken and not (fits and self._memory_is_there(needs, taken)):
            return None
        return self._on_gpu(needs, taken) if needs.device.startswith("cuda") else Seat(needs)

    def _memory_is_there(self, needs: Needs, taken: Sequence[Seat]) -> bool:
        """What is free now, less what those that run will still grow by."""
        free = free_memory()
        growing = sum(max(0.0, one.needs.memory - resident(one.pid)) for one in taken)
        return free is None or needs.memory <= (1 - SPARE) * free - growing

    def _on_gpu(self, needs: Needs, taken: Sequence[Seat]) -> Seat | None:
        """The GPU with the most memory left, unless the config names one."""
        left = {
            i: free - sum(one.needs.gpu_memory for one in taken if one.gpu == i)
            for i, free in enumerate(gpus())
        }
        _, named, index = needs.device.partition(":")
        if named:
            left = {i: free for i, free in left.items() if i == int(index)}
        if not left:  # of no GPU anything is known: one run after another
            return None if any(one.needs.device.startswith("cuda") for one in taken) else Seat(needs)
        best = max(left, key=lambda i: left[i])
        alone = all(one.gpu != best for one in taken)
        if not alone and left[best] < needs.gpu_memory:
            return None
        return Seat(needs, best, environment={} if named else {"CUDA_VISIBLE_DEVICES": gpu_names()[best]})


# ---------------------------------------------------------------------------- cores and memory


def cores() -> int:
    """CPUs that this process may use: by its affinity, and by the quotas of its control groups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(quota) for quota in _quotas())]))


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
    return min((one for one in free if one is not None), default=None)


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
            inside = [base, *(base / part for part in _prefixes(path))]
            folders += [folder for folder in inside if folder.is_dir()]
    return list(dict.fromkeys(folders))


def _prefixes(path: str) -> list[str]:
    """`/a/b` -> a, a/b."""
    parts = path.strip("/").split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts) + 1) if parts[0]]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    lines = _lines(path)
    return lines[0].split() if lines else []


# ---------------------------------------------------------------------------- GPUs

ASK = """
import json, torch
print(json.dumps([torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]))
"""


@functools.cache
def gpus() -> tuple[float, ...]:
    """Free bytes of each visible GPU when first asked; by a process of its own, which leaves none in use."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK], capture_output=True, text=True, timeout=120, check=True
        )
        return tuple(json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return ()


def gpu_names() -> list[str]:
    """The visible GPUs as CUDA_VISIBLE_DEVICES calls them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(i) for i in range(len(gpus()))]
