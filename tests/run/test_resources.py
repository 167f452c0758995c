"""What fits on a machine: cores, memory and GPUs as the kernel's files tell them, and slots for runs."""

import math
from pathlib import Path

import pytest

from physml.base.errors import ConfigError
from physml.run import resources
from physml.run.resources import CONTEXT, MIB, Machine, Resources, Slot

GIB = 1024 * MIB


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A made-up machine of 8 CPUs: `machine(path=text)` writes files of /proc and /sys/fs/cgroup."""
    monkeypatch.setattr(resources, "PROC", tmp_path / "proc")
    monkeypatch.setattr(resources, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return write


# ---------------------------------------------------------------------------- cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cgroup/a/b/cpu.max": "max 100000\n"}, 8),
        ({"cgroup/a/b/cpu.max": "350000 100000\n"}, 3),
        ({"cgroup/a/b/cpu.max": "50000 100000\n"}, 1),
        ({"cgroup/a/b/cpu.max": "max 100000\n", "cgroup/a/cpu.max": "200000 100000\n"}, 2),
        ({"cgroup/cpu.max": "400000 100000\n"}, 4),  # in a container its own group is the root
    ],
)
def test_a_quota_of_any_group_above_counts(machine, files: dict[str, str], cores: int) -> None:
    assert resources.cores() == 8  # those of the affinity
    machine({"proc/self/cgroup": "0::/a/b\n", **files})
    assert resources.cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("250000", 2)])
def test_quotas_of_version_1(machine, quota: str, cores: int) -> None:
    group = "cgroup/cpu,cpuacct/a/cpu.cfs_"
    machine({f"{group}quota_us": quota, f"{group}period_us": "100000"})
    machine({"proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n0::/\n"})
    assert resources.cores() == cores


# ---------------------------------------------------------------------------- memory

MEMINFO = {"proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n"}  # 16 GiB


def test_free_memory_is_what_the_machine_has_and_a_group_of_either_version_may_still_take(machine) -> None:
    assert resources.free_memory() is None
    machine(MEMINFO)
    assert resources.free_memory() == 16 * GIB
    machine(MEMINFO | {"proc/self/cgroup": "0::/a\n", "cgroup/a/memory.max": "max\n"})
    machine({"cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB}\n"})
    machine({"cgroup/a/memory.current": f"{3 * GIB}\n"})
    assert resources.free_memory() == 16 * GIB
    machine({"cgroup/a/memory.max": f"{4 * GIB}\n"})
    assert resources.free_memory() == 2 * GIB
    machine(MEMINFO | {"proc/self/cgroup": "4:memory:/a\n"})
    for group, limit in {"memory": 9223372036854771712, "memory/a": 8 * GIB}.items():
        machine({f"cgroup/{group}/memory.limit_in_bytes": f"{limit}\n"})
        machine({f"cgroup/{group}/memory.usage_in_bytes": f"{GIB}\n"})
    machine({"cgroup/memory/a/memory.stat": "total_inactive_file 0\n"})
    assert resources.free_memory() == 7 * GIB


# ---------------------------------------------------------------------------- slots


def admitted(where, *requests: Resources) -> list[Slot]:
    """Slots of all that are admitted, one after another."""
    taken: list[Slot] = []
    for needs in requests:
        if slot := where.slot(needs, taken):
            taken.append(slot)
    return taken


@pytest.mark.parametrize(("threads", "fit"), [(1, 8), (3, 2), (5, 1), (9, 1)])
def test_threads_share_the_cores(machine, threads: int, fit: int) -> None:
    assert len(admitted(Machine(), *[Resources(threads, 1)] * 10)) == fit


@pytest.mark.parametrize(("gib", "fit"), [(1, 8), (5, 3), (8, 1), (40, 1), (math.inf, 1)])
def test_no_more_than_fit_into_memory(machine, gib: float, fit: int) -> None:
    """16 GiB are free, of which 5 % stay free; one alone may start whatever it takes."""
    machine(MEMINFO)
    assert len(admitted(Machine(), *[Resources(1, gib * GIB)] * 10)) == fit


def test_memory_that_is_held_already_is_not_counted_twice(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """6 of 16 GiB are held by a run of 8 GiB: 10 are free, and it will take 2 more."""
    machine({"proc/meminfo": f"MemAvailable: {10 * GIB // 1024} kB\n"})
    machine({"proc/77/statm": f"999 {6 * GIB // resources.os.sysconf('SC_PAGE_SIZE')} 0\n"})
    running = Slot(Resources(1, 8 * GIB), pid=77)
    assert Machine().slot(Resources(1, 7 * GIB), [running])
    assert not Machine().slot(Resources(1, 8 * GIB), [running])
    assert not Machine().slot(Resources(1, 7 * GIB), [Slot(Resources(1, 8 * GIB), pid=78)])  # ended, or new


def test_small_ones_find_a_place_beside_a_big_one_and_a_count_looks_at_nothing_else(machine) -> None:
    machine(MEMINFO)
    taken = admitted(Machine(), *(Resources(1, gib * GIB) for gib in (12, 12, 2, math.inf, 1, 2)))
    assert [slot.needs.memory / GIB for slot in taken] == [12, 2, 1]
    assert len(admitted(Machine(3), *[Resources(8, 40 * GIB)] * 5)) == 3


# ---------------------------------------------------------------------------- GPUs


def cuda(gib: float, device: str = "cuda") -> Resources:
    return Resources(1, 0, device, gib * GIB + CONTEXT)


def test_runs_spread_over_the_gpus_by_their_memory_and_share_the_cores(machine, monkeypatch) -> None:
    monkeypatch.setattr(resources, "gpus", lambda: (10.0 * GIB, 20.0 * GIB))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    taken = admitted(Machine(), *[cuda(5)] * 8)
    assert [slot.gpu for slot in taken] == [1, 1, 0, 1]
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in taken] == ["1", "1", "0", "1"]
    monkeypatch.setattr(resources, "gpus", lambda: (100.0 * GIB,))
    assert len(admitted(Machine(), *[cuda(1)] * 6, *[Resources(1, 0)] * 6)) == 8
    monkeypatch.setattr(resources, "gpus", lambda: ())
    assert len(admitted(Machine(), cuda(1), cuda(1), Resources(1, 0))) == 2
    monkeypatch.setattr(resources, "gpus", lambda: (1.0 * GIB, 20.0 * GIB))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert admitted(Machine(), cuda(5))[0].environment == {"CUDA_VISIBLE_DEVICES": "GPU-b"}
    monkeypatch.setattr(resources, "gpus", lambda: (10.0 * GIB, 20.0 * GIB))
    taken = admitted(Machine(), *[cuda(7, "cuda:0")] * 3)
    assert [(slot.gpu, slot.environment) for slot in taken] == [(0, {})]


def test_asking_for_gpus_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "GPU_QUERY", "raise SystemExit(3)")
    resources.gpus.cache_clear()
    assert resources.gpus() == ()
    monkeypatch.setattr(resources, "GPU_QUERY", "print('hello'); print('[5, 6]')")
    resources.gpus.cache_clear()
    assert resources.gpus() == (5, 6)
    resources.gpus.cache_clear()


@pytest.mark.parametrize("name", ["PHYSML_CPUS", "PHYSML_MEMORY_MIB"])
@pytest.mark.parametrize("text", ["0", "x", "-1", "1.5"])
def test_what_an_engine_grants_is_a_number(machine, monkeypatch, name: str, text: str) -> None:
    """Of Slurm's variables any other text is left alone: they are not ours."""
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", text)
    assert resources.cores() >= 1
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError, match=rf"{name} takes a whole number from 1 on; got '{text}'"):
        resources.cores() if name == "PHYSML_CPUS" else resources.free_memory()
