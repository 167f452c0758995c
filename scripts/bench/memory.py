"""Peak memory of forward and backward, each variant in a process of its own."""

import multiprocessing
import os
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scripts.bench.workloads import Workload

N_BATCHES = 2  # the second shows what is kept from the first
TIME_LIMIT_S = 600


def measure(workload: Workload, variant: str, device: str) -> dict[str, Any]:
    """{"mib": peak over the state before} or {"not_run": reason}, from a fresh process with one thread."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_peak, args=(sender, workload, variant, device))
    process.start()
    sender.close()
    try:
        in_time = receiver.poll(TIME_LIMIT_S)
        result: dict[str, Any] = receiver.recv() if in_time else {"not_run": f"more than {TIME_LIMIT_S} s"}
    except EOFError:  # it was killed, perhaps for the memory it took
        process.join()
        result = {"not_run": f"exit code {process.exitcode}"}
    process.kill()
    process.join()
    return result


def _send_peak(sender: Connection, workload: Workload, variant: str, device: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    from scripts.bench.rounds import not_run

    try:
        sender.send({"mib": round(peak_mib(workload, variant, device), 1)})
    except Exception as error:  # the parent goes on with the next
        sender.send(not_run(error))


def peak_mib(workload: Workload, variant: str, device: str) -> float:
    """The memory that forward and backward add to this process, once libraries are loaded."""
    import torch

    from scripts.bench.variants import Step

    torch.set_num_threads(1)
    step = Step(workload, variant, device)
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) / 2**20 if on_gpu else _reset_peak()
    for _ in range(N_BATCHES):
        step()
    return (torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else _peak()) - before


def _reset_peak() -> float:
    """Forget the peak so far, where the kernel can; the resident memory now, in MiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> float:
    try:
        return _status("VmHWM")
    except (OSError, KeyError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields[key].split()[0]) / 2**10
