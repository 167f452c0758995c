"""Peak memory of forward and backward, each variant in a process of its own.

`python -m physml.bench.memory WORKLOAD VARIANT DEVICE`, the workload as JSON; prints one JSON object.
"""

import dataclasses
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from physml.bench.workloads import Workload
from physml.paths import ROOT

N_BATCHES = 2  # the second shows what is kept from the first
TIME_LIMIT_S = 600


def measure(workload: Workload, variant: str, device: str) -> dict[str, Any]:
    """{"mib": peak over the state before} or {"not_run": reason}, from a fresh process with one thread."""
    command = [sys.executable, "-m", "physml.bench.memory", json.dumps(dataclasses.asdict(workload))]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            [*command, variant, device],
            capture_output=True,
            text=True,
            env=environment,
            timeout=TIME_LIMIT_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        return {"not_run": said[-1] if said else f"exit code {error.returncode}"}
    except subprocess.TimeoutExpired:
        return {"not_run": f"more than {TIME_LIMIT_S} s"}


def peak_mib(workload: Workload, variant: str, device: str) -> float:
    """The memory that forward and backward add to this process, once libraries are loaded."""
    import torch

    from physml.bench.variants import Step

    torch.set_num_threads(1)
    step = Step(workload, variant, device)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        for _ in range(N_BATCHES):
            step()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    resident = _reset_peak()
    for _ in range(N_BATCHES):
        step()
    return _peak() - resident


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


def main() -> None:
    from physml.bench.rounds import not_run

    workload = Workload(**json.loads(sys.argv[1]))
    try:
        found: dict[str, Any] = {"mib": round(peak_mib(workload, sys.argv[2], sys.argv[3]), 1)}
    except Exception as error:  # told to the parent, which goes on with the next
        found = not_run(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
