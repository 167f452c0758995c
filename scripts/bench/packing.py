"""Runs per hour, one at a time and as many as fit: `python -m scripts.bench.packing`.

Runs of one experiment with few epochs, as processes of the launcher, in a temporary results folder. Each way
begins with its data at hand; both are tried in turn. Runs per hour are by the clock, which others on the
machine disturb; processor seconds per run are not, and tell what runs side by side cost each other.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from physml.base import files
from physml.base.errors import PhysmlError, RunFailed
from physml.base.paths import display_path
from physml.config.compose import compose
from physml.queue import planning, scheduler
from physml.run import resources
from physml.run.resources import pick_device
from physml.run.spec import RunSpec, checked_specs
from scripts.bench import command, store
from scripts.bench.report import per_run

EXPERIMENT = "lem/fitzhugh_nagumo-lem"
WAYS: dict[str, int | None] = {"one at a time": 1, "auto": None}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_intermixed_args(arguments)
    try:
        result = measure(options)
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    path = store.path_of(f"packing-{store.machine_class(result['machine'])}")
    files.write_json(path, result)
    print(text(result))
    print(f"written: {display_path(path)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("packing", __doc__)
    parser.add_argument("override", nargs="*", metavar="KEY=VALUE", help="runtime.device=cuda, say")
    parser.add_argument("--experiment", default=EXPERIMENT)
    parser.add_argument("--runs", type=int, default=0, help="in each round (default: two per core)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    return parser


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds by the clock and of the processors for all runs, each way, in every round."""
    n, epochs = options.runs or 2 * resources.cores(), options.epochs
    keys = [f"experiment={options.experiment}", f"trainer.epochs={epochs}", "tracker=none", *options.override]
    specs = checked_specs([compose([*keys, f"seed={seed}"]) for seed in range(n + 1)])
    runtime = specs[0].config["runtime"]
    device = pick_device(runtime["device"])
    result: dict[str, Any] = {"schema": store.SCHEMA, "machine": store.machine(device)}
    result |= {"experiment": options.experiment, "overrides": options.override, "epochs": epochs, "runs": n}
    result |= {"moment": store.moment(device, runtime["threads"]), "cores": resources.cores()}
    result["ways"] = {way: [] for way in WAYS}
    with own_roots():
        timed(specs[-1:], 1)  # data are made, code is compiled, and the memory of a run is known
        for _ in range(options.rounds):
            for way, jobs in WAYS.items():
                result["ways"][way].append(timed(specs[:-1], jobs))
                forget(specs[:-1])
    return result


@contextmanager
def own_roots() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="physml-packing-") as folder:
        own = {"PHYSML_RESULTS": folder, "PHYSML_RUNS": f"{folder}/work"}
        with mock.patch.dict(os.environ, own):
            yield


@contextmanager
def seconds() -> Iterator[dict[str, float]]:
    """Seconds by the clock, and of the processors for child processes; filled in at the end."""
    spent: dict[str, float] = {}
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    yield spent
    clock_s, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    spent |= {"clock_s": round(clock_s, 2), "processor_s": round(processor_s, 2)}


def timed(specs: list[RunSpec], jobs: int | None) -> dict[str, float]:
    with seconds() as spent:
        outcome = scheduler.carry_out(planning.plan(specs), jobs=jobs)
    if outcome.exit_code:
        raise RunFailed(f"not all runs came to their end: {outcome.codes}.")
    return spent


def forget(specs: list[RunSpec]) -> None:
    """The records, so that the next way makes the same runs; that of the first run stays."""
    for spec in specs:
        spec.record_path.unlink()


def text(result: dict[str, Any]) -> str:
    ways = {way: per_run(rounds, result["runs"]) for way, rounds in result["ways"].items()}
    lines = [
        f"{result['experiment']}, {result['epochs']} epochs, {result['runs']} runs, {result['cores']} cores"
    ]
    for way, medians in ways.items():
        rate = f"{3600 / medians['clock_s']:7.0f} runs per hour"
        lines.append(f"  {way:14} {rate}, {medians['processor_s']:6.1f} processor seconds per run")
    faster = ways["one at a time"]["clock_s"] / ways["auto"]["clock_s"]
    return "\n".join([*lines, f"  auto against one at a time: {faster:.2f}"])


if __name__ == "__main__":
    sys.exit(main())
