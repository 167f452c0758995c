"""Costs of all kernels for a GPU, without one: `python -m scripts.gpu_costs --check`, --write or --estimate.

Each case runs forward and backward on tensors without memory, where every launch is written down. A kernel is
then compiled as that launch would have it, for each kind of GPU, and read again as machine code:

    registers: those of a thread.
    spilled: bytes of them that went to memory.
    shared: bytes of shared memory of a program.
    instructions: of a warp in a step; of a kernel without a loop over time in all.
    loaded: bytes that a program asks memory or caches for in that step, inputs and weights.

For a case: `launches`, kernels, products and copies that a step needs, and `weights`, bytes of weights that
the products of a step read; both by comparing a sequence with one of twice its length.

Axes: B batch, T time, D features, H hidden units.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from physml.base.paths import CONF
from physml.config.resolve import resolve
from physml.ops import backend as backends
from physml.ops.triton import available

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "gpu.json"
ARCHITECTURES = (80, 90, 100)  # A100, H100, B200
COSTS = ("registers", "spilled", "shared", "instructions", "loaded")
STEPS = 128
PRODUCTS = ("mm", "addmm", "addmm_", "bmm", "baddbmm_")
COPIES = ("copy_", "cat", "fill_", "zero_", "add_", "clone", "_to_copy")


@dataclass(frozen=True)
class Case:
    """A layer and the sizes of its input."""

    make: Callable[[], nn.Module]
    B: int = 64
    D: int = 8
    dtype: torch.dtype = torch.float32


def _by_hand() -> dict[str, Case]:
    """LEM, coRNN and UnICORNN in every plan that a size of the tables leads to."""
    from physml.models.sequence.cornn import CoRNN
    from physml.models.sequence.lem import LEM
    from physml.models.sequence.unicornn import UnICORNN

    by_name: dict[str, Case] = {}
    cornn: dict[str, Any] = {"dt": 0.1, "gamma": 1.0, "epsilon": 1.0}
    for H in (16, 32, 64, 128, 1024):
        by_name[f"lem H{H}"] = Case(partial(LEM, 8, H, dt=1.0))
    for H in (32, 64, 128, 256):
        by_name[f"cornn H{H}"] = Case(partial(CoRNN, 8, H, **cornn))
    for name, make in (("lem", partial(LEM, 8, 128, dt=1.0)), ("cornn", partial(CoRNN, 8, 128, **cornn))):
        by_name[f"{name} H128 B1024 bfloat16"] = Case(make, 1024, dtype=torch.bfloat16)
    for H, B in ((32, 8), (256, 128)):
        by_name[f"unicornn H{H} B{B}"] = Case(partial(UnICORNN, 8, H, n_layers=1, dt=0.1, alpha=1.0), B)
    return by_name


def cases() -> dict[str, Case]:
    """All cases by name: kernels by hand, and the models of conf/model as they stand there."""
    by_name = _by_hand()
    for path in sorted((CONF / "model").glob("*.yaml")):
        settings = yaml.safe_load(path.read_text())
        target = settings.pop("_target_", "")
        if target.startswith("physml.models.sequence.") and path.stem not in ("lem", "cornn", "unicornn"):
            settings.pop("smoke", None)
            by_name[path.stem] = Case(partial(_model, target, settings))
    return by_name


def _model(target: str, settings: dict[str, Any]) -> nn.Module:
    model: nn.Module = resolve(target)(d_in=8, **settings)
    return model


@dataclass
class Recorded(TorchDispatchMode):
    """Launches of kernels, and operations of torch, while it is entered."""

    n_batch: int
    kernels: Counter[str] = field(default_factory=Counter)
    launches: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    weights: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def launch(self, function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        module, name = function.fn.__module__.rsplit(".", 1)[-1], function.fn.__name__
        flags = [key for key in ("Y", "SAVED", "KEEP") if key in kwargs]
        label = " ".join([f"{module}.{name}", *(f"{key}={int(kwargs[key])}" for key in flags)])
        self.kernels[label] += 1
        self.launches.setdefault(label, (function, args, kwargs))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.operations[name] += 1
        rows, columns = args[-2].shape[-2:] if name in PRODUCTS else (0, 0)
        if rows == self.n_batch and columns < self.n_batch * STEPS:  # a product of one step
            self.weights += args[-1].numel() * args[-1].element_size()
        return func(*args, **(kwargs or {}))


@contextmanager
def recording(n_batch: int) -> Iterator[Recorded]:
    """Every launch is written down and not done; the backend `triton` is taken on any device."""
    from triton.runtime.jit import JITFunction

    recorded = Recorded(n_batch)

    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        recorded.launch(self, *args, **kwargs)

    with (
        mock.patch.object(JITFunction, "run", run),
        mock.patch.object(available, "unusable", lambda device: None),
        mock.patch.object(torch, "is_autocast_enabled", lambda *_: False),  # the device meta has none
        backends.running("triton"),
        recorded,
    ):
        yield recorded


def recorded(case: Case, n_steps: int) -> Recorded:
    """A forward and a backward pass of a case."""
    torch.manual_seed(0)
    layer = case.make().to(device="meta", dtype=case.dtype).train()
    u = torch.empty(case.B, n_steps, case.D, device="meta", dtype=case.dtype)
    with recording(case.B) as passes:
        outputs, *_ = layer(u)
        torch.autograd.grad(outputs, list(layer.parameters()), torch.empty_like(outputs), allow_unused=True)
    return passes


def of_a_step(case: Case) -> tuple[Recorded, dict[str, Any]]:
    """Launches of a step by kind, and bytes of weights that its products read."""
    short, long = recorded(case, STEPS), recorded(case, 2 * STEPS)

    def a_step(count: Callable[[Recorded], float]) -> float:
        return round((count(long) - count(short)) / STEPS, 2)

    def operations(names: Sequence[str]) -> Callable[[Recorded], float]:
        return lambda passes: sum(passes.operations[name] for name in names)

    launches = {
        "kernels": a_step(lambda passes: passes.kernels.total()),
        "products": a_step(operations(PRODUCTS)),
        "copies": a_step(operations(COPIES)),
    }
    return long, {"launches": launches, "weights": a_step(lambda passes: passes.weights)}


def compiled(launch: tuple[Any, tuple[Any, ...], dict[str, Any]], architecture: int) -> Any:
    """The kernel of a launch, as it would be compiled for these arguments on that GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    function, args, kwargs = launch
    target = GPUTarget("cuda", architecture, 32)
    backend = make_backend(target)
    bind = create_function_from_signature(function.signature, function.params, backend)
    bound, specialization, options = bind(*args, **{"debug": False, **kwargs})
    options, signature, constants, attributes = function._pack_args(
        backend, kwargs, bound, specialization, options
    )
    source = ASTSource(function, signature, constants, attributes)
    return triton.compile(source, target=target, options=options.__dict__)


def tool(*arguments: str) -> str:
    import triton

    program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def costs(kernel: Any) -> list[int]:
    """The costs of a compiled kernel, in the order of COSTS."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage, code = tool("--dump-resource-usage", file.name), tool("--dump-sass", file.name)
    registers, stack = (int(re.findall(rf"{name}:(\d+)", usage)[-1]) for name in ("REG", "STACK"))
    step = in_a_step(code)
    threads = 32 * kernel.metadata.num_warps
    loads = [re.search(r"\b(?:LDG|LDGSTS)\.E(?:\.\w+)*?(?:\.(64|128))?\b", line) for line in step]
    loaded = sum(threads * int(load[1] or 32) // 8 for load in loads if load)
    return [registers, stack, int(kernel.metadata.shared), len(step), loaded]


def in_a_step(code: str) -> list[str]:
    """The instructions of the longest loop that has no other inside; all if there is none."""
    instructions = re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]+);", code)
    lines = [
        (int(at, 16), text) for at, text in instructions if not re.match(r"NOP|BRA `?\(?\.L_x_\d+\)?$", text)
    ]
    loops = [
        (int(target[1], 16), at)
        for at, text in lines
        if (target := re.search(r"\bBRA(?:\.\w+)*\s+(?:\w+, )?0x([0-9a-f]+)", text))
        and int(target[1], 16) < at
    ]
    inner = [x for x in loops if not any(x != y and x[0] <= y[0] and y[1] <= x[1] for y in loops)]
    begin, end = max(inner, key=lambda loop: loop[1] - loop[0], default=(0, lines[-1][0]))
    return [text for at, text in lines if begin <= at <= end]


def measured(name: str, architectures: Sequence[int] = ARCHITECTURES) -> dict[str, Any] | None:
    """All about a case; None if it launches no kernel of physml."""
    case = cases()[name]
    if not recorded(case, 2).launches:
        return None
    passes, about = of_a_step(case)
    kernels = {
        label: {str(sm): costs(compiled(launch, sm)) for sm in architectures}
        for label, launch in passes.launches.items()
    }
    return {**about, "kernels": kernels}


# An H100: multiprocessors, cycles in a microsecond, instructions a multiprocessor starts in a cycle, bytes of
# its nearest cache in a cycle, float32 operations in a microsecond without matrix units. A launch inside a
# CUDA graph is taken to last two microseconds.
SM, CLOCK, ISSUED, NEAR, FLOPS, LAUNCH = 132, 1700, 4, 128, 60e6, 2.0
WARPS = {16: 1, 32: 1, 64: 8, 128: 8}  # of a program that takes a sequence through all steps


@dataclass(frozen=True)
class Training:
    """A row of a table: its case, T, B and H, batches of an epoch, and the size of the recurrent weights."""

    case: str
    T: int
    B: int
    H: int
    batches: int
    weights: int


TABLES = {
    "lem-1, LEM on sMNIST": Training("lem H128", 784, 128, 128, 446, 4 * 128**2),
    "cornn-1, coRNN on psMNIST": Training("cornn H256", 784, 120, 256, 475, 2 * 256**2),
    "lem-2, LEM on EigenWorms": Training("lem H32", 17984, 8, 32, 23, 4 * 32**2),
    "lem-6, LEM on PTB by character": Training("lem H1024", 150, 128, 1024, 262, 4 * 1024**2),
}


def estimate(training: Training, about: dict[str, Any]) -> tuple[float, str, float]:
    """Microseconds of a step forward and back at best, what limits it, and seconds of an epoch."""
    flops = 4 * training.B * training.weights / FLOPS  # without the gradients of weights
    if launches := about["launches"]["kernels"] + about["launches"]["products"]:
        limits = {"launches": launches * LAUNCH, "products": flops}
        step = sum(limits.values())
    else:
        kernels = [dict(zip(COSTS, kernel["90"], strict=True)) for kernel in about["kernels"].values()]
        each = -(-training.B // SM) / CLOCK  # programs of a multiprocessor, one after the other
        instructions = sum(kernel["instructions"] for kernel in kernels) * WARPS[training.H] * each
        limits = {
            # One warp starts an instruction in a cycle, four or more start four.
            "instructions": instructions / min(ISSUED, WARPS[training.H]),
            "bytes read": sum(kernel["loaded"] for kernel in kernels) / NEAR * each,
        }
        step = max(limits.values())
    after = 2 * training.B * training.weights / FLOPS  # gradients of weights
    return step, max(limits, key=limits.__getitem__), (step + after) * training.T * training.batches * 1e-6


def main(arguments: Sequence[str] | None = None) -> int:
    """0: the file has what was found; 1: it differs."""
    p = argparse.ArgumentParser(
        prog="python -m scripts.gpu_costs", description=(__doc__ or "").split("\n")[0]
    )
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with tests/golden/gpu.json")
    what.add_argument("--write", action="store_true", help="write that file")
    what.add_argument("--estimate", action="store_true", help="times on an H100 at best, from that file")
    p.add_argument("--case", action="append", help="only this one; can be repeated")
    p.add_argument("--jobs", type=int, default=2)
    options = p.parse_args(arguments)
    before = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"cases": {}}
    if options.estimate:
        for row, training in TABLES.items():
            step, limit, epoch = estimate(training, before["cases"][training.case])
            print(f"{row:<32} {step:6.1f} µs a step, most of it {limit:<12} {epoch:7.2f} s an epoch")
        return 0
    names = options.case or list(cases())
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        by_name: dict[str, Any] = {}
        for name, about in zip(names, pool.map(measured, names), strict=True):
            print(name, "no kernel" if about is None else about["launches"], flush=True)
            if about is not None:
                by_name[name] = about
    if options.write:
        whole = before["cases"] if options.case else {}
        write({**whole, **by_name})
        return 0
    wrong = [
        line for name in names for line in differences(before["cases"].get(name), by_name.get(name), name)
    ]
    print("\n".join(wrong) or f"{len(by_name)} cases as in {GOLDEN.name}.")
    return int(bool(wrong))


def write(by_name: dict[str, Any]) -> None:
    about = {"triton": version("triton"), "costs": COSTS}
    text = json.dumps({**about, "cases": by_name}, indent=1)
    GOLDEN.write_text(re.sub(r"\[\s+([\d,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n")


def differences(old: Any, new: Any, name: str) -> Iterator[str]:
    """A line for each number that is another one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from differences(old.get(key), new.get(key), f"{name} / {key}")
    elif old != new:
        yield f"{name}: {old} before, {new} now"


if __name__ == "__main__":
    sys.exit(main())
