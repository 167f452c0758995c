"""A check of the fast backends here: `python -m scripts.bench.check_backends [--device cuda] [--quick]`.

Every backend that runs here computes the workloads of `scripts.bench` and a few compiled cells, outputs and
all gradients, and is compared with float64 autograd of the plain loop: the same weights and inputs, the same
gradients of outputs and last states coming in. An error is |x - x64| / |x64| of a whole tensor. Needs torch
and numpy.

Axes: B batch, T time, D features, H hidden units.
"""

import argparse
import gc
import importlib
import importlib.util
import json
import math
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops.backend import BACKENDS, Op
from physml.ops.cell import recurrence
from scripts.bench import check_cells, command
from scripts.bench.rounds import not_run
from scripts.bench.variants import Step, layer
from scripts.bench.workloads import WORKLOADS, Workload

# A backend's float32 differs from float64 by rounding that the steps add up. UnICORNN on EigenWorms amplifies
# it: the plain loop itself, in float32, is off by up to 1e-3. TF32 and bfloat16 keep 11 and 8 bits.
TOLERANCE = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 5e-2}
SENSITIVE = {"unicornn-eigenworms": 1e-2}
CHECKED = (*WORKLOADS, *check_cells.CELLS)
QUICK = {"T": 40, "B": 3, "H": 12}  # at most, for --quick

Tensors = dict[str, Tensor]
Function = Callable[..., Any]


class Refused(Exception):
    """A backend can't compute this very case, and says why."""


@dataclass(frozen=True)
class Row:
    workload: str
    backend: str
    precision: str
    output: float  # the largest error of outputs and last states
    gradient: float  # the largest error of a gradient
    of: str  # whose gradient that is
    tolerance: float
    repeats: bool | None  # the same bits the second time

    @property
    def passed(self) -> bool:
        return self.output <= self.tolerance and self.gradient <= self.tolerance and self.repeats is not False


def draw(workload: Workload, device: str, rounded: torch.dtype) -> Tensors:
    """Weights as the layers draw them, normal inputs and states; numbers of dtype `rounded`, in float64."""
    rng = torch.Generator().manual_seed(1)
    if workload.recurrence == "cell":
        drawn = check_cells.draw(workload, rng)
        return {name: x.to(rounded).double().to(device) for name, x in drawn.items()}
    B, D, H = workload.B, workload.D, workload.H
    tensors = {"u": torch.randn(B, workload.T, D or H, generator=rng)}
    for n in range(workload.L):
        y, z = torch.randn(2, B, H, generator=rng) / 2
        tensors |= {f"y{n}": y, f"z{n}": z}
    for name, weight in layer(replace(workload, D=D or 1), "reference").named_parameters():
        *stack, last = name.split(".")  # layers.0.w is w0 here
        tensors[last + "".join(stack[1:])] = weight.detach()
    if not D:
        tensors["step"] = workload.settings["dt"] * tensors.pop("c0").sigmoid()
        del tensors["V0"], tensors["b0"]
    return {name: x.to(rounded).double().to(device) for name, x in tensors.items()}


def compute(workload: Workload, function: Function, tensors: Tensors) -> Tensors:
    """Outputs and last states."""
    x, settings = dict(tensors), dict(workload.settings)
    if workload.recurrence == "cell":
        states = (x[name] for name in x if name.startswith("state"))
        outputs, last = function(x["u"], *states, step=partial(settings["step"], x))
        return {"outputs": outputs, **{f"last state{k}": state for k, state in enumerate(last)}}
    if workload.recurrence == "unicornn":
        result: Tensors = {}
        path = x["u"]
        dts = settings["dt"] if isinstance(settings["dt"], list) else [settings["dt"]] * workload.L
        for n, dt in enumerate(dts):
            push = F.linear(path, x[f"V{n}"], x[f"b{n}"]) if workload.D else path
            step = dt * torch.sigmoid(x[f"c{n}"]) if workload.D else x["step"]
            state = x[f"y{n}"], x[f"z{n}"]
            path, y, z = function(push, *state, x[f"w{n}"], step, alpha=settings["alpha"])
            result |= {f"last y{n}": y, f"last z{n}": z}
        return {"outputs": path, **result}
    settings.pop("init", None)
    if workload.recurrence == "lem":
        second, settings["clip"] = x["Wy"], None
    else:
        second, settings["damping"] = x["Wcal"], "explicit"
    outputs, y, z = function(x["u"], x["y0"], x["z0"], x["W"], second, x["V"], x["b"], **settings)
    return {"outputs": outputs, "last y0": y, "last z0": z}


def everything(workload: Workload, function: Function, tensors: Tensors, dtype: torch.dtype) -> Tensors:
    """Outputs, last states and the gradients of all tensors, each under its name."""
    leaves = {name: x.to(dtype).requires_grad_() for name, x in tensors.items()}
    results = compute(workload, function, leaves)
    rng = torch.Generator().manual_seed(2)
    incoming = [torch.randn(x.shape, generator=rng).bfloat16().to(x.device, dtype) for x in results.values()]
    gradients = torch.autograd.grad(list(results.values()), list(leaves.values()), incoming)
    return {name: x.detach() for name, x in results.items()} | {
        f"d {name}": x for name, x in zip(leaves, gradients, strict=True)
    }


def function_of(workload: Workload, backend: str) -> Function:
    """The op with that backend, which raises `Refused` where the backend refuses its arguments."""
    op: Op[Any] = importlib.import_module(f"physml.ops.{workload.recurrence}").OP

    def computed(*tensors: Tensor, **constants: Any) -> Any:
        if reason := op.refusal(backend, tensors):
            raise Refused(reason)
        if workload.recurrence == "cell":
            return recurrence(constants["step"], tensors[0], tensors[1:], backend=backend)
        return op(*tensors, backend=backend, **constants)

    return computed


def gradient_errors(workload: Workload, variants: Sequence[str], device: str) -> dict[str, Any]:
    """Per variant the worst parameter's |g - g64| / |g64| with its name, or why it did not run."""
    exact = Step(workload, "reference", device)
    exact.module.double()
    exact.u, exact.slope = exact.u.double(), exact.slope.double()
    expected = exact.gradients()
    errors: dict[str, Any] = {}
    for variant in variants:
        try:
            errors[variant] = worst(Step(workload, variant, device).gradients(), expected)
        except Exception as error:  # one that fails must not take the others with it
            errors[variant] = not_run(error)
    return errors


def worst(gradients: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, Any]:
    distances = {name: relative_error(gradients[name], exact) for name, exact in expected.items()}
    name, distance = max(distances.items(), key=itemgetter(1))
    return {"error": float(f"{distance:.2g}"), "parameter": name}


def relative_error(x: Tensor, exact: Tensor) -> float:
    """|x - exact| / |exact| of a whole tensor; infinite where something is not a number."""
    ratio = float(torch.linalg.norm(x.double() - exact) / torch.linalg.norm(exact))
    return ratio if math.isfinite(ratio) else math.inf


def compare(workload: Workload, backend: str, precision: str, tensors: Tensors, exact: Tensors) -> Row:
    """One line of the table."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    function = function_of(workload, backend)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        first, *again = (
            everything(workload, function, tensors, dtype) for _ in range(1 if backend == "reference" else 2)
        )
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    repeats = all(torch.equal(x, again[0][name]) for name, x in first.items()) if again else None
    errors = {name: relative_error(x, exact[name]) for name, x in first.items()}
    gradients = {name[2:]: errors.pop(name) for name in list(errors) if name.startswith("d ")}
    of, gradient = max(gradients.items(), key=itemgetter(1))
    tolerance = max(TOLERANCE[precision], SENSITIVE.get(workload.name, 0.0))
    output = max(errors.values())
    return Row(workload.name, backend, precision, output, gradient, of, tolerance, repeats)


def cases(workload: Workload, backends: Sequence[str], device: str) -> Iterator[tuple[Workload, str, str]]:
    """The cases compared, with their backend and numbers; on a CPU products have only one precision.

    UnICORNN has no products inside. In half precision its last layer is compared alone, fed with push
    and step (D = 0): else their rounding would be seen, and not that of the recurrence.
    """
    dt = workload.settings.get("dt")
    alone = replace(
        workload, name=f"{workload.name} alone", L=1, D=0,
        settings=workload.settings | {"dt": dt[-1] if isinstance(dt, list) else dt},
    )  # fmt: skip
    for backend in backends:
        if workload.recurrence == "cell" and backend == "torch":
            continue  # nobody wrote such a backward by hand
        yield workload, backend, "float32"
        if device == "cuda" and backend == "triton":
            if workload.recurrence == "unicornn":
                yield alone, backend, "bfloat16"
            else:
                yield from ((workload, backend, "tf32"), (workload, backend, "bfloat16"))


def table(
    workloads: Sequence[Workload], backends: Sequence[str], device: str
) -> Iterator[Row | tuple[str, str]]:
    """Rows as they are found; for what was not tried a pair, what and why."""
    for whole in workloads:
        exact: dict[str, tuple[Tensors, Tensors]] = {}
        for workload, backend, precision in cases(whole, backends, device):
            numbers = "bfloat16" if precision == "bfloat16" else "float32"
            try:
                if numbers not in exact:
                    tensors = draw(workload, device, getattr(torch, numbers))
                    loop = function_of(workload, "reference")
                    exact[numbers] = tensors, everything(workload, loop, tensors, torch.double)
                yield compare(workload, backend, precision, *exact[numbers])
            except Refused as reason:
                yield backend, str(reason)
            except torch.cuda.OutOfMemoryError:
                yield f"{backend} on {workload.name}", "not enough memory on the GPU"
            gc.collect()


def scan_memory() -> dict[str, int]:
    """Bytes that UnICORNN on a GPU takes beside its output and the gradient of its input, and the limit.

    A stored state every SEGMENT steps, and a few of single states; twice that, and 1 MiB for the allocator.
    """
    gpu = importlib.import_module("physml.ops.unicornn.triton")
    B, T, H = 8, 16384, 256
    push = torch.randn(B, T, H, device="cuda", requires_grad=True)
    y, z = torch.zeros(2, B, H, device="cuda")
    w, step = torch.rand(2, H, device="cuda") / 2
    incoming = torch.randn(B, T, H, device="cuda")
    for _ in range(2):  # the first time compiles
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(gpu.unicornn(push, y, z, w, step, alpha=1.0)[0], push, incoming)
    torch.cuda.synchronize()
    beside = torch.cuda.max_memory_allocated() - before - 2 * push.numel() * push.element_size()
    limit = 2 * (T // gpu.SEGMENT) * B * H * 4 + (1 << 20)
    return {"bytes": beside, "limit": limit, "path": push.numel() * 4}


def smaller(workload: Workload) -> Workload:
    """The same in a second: few steps, sequences and units."""
    return workload.with_sizes({name: min(workload.sizes[name], size) for name, size in QUICK.items()})


HEAD = f"{'workload':<25} {'backend':<9} {'numbers':<8} {'output':>8} {'gradient':>9} of    allowed"


def line(row: Row) -> str:
    repeats = {None: "", True: "same bits again", False: "OTHER BITS THE SECOND TIME"}[row.repeats]
    return (
        f"{row.workload:<25} {row.backend:<9} {row.precision:<8} {row.output:8.1e} {row.gradient:9.1e} "
        f"{row.of:<5} {row.tolerance:7.0e}  {'ok' if row.passed else 'FAIL':<4}  {repeats}"
    ).rstrip()


def about(device: str) -> dict[str, Any]:
    """The facts that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton") if importlib.util.find_spec("triton") else None,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }


def parser() -> argparse.ArgumentParser:
    p = command.parser("check_backends", __doc__)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--backend", action="append", choices=BACKENDS, help="only this one; can be repeated")
    p.add_argument("--workload", action="append", choices=[w.name for w in CHECKED], help="likewise")
    p.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    p.add_argument("--out", type=Path, metavar="FILE.json", help="write the table there too")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all right; 1: an error is too large or bits differ; 2: this device is not there."""
    options = parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "This check needs a CUDA GPU, and torch sees none. "
            "On a CPU: python -m scripts.bench.check_backends"
        )
        return 2
    workloads = [w for w in CHECKED if not options.workload or w.name in options.workload]
    workloads = [smaller(w) for w in workloads] if options.quick else workloads
    facts = about(options.device)
    print("  ".join(f"{key} {value}" for key, value in facts.items()))
    print(HEAD)
    rows: list[Row] = []
    untried: dict[str, str] = {}
    for entry in table(workloads, options.backend or BACKENDS, options.device):
        if isinstance(entry, Row):
            rows.append(entry)
            print(line(entry), flush=True)
        else:
            untried.setdefault(*entry)
    passed = bool(rows) and all(row.passed for row in rows)
    if options.device == "cuda" and "triton" in {row.backend for row in rows} and not options.quick:
        facts["scan_memory"] = memory = scan_memory()
        passed &= _memory_fits(memory)
    print("Not tried: " + ("; ".join(f"{name}: {why}" for name, why in untried.items()) or "nothing") + ".")
    print("All right." if passed else "Not all right, see above." if rows else "Nothing was tried.")
    if options.out is not None:
        result = {**facts, "passed": passed, "not_tried": untried}
        result["rows"] = [{**vars(row), "passed": row.passed} for row in rows]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if passed else 1


def _memory_fits(memory: dict[str, int]) -> bool:
    fits = memory["bytes"] <= memory["limit"]
    print(
        f"UnICORNN beside input and output: {memory['bytes'] >> 10} KiB, allowed "
        f"{memory['limit'] >> 10}; a stored path has {memory['path'] >> 10}: {'ok' if fits else 'FAIL'}"
    )
    return fits


if __name__ == "__main__":
    sys.exit(main())
