"""Runs per hour of small graphs, physml against a plain PyG loop: `python -m scripts.bench.graph`.

The same model, settings, split and number of epochs. Plain: a process for each run, as many at a time as
there are cores (`scripts.bench.graph_plain`). physml: the launcher with JOBS=auto. In turn, in every round.
Others who use the machine disturb the clock, so ratios are of medians over rounds, and processor seconds
stand beside.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from physml.base import files
from physml.base.errors import PhysmlError, RunFailed
from physml.base.paths import display_path
from physml.config.build import build_task
from physml.config.compose import compose
from physml.data.store import store_of
from physml.queue.processes import environment
from physml.records import record
from physml.run import resources
from physml.run.spec import RunSpec, checked_specs
from scripts.bench import command, store
from scripts.bench.packing import forget, own_roots, seconds, timed
from scripts.bench.report import moment, number, per_run, ratio, table

GOAL = 3.0  # times as many runs per hour


@dataclass(frozen=True)
class Workload:
    experiment: str
    epochs: int
    runs: int
    conv: str


WORKLOADS = {
    "texas GraphCON-GCN": Workload("graphcon/texas-graphcon_gcn", 100, 20, "gcn"),
    "wisconsin G2-GraphSAGE": Workload("g2/wisconsin-g2_sage", 100, 20, "sage"),
    "chameleon G2-GCN": Workload("g2/chameleon-g2_gcn", 50, 4, "gcn"),
    "squirrel G2-GraphSAGE": Workload("g2/squirrel-g2_sage", 10, 4, "sage"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_intermixed_args(arguments)
    names = options.workload or list(WORKLOADS)
    try:
        result: dict[str, Any] = {"schema": store.SCHEMA, "machine": store.machine("cpu")}
        result |= {"cores": resources.cores(), "workloads": {}}
        path = store.path_of(f"graph-{store.machine_class(result['machine'])}")
        for name in names:
            done = {name: measure(WORKLOADS[name], options)}
            result["workloads"] |= done
            print("\n".join(lines(done)), flush=True)
        result = store.merge(store.read(path), result)
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    files.write_json(path, result)
    files.write_text(path.with_suffix(".md"), markdown(result))
    print(f"written: {display_path(path)}, {display_path(path.with_suffix('.md'))}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("graph", __doc__)
    parser.add_argument("override", nargs="*", metavar="KEY=VALUE", help="profile=smoke, say")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="again for another")
    parser.add_argument("--runs", type=int, default=0, help="in each round (default: by workload)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0, help="of a run (default: by workload)")
    return parser


def measure(workload: Workload, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds by the clock, of the processors and inside the loops, of all runs each way in every round."""
    n, epochs = options.runs or workload.runs, options.epochs or workload.epochs
    keys = [f"experiment={workload.experiment}", f"trainer.epochs={epochs}", "trainer.stop=null"]
    keys += ["tracker=none", "runtime.device=cpu", *options.override]
    specs = checked_specs([compose([*keys, f"seed={seed}"]) for seed in range(n + 1)])
    ways: dict[str, list[dict[str, float]]] = {"plain": [], "physml": []}
    result: dict[str, Any] = {"experiment": workload.experiment, "epochs": epochs, "runs": n}
    result |= {"overrides": options.override, "moment": store.moment("cpu", 1), "ways": ways}
    with own_roots(), tempfile.TemporaryDirectory(prefix="physml-plain-") as folder:
        jobs = _jobs(specs[:-1], workload, Path(folder))
        timed(specs[-1:], 1)  # data are cached, and the memory of a run is known
        ours = record.read(specs[-1].record_path)["n_parameters"] or 0
        for _ in range(options.rounds):
            ways["plain"].append(_plain(jobs, ours))
            clock = timed(specs[:-1], None)
            costs = [c for spec in specs[:-1] if (c := record.read(spec.record_path)["cost"])]
            ways["physml"].append({**clock, "loop_s": sum(c["train_s"] + c["eval_s"] for c in costs)})
            forget(specs[:-1])
    result["moment"]["load_after"] = store.load()
    return {**result, "parameters": ours}


def _jobs(specs: Sequence[RunSpec], workload: Workload, folder: Path) -> list[Path]:
    """A file for each plain run, and one with the data, from which it starts."""
    config = specs[0].config
    task = build_task(config)
    task.load(store_of(config), config["split"])
    batches = {part: next(iter(task.batches(part, 1))) for part in ("train", "valid", "test")}
    whole = batches["train"]
    arrays = {"x": whole.input, "y": whole.target, "edge_index": whole.edge_index}
    arrays |= {part: batch.index for part, batch in batches.items()}
    numpy_arrays: dict[str, Any] = {name: np.asarray(tensor) for name, tensor in arrays.items()}
    np.savez(folder / "data.npz", **numpy_arrays)
    model, net = config["model"], config["net"]
    of_net = {"hidden": net["hidden"], "input_dropout": net["input_dropout"], "out_dropout": net["dropout"]}
    keys = {**model, **of_net, "conv": workload.conv, "own_gate": model.get("gate_coupling") is not None}
    job = {"net": "graphcon" if model["_target_"].endswith("GraphCON") else "g2", "keys": keys}
    job |= {"n_classes": task.d_out, "data": str(folder / "data.npz"), "epochs": config["trainer"]["epochs"]}
    job |= {key: config["optim"][key] for key in ("lr", "weight_decay")}
    files = [folder / f"{spec.config['seed']}.json" for spec in specs]
    for spec, file in zip(specs, files, strict=True):
        file.write_text(json.dumps({**job, "seed": spec.config["seed"]}), encoding="utf-8")
    return files


def _plain(jobs: Sequence[Path], parameters: int) -> dict[str, float]:
    """RunFailed if a plain run fails, or is of a network of another size than ours."""
    with seconds() as spent, ThreadPoolExecutor(resources.cores()) as pool:
        results = list(pool.map(_plain_run, jobs))
    if any(result["parameters"] != parameters for result in results):
        raise RunFailed(f"the plain network has {results[0]['parameters']} parameters, ours {parameters}.")
    return {**spent, "loop_s": round(sum(result["loop_s"] for result in results), 3)}


def _plain_run(job: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "scripts.bench.graph_plain", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(1), check=False)
    if done.returncode:
        raise RunFailed(f"a plain run failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


HEADS = ("", "epochs", "plain, runs/h", "physml, runs/h", "ratio", "processor s", "ratio", "loop s", "ratio")


def lines(workloads: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table: runs per hour with the start of a process, processor seconds per run, and the loop alone."""
    rows = []
    for name, entry in workloads.items():
        plain, ours = (per_run(entry["ways"][way], entry["runs"]) for way in ("plain", "physml"))
        row = [name, str(entry["epochs"]), *(number(3600 / m["clock_s"]) for m in (plain, ours))]
        row.append(ratio(plain["clock_s"] / ours["clock_s"]))
        for key in ("processor_s", "loop_s"):
            row += [f"{number(plain[key])} : {number(ours[key])}", ratio(plain[key] / ours[key])]
        rows.append(row)
    return table(HEADS, rows)


def markdown(result: Mapping[str, Any]) -> str:
    text = [
        f"# Runs of small graphs on {store.machine_name({**result['machine'], 'cores': result['cores']})}",
        "",
        "Written by `make bench-graph`; how it is measured: [docs/speed.md](../../docs/speed.md). Medians",
        f"over rounds; the goal is {GOAL:g} times as many runs per hour. Loop: training, evaluation.",
        "",
        *lines(result["workloads"]),
        "",
        *(f"- {name}: {entry['runs']} runs, {len(entry['ways']['plain'])} rounds. {moment(entry['moment'])}"
          for name, entry in result["workloads"].items()),
    ]  # fmt: skip
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    sys.exit(main())
