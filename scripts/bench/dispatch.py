"""Check that `auto` chooses the fastest backend of a CPU: `python -m scripts.bench.dispatch`.

Each op at many sizes, forward alone and with its backward, by every backend that can, in rounds. What `auto`
chooses is compared with the fastest; a choice that is beaten by more than 5 % is timed once more, with more
rounds, before it is reported. Axes: B batch, T time, D features, H hidden units.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops import backend, cornn, lem, unicornn
from physml.ops.cell import recurrence
from scripts.bench import command, report, rounds, store
from scripts.bench.rounds import Call, interleave
from scripts.bench.run import chosen
from scripts.bench.variants import SEED

D = 8
BEATEN = 1.05  # times the fastest
WORK = 1e9  # multiplications in a pass above which a size is left out: there products decide
AXES = {"hidden": (16, 64, 128, 256, 512, 1024), "batch": (1, 8, 32, 128), "steps": (1, 2, 4, 16, 64)}
SAMPLE_S = 0.003
BUDGET_S = 0.6  # for the rounds of a size
BACKENDS = ("reference", "torch", "native")

Sizes = tuple[int, int, int]  # H, B, T
Args = tuple[Callable[..., Any], list[Tensor]]  # of an op: all but its backend, and its tensors


def _draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED)) * shape[-1] ** -0.5


def _lem(H: int, B: int, T: int) -> Args:
    shapes = (B, T, D), (B, H), (B, H), (3 * H, H), (H, H), (4 * H, D), (4 * H,)
    return partial(lem.lem, dt=1.0), [_draw(*shape) for shape in shapes]


def _cornn(H: int, B: int, T: int) -> Args:
    shapes = (B, T, D), (B, H), (B, H), (H, H), (H, H), (H, D), (H,)
    return partial(cornn.cornn, dt=0.05, gamma=1.0, epsilon=1.0), [_draw(*shape) for shape in shapes]


def _unicornn(H: int, B: int, T: int) -> Args:
    return partial(unicornn.unicornn, alpha=1.0), [
        _draw(*shape) for shape in ((B, T, H), (B, H), (B, H), (H,), (H,))
    ]


def _cell(H: int, B: int, T: int) -> Args:
    tensors = [_draw(*shape) for shape in ((B, T, D), (B, H), (H, H), (H, D))]

    def op(u: Tensor, h: Tensor, W: Tensor, V: Tensor, *, backend: str) -> Tensor:
        def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
            h = 0.9 * state[0] + 0.1 * torch.tanh(F.linear(state[0], W) + F.linear(u, V))
            return h, (h,)

        return recurrence(step, u, (h,), backend=backend)[0]

    return op, tensors


OPS: dict[str, tuple[Callable[[int, int, int], Args], int]] = {  # and products of H x H in a step
    "lem": (_lem, 4),
    "cornn": (_cornn, 2),
    "unicornn": (_unicornn, 0),
    "cell": (_cell, 1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run("dispatch", _parser().parse_args(arguments), measure, text, _joined)


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Cells of operations that were not measured now stay."""
    measured = {cell["op"] for cell in new["cells"]}
    kept = [cell for cell in old.get("cells", []) if cell["op"] not in measured]
    return new | {"cells": kept + new["cells"]}


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("dispatch", __doc__)
    parser.add_argument(
        "--op", default="all", help=f"all, or some of: {', '.join(OPS)}; the results of the others stay"
    )
    for axis, sizes in AXES.items():
        parser.add_argument(f"--{axis}", type=int, nargs="+", default=sizes)
    parser.add_argument("--rounds", type=int, default=3, help="samples of each backend (%(default)s)")
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of every op, size, pass and backend, on one thread."""
    torch.set_num_threads(1)
    result = store.head("cpu")
    result |= {"features": D, "run": store.moment("cpu", 1), "cells": []}
    for name in chosen(options.op, tuple(OPS), "op"):
        make, products = OPS[name]
        for H, B, T in itertools.product(options.hidden, options.batch, options.steps):
            if B * T * H * (products * H + D) > WORK:
                continue
            for trained in (False, True):
                cell: dict[str, Any] = {"op": name, "H": H, "B": B, "T": T, "backward": trained}
                cell |= _timed(*make(H, B, T), trained, options.rounds)
                result["cells"].append(cell)
                if cell["beaten"] > BEATEN:
                    print("beaten:", cell, flush=True)
    result["run"]["load_after"] = store.load()
    return result


def _timed(op: Callable[..., Any], tensors: list[Tensor], trained: bool, n_rounds: int) -> dict[str, Any]:
    """The backend that auto chooses, and the times of all."""
    for x in tensors[1:]:
        x.requires_grad_(trained)
    steps = {name: _call(op, tensors, name, trained) for name in BACKENDS}
    backend.reset()
    _call(op, tensors, "auto", trained)()
    (auto,) = backend.ran()
    before, rounds.SAMPLE_S = rounds.SAMPLE_S, SAMPLE_S
    try:
        for n in (n_rounds, 4 * n_rounds):
            timed = interleave(steps, n, BUDGET_S)
            ms = {name: facts["ms"] for name, facts in timed.items() if "ms" in facts}
            if ms[auto] <= BEATEN * min(ms.values()):
                break
    finally:
        rounds.SAMPLE_S = before
    return {"auto": auto, "ms": ms, "beaten": round(ms[auto] / min(ms.values()), 2)}


def _call(op: Callable[..., Any], tensors: list[Tensor], name: str, trained: bool) -> Call:
    def forward() -> None:
        with torch.no_grad():
            op(*tensors, backend=name)

    def both() -> None:
        for x in tensors:
            x.grad = None
        result = op(*tensors, backend=name)
        outputs: Tensor = result if isinstance(result, Tensor) else result[0]
        outputs.backward(torch.ones_like(outputs))

    return both if trained else forward


def text(result: dict[str, Any]) -> str:
    """Per op and pass: how many sizes, who is chosen, where a choice is beaten; then each such size."""
    cells, run = result["cells"], result["run"]
    rows, beaten = [], []
    for (name, trained), group in itertools.groupby(
        sorted(cells, key=lambda c: (c["op"], c["backward"])), key=lambda c: (c["op"], c["backward"])
    ):
        some = list(group)
        worse = [c for c in some if c["beaten"] > BEATEN]
        choices = {b: n for b in BACKENDS if (n := sum(c["auto"] == b for c in some))}
        rows.append(
            [
                f"{name}, {'forward and backward' if trained else 'forward'}",
                str(len(some)),
                ", ".join(f"{b} {n}" for b, n in choices.items()),
                str(len(worse)),
                report.ratio(max(c["beaten"] for c in some)),
            ]
        )
        beaten += worse
    details = [
        [
            f"{c['op']}, {'forward and backward' if c['backward'] else 'forward'}",
            *(str(c[axis]) for axis in "HBT"),
            c["auto"],
            min(c["ms"], key=c["ms"].__getitem__),
            report.ratio(c["beaten"]),
        ]
        for c in beaten
    ]
    lines = [
        f"{'; '.join(f'{a} = {sorted({c[a] for c in cells})}' for a in 'HBT')}, up to {WORK:.0e} "
        f"multiplications; D = {result['features']}, float32, one thread. A choice is beaten where it takes "
        f"{100 * (BEATEN - 1):.0f} % more time than another backend, in two measurements.",
        "",
        *report.table(["op", "sizes", "auto chooses", "beaten", "worst: chosen / fastest"], rows),
    ]
    if details:
        heads = ["beaten", "H", "B", "T", "auto", "fastest", "chosen / fastest"]
        lines += ["", *report.table(heads, details)]
    lines += [
        "",
        f"{run['date']}, torch {run['torch']}, commit {str(run['code']['commit'])[:8]}, "
        f"load {run['load_before']} to {run['load_after']}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
