"""The command: which workloads, variants and passes, in which order, and where the results go."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from physml.base import files
from physml.base.errors import InputError, PhysmlError, suggest
from physml.base.paths import display_path
from physml.ops.backend import BACKENDS
from scripts.bench import check_backends, gemm, growth, keeping, memory, plot, report, store, targets
from scripts.bench.rounds import Call, interleave
from scripts.bench.variants import OPTIONAL, VARIANTS, steps_of
from scripts.bench.workloads import WORKLOADS, Workload

PASSES = ("time", "inference", "threads", "memory", "errors", "growth")
KEPT = ("native", "lstm", "gru", "jax")  # timed once more in a process that keeps its memory
INFERENCE = ("native", "triton", "lstm", "gru", "jax", "onnx")
TINY = {"T": 20, "B": 4, "D": 3, "H": 16}  # of --quick, and which workloads are tried
ONE_EACH = "cornn-ncifar,lem-fhn,unicornn-psmnist"
THREADS_FROM = 128  # hidden units: below, two threads only get in each other's way


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m scripts.bench", description="Time and memory of the recurrences."
    )
    p.add_argument(
        "--workload", default="all", help=f"all, or some of: {', '.join(w.name for w in WORKLOADS)}"
    )
    p.add_argument("--variants", default="all", help=f"all, or some of: {', '.join(VARIANTS)}")
    p.add_argument("--passes", default="all", help=f"all, or some of: {', '.join(PASSES)}")
    p.add_argument("--rounds", type=int, default=9, help="samples of each variant, at most (%(default)s)")
    p.add_argument("--budget-s", type=float, default=30, help="for the rounds of one workload (%(default)s)")
    p.add_argument("--threads", type=int, default=1, help="of the pass `time` (%(default)s)")
    p.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    p.add_argument("--tf32", action="store_true", help="allow TF32 products on a GPU, cuDNN's included")
    p.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it work at all?")
    p.add_argument("--no-write", action="store_true", help="print only")
    return p


def chosen(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """The names of a comma-separated list, in the order of `known`."""
    names = known if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"{what} must be among {', '.join(known)}; got {name!r}. {suggest(name, known)}")
    return tuple(name for name in known if name in names)


def timed(workload: Workload, variants: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """The pass `time` of one workload: every variant, and plain products to compare with, interleaved."""
    products = gemm.steps(options.device)
    times = both_ways(workload, [v for v in variants if v != "onnx"], options, products)
    rates = gemm.rates(times.pop("products"))
    return {"sizes": workload.sizes, "flops": workload.flops, "gemm": rates, **times}


def both_ways(
    workload: Workload,
    variants: Sequence[str],
    options: argparse.Namespace,
    products: Mapping[Any, Call] = MappingProxyType({}),
    inference: bool = False,
) -> dict[str, Any]:
    """All variants in turn, in this process and, those of KEPT, in one that keeps its memory."""
    device, limits = options.device, (options.rounds, options.budget_s, options.device)
    torch.set_num_threads(options.threads)
    run = store.moment(device, options.threads)
    steps, refused = steps_of(workload, variants, device, inference)
    again = [v for v in KEPT if v in steps]
    with keeping.steps_kept(workload, again, device, options.threads, inference) as (kept, not_kept):
        times = interleave({**steps, **{("warm", v): kept[v] for v in kept}, **products}, *limits)
    run["load_after"] = store.load()
    return {
        "run": run,
        "variants": {v: refused.get(v) or times[v] for v in variants},
        "warm": {v: not_kept.get(v) or times["warm", v] for v in again},
        **({"products": {key: times[key] for key in products}} if products else {}),
    }


def threaded(workload: Workload, variants: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """One thread and two in turn, by the wall clock."""
    run = store.moment("cpu", 2)
    steps, _ = steps_of(workload, variants, "cpu")

    def with_threads(n: int, step: Call) -> None:
        torch.set_num_threads(n)
        step()

    both = {(v, n): partial(with_threads, n, step) for v, step in steps.items() for n in (1, 2)}
    # The first call with another number of threads is not timed: the system spreads them over the cores.
    times = interleave(both, options.rounds, options.budget_s / 2, settle=True)
    torch.set_num_threads(1)
    run["load_after"] = store.load()
    return {"run": run, "variants": {v: {str(n): times[v, n] for n in (1, 2)} for v in steps}}


def grown(options: argparse.Namespace) -> dict[str, Any]:
    """The pass `growth`."""
    torch.set_num_threads(1)
    run = store.moment(options.device, 1)
    limits = min(5, options.rounds), options.budget_s / 3, options.device
    recurrences: dict[str, Any] = {}
    for middle in growth.MIDDLE:
        loop = "reference" if middle.recurrence == "unicornn" else "official"
        variants = (loop, targets.fast(options.device), "lstm")
        case = middle.with_sizes(TINY) if options.quick else middle
        recurrences[middle.title] = {
            axis: growth.sweep(case, axis, sizes[:2] if options.quick else sizes, variants, *limits)
            for axis, sizes in growth.SWEEPS.items()
        }
    run["load_after"] = store.load()
    return {"run": run, "recurrences": recurrences}


def passes_of(
    workload: Workload, variants: Sequence[str], passes: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    """All passes over one workload; what is known so far is printed."""
    device = options.device
    results: dict[str, Any] = {}
    if "time" in passes:
        results = timed(workload, variants, options)
        print(f"\n{workload.title}: {report.headline(results)}")
        print("\n".join(report.times(results, device)), flush=True)
    if "inference" in passes:
        forward = [v for v in INFERENCE if v in variants]
        results["inference"] = both_ways(workload, forward, options, inference=True)
    if "threads" in passes and workload.H >= THREADS_FROM and device == "cpu":
        results["threads"] = threaded(workload, [v for v in ("native", "lstm") if v in variants], options)
    if "memory" in passes:
        some = variants[:1] if options.quick else [v for v in variants if v not in ("gru", *OPTIONAL)]
        cells = {v: memory.measure(workload, v, device) for v in some}
        results["memory"] = {"run": store.moment(device, 1), "variants": cells}
    if "errors" in passes:
        run = store.moment(device, options.threads)
        errors = check_backends.gradient_errors(workload, [v for v in variants if v in BACKENDS], device)
        results["errors"] = {"run": run, "variants": errors}
    return results


def bench(options: argparse.Namespace) -> dict[str, Any]:
    """The whole measurement; written after every workload, so that nothing done is lost."""
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device cuda needs a GPU that torch can use, and there is none. Use --device cpu.")
    if options.rounds < 1 or options.threads < 1:
        raise InputError("rounds and threads must be at least 1.")
    requested = ONE_EACH if options.quick and options.workload == "all" else options.workload
    names = chosen(requested, [w.name for w in WORKLOADS], "workload")
    variants = chosen(options.variants, VARIANTS, "variants")
    passes = chosen(options.passes, PASSES, "passes")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    workloads = [w for w in WORKLOADS if w.name in names]
    if options.quick:
        workloads = [w.with_sizes(TINY) for w in workloads]
        options.rounds, options.budget_s = 1, 1.0
    result = store.head(options.device) | {"workloads": {}}
    complete = variants == VARIANTS and not options.quick and not options.no_write
    path = store.path_of(result["class"])
    if complete:
        store.read(path)  # a file that cannot be added to is refused before the first measurement
    for workload in workloads:
        result["workloads"][workload.name] = passes_of(workload, variants, passes, options)
        if complete:
            _write(path, result, options.device)
    if "growth" in passes and options.workload == "all":
        result["growth"] = grown(options)
        if complete:
            _write(path, result, options.device)
    if options.quick:
        print("\nTiny sizes: it works; the numbers say nothing. Nothing was written.")
        return result
    rows = targets.judged(result["workloads"], options.device)
    print("\n" + "\n".join(report.target_table(row for row in rows if row["workload"] in names)))
    if complete:
        print(f"\nWritten: {display_path(path)}, and the same with .md and .png.")
    else:
        print("\nNothing was written: only a run of all variants is a result.")
    return result


def _write(path: Path, new: dict[str, Any], device: str) -> None:
    merged = store.merge(store.read(path), new)
    packing = store.path_of(f"packing-{new['class']}")
    if packing.exists():
        merged["packing"] = store.read(packing)
    merged["targets"] = targets.judged(merged["workloads"], device)
    files.write_json(path, merged)
    files.write_text(path.with_suffix(".md"), report.markdown(merged, device))
    plot.write(path.with_suffix(".png"), merged, device)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        bench(parser().parse_args(arguments))
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0
