"""`make smoke`: every model of conf/model on every task of conf/task, tiny and in a temporary folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from physml import listing


def main() -> int:
    models = [entry.name for entry in listing.models() if entry.target]
    tasks = [entry.name for entry in listing.tasks() if entry.target]
    print(f"{len(models)} models on {len(tasks)} tasks, tiny sizes", flush=True)
    with tempfile.TemporaryDirectory(prefix="physml-smoke-") as folder:
        os.environ |= {
            "PHYSML_RESULTS": folder,
            "PHYSML_RUNS": str(Path(folder) / "work"),
            "PHYSML_CACHE": str(Path(folder) / "cache"),
        }
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        grid = [f"model={','.join(models)}", f"task={','.join(tasks)}", "profile=smoke"]
        command = [sys.executable, "-m", "physml", "run", "-m", *grid, "--jobs", str(min(cores, 8))]
        code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
        found = len(list(Path(folder).glob("runs/**/*-seed0.json")))
    if code == 0 and found != len(models) * len(tasks):
        print(f"{len(models) * len(tasks)} records were expected; {found} were written.", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
