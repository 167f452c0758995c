"""`make smoke`: every model of conf/model on a task of its kind, every task of conf/task with one model.

Each run is a process, at tiny sizes, in a temporary folder, on fixtures in place of real data. The whole grid
of models and tasks is a test (tests/contracts/test_conf.py), in one process.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from physml.base.paths import own_folders
from physml.cli import main as physml
from physml.config.build import passes_messages
from physml.config.resolve import resolve
from physml.listing import inventory

TASK = "adding"  # for every model of sequences
GRAPH = "texas"  # for every model of graphs
MODEL = "lem"  # for every task of sequences
GRAPH_MODEL = "graphcon_gcn"  # for every task of graphs


def main() -> int:
    models: dict[str, Any] = {
        entry.name: resolve(entry.target) for entry in inventory.models() if entry.target
    }
    tasks: dict[str, Any] = {entry.name: resolve(entry.target) for entry in inventory.tasks() if entry.target}
    passing = {name for name, cls in models.items() if passes_messages(cls)}
    of_graphs = {name for name, cls in tasks.items() if cls.readout in ("node", "graph")}
    of_ids = {name for name, cls in tasks.items() if cls.tokens}
    grids = {
        "models": (sorted(models.keys() - passing), [TASK], []),
        "models of graphs": (sorted(passing), [GRAPH], []),
        "tasks": ([MODEL], sorted(tasks.keys() - of_graphs - of_ids - {TASK}), []),
        "tasks of ids": ([MODEL], sorted(of_ids), ["net.embedding=5"]),
        "tasks of graphs": ([GRAPH_MODEL], sorted(of_graphs - {GRAPH}), []),
    }
    pairings = [f"{MODEL} on {len(tasks) - len(of_graphs)} tasks of sequences"]
    pairings += [f"{GRAPH_MODEL} on {len(of_graphs)} of graphs"]
    print(f"{len(models)} models on {TASK} or {GRAPH}, {', '.join(pairings)}, tiny sizes", flush=True)
    with tempfile.TemporaryDirectory(prefix="physml-smoke-") as folder:
        os.environ |= own_folders(Path(folder))
        codes = [
            run(some_models, some_tasks, rest)
            for some_models, some_tasks, rest in grids.values()
            if some_tasks
        ]
        written = len(list(Path(folder).glob("results/runs/**/*-seed0.json")))
    expected = sum(len(some_models) * len(some_tasks) for some_models, some_tasks, _ in grids.values())
    if not any(codes) and written != expected:
        print(f"{expected} records were expected; {written} were written.", file=sys.stderr)
        return 1
    return max(codes)


def run(models: list[str], tasks: list[str], rest: list[str]) -> int:
    """All combinations, by a command in this process; its exit code."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    grid = [f"model={','.join(models)}", f"task={','.join(tasks)}", *rest, "profile=smoke"]
    return physml.main(["run", "-m", *grid, "--jobs", str(min(cores, 8))])


if __name__ == "__main__":
    sys.exit(main())
