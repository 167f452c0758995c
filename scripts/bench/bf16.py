"""Products of bfloat16 against those of float32, recurrences in C: `python -m scripts.bench.bf16`.

Forward and backward of one batch, both precisions in turn, on one thread; the distance of the gradients.
Axes: B batch, T time, H hidden units.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.gated import LSTM
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN
from physml.ops import backend
from scripts.bench import command, report, store
from scripts.bench.rounds import interleave
from scripts.bench.variants import SEED

LAYERS = {
    "LEM": lambda d_in, n: LEM(d_in, n, dt=0.2, backend="native"),
    "coRNN": lambda d_in, n: CoRNN(d_in, n, dt=0.05, gamma=2.0, epsilon=4.0, backend="native"),
    "UnICORNN, 3 layers": lambda d_in, n: UnICORNN(d_in, n, dt=0.2, alpha=1.0, backend="native"),
    "LSTM, compiled": LSTM,
}
STEPS = {16: (1000, 32), 128: (784, 128), 512: (100, 128)}  # T and B by H
PRECISIONS = ("fp32", "bf16-products")


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run("bf16", _parser().parse_args(arguments), measure, text)


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("bf16", __doc__)
    parser.add_argument("--hidden", type=int, nargs="+", default=list(STEPS), metavar="H")
    parser.add_argument("--steps", type=int, help="T, instead of that of each H")
    parser.add_argument("--batch", type=int, help="B, instead of that of each H")
    parser.add_argument("--features", type=int, default=2, metavar="D")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each precision (%(default)s)")
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser


class Batch:
    """Forward and backward of one batch in one precision; calling it runs it."""

    def __init__(self, layer: torch.nn.Module, u: Tensor, slope: Tensor, precision: str) -> None:
        self.layer, self.u, self.slope, self.precision = layer, u, slope, precision

    def __call__(self) -> None:
        self.layer.zero_grad(set_to_none=True)
        with backend.running("auto", self.precision):
            self.layer(self.u)[0].backward(self.slope)

    def gradients(self) -> list[Tensor]:
        self()
        return [p.grad.clone() for p in self.layer.parameters() if p.grad is not None]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of processor time per batch, for every layer and size."""
    torch.set_num_threads(1)
    result = store.head("cpu")
    result |= {"features": options.features, "run": store.moment("cpu", 1), "cases": []}
    for hidden in options.hidden:
        n_steps, n_batch = STEPS.get(hidden, (200, 64))
        sizes = (options.batch or n_batch, options.steps or n_steps)
        for name, make in LAYERS.items():
            torch.manual_seed(SEED)
            layer = make(options.features, hidden)
            u, slope = torch.randn(*sizes, options.features), torch.randn(*sizes[::-1], hidden)
            both = {p: Batch(layer, u, slope.transpose(0, 1), p) for p in PRECISIONS}
            plain, rounded = (both[p].gradients() for p in PRECISIONS)
            apart = max(float((a - b).norm() / a.norm()) for a, b in zip(plain, rounded, strict=True))
            times = interleave(both, options.rounds, budget_s=60)
            case = {"layer": name, "H": hidden, "B": sizes[0], "T": sizes[1], "apart": apart}
            result["cases"].append({**case, "precisions": times})
    result["run"]["load_after"] = store.load()
    return result


def text(result: dict[str, Any]) -> str:
    """The table in Markdown: medians with quartiles, and the quotient of the medians."""
    rows = []
    for case in result["cases"]:
        of = case["precisions"]
        cells = [f"{f['ms']:.4g} ({f['ms_q25']:.4g}..{f['ms_q75']:.4g})" for f in (of[p] for p in PRECISIONS)]
        ratio = report.ratio(of["fp32"]["ms"] / of["bf16-products"]["ms"])
        sizes = f"H{case['H']} B{case['B']} T{case['T']}"
        rows.append([f"{case['layer']}, {sizes}", *cells, ratio, f"{case['apart']:.1e}"])
    run = result["run"]
    return "\n".join(
        [
            "Milliseconds of processor time for forward and backward of one batch, "
            f"D = {result['features']}, one thread: median (quartiles).",
            "The last column: the largest relative distance between both gradients of a parameter.",
            "",
            *report.table(["one batch", *PRECISIONS, "fp32 / bf16-products", "gradients apart"], rows),
            f"\n{run['date']}, torch {run['torch']}, commit {str(run['code']['commit'])[:8]}, "
            f"load {run['load_before']} to {run['load_after']}.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
