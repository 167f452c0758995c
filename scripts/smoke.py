"""`make smoke`: every model of conf/model on one task, every task of conf/task with two models, as processes.

At tiny sizes, in a temporary folder, on fixtures in place of real data. The whole grid of models and tasks is
a test (tests/test_conf.py), in one process.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from physml import listing
from physml.resolve import resolve

TASK = "adding"  # for every model
MODELS = ("lem", "lstm")  # for every task


def main() -> int:
    models = [entry.name for entry in listing.models() if entry.target]
    tasks = {entry.name: entry.target for entry in listing.tasks() if entry.target}
    of_ids = {name for name, target in tasks.items() if getattr(resolve(target), "tokens", False)}
    grids = {
        "models": (models, [TASK], []),
        "tasks": (MODELS, [name for name in tasks if name not in (TASK, *of_ids)], []),
        "tasks of ids": (MODELS, sorted(of_ids), ["net.embedding=5"]),
    }
    print(
        f"{len(models)} models on {TASK}, {' and '.join(MODELS)} on {len(tasks)} tasks, tiny sizes",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="physml-smoke-") as folder:
        os.environ |= {
            "PHYSML_RESULTS": folder,
            "PHYSML_RUNS": str(Path(folder) / "work"),
            "PHYSML_CACHE": str(Path(folder) / "cache"),
        }
        codes = [run(list(one), two, rest) for one, two, rest in grids.values() if two]
        found = len(list(Path(folder).glob("runs/**/*-seed0.json")))
    wanted = sum(len(one) * len(two) for one, two, _ in grids.values())
    if not any(codes) and found != wanted:
        print(f"{wanted} records were expected; {found} were written.", file=sys.stderr)
        return 1
    return max(codes)


def run(models: list[str], tasks: list[str], rest: list[str]) -> int:
    """All combinations, by the command line; its exit code."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    grid = [f"model={','.join(models)}", f"task={','.join(tasks)}", *rest, "profile=smoke"]
    command = [sys.executable, "-m", "physml", "run", "-m", *grid, "--jobs", str(min(cores, 8))]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
