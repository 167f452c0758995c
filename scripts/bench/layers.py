"""Time per batch of UnICORNN beside other recurrent layers: `python -m scripts.bench.layers`.

The measurement of the UnICORNN paper (arXiv 2103.05487), Figure 2; thesis, Figure 3.2, there on a GPU:
forward and backward of one batch of 128 sequences, N = 1000 and 2000. Here on one thread of a CPU, or on a
GPU with `--device cuda`, float32, all layers in turn. The figure unicornn-fig-2 draws what this writes.
Axes: B batch, N steps, D features, H hidden units.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.orthogonal import ExpRNN
from physml.models.sequence.sru import SRU
from physml.models.sequence.unicornn import UnICORNN
from scripts.bench import command, report, store
from scripts.bench.rounds import interleave
from scripts.bench.variants import SEED, batch
from scripts.bench.workloads import Workload


class Stack(nn.Module):
    """Layers one above the other, called as one layer; every one starts from its zero state."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, u: Tensor) -> tuple[Tensor, None]:
        for layer in self.layers:
            u = layer(u)[0]
        return u, None


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {  # name -> from D and H
    "UnICORNN, 2 layers": lambda D, H: UnICORNN(D, H, n_layers=2, dt=0.19, alpha=30.65),
    "SRU, 2 layers": lambda D, H: Stack(SRU(D, H), SRU(H, H)),
    "IndRNN, 2 layers": lambda D, H: IndRNN(D, H, n_layers=2),
    "nn.LSTM": lambda D, H: nn.LSTM(D, H, batch_first=True),
    "nn.GRU": lambda D, H: nn.GRU(D, H, batch_first=True),
    "coRNN": lambda D, H: CoRNN(D, H, dt=0.076, gamma=0.4, epsilon=8.0),
    "expRNN": lambda D, H: ExpRNN(D, H),
}


class Pass:
    """Forward and backward of one batch; calling it runs it. All parameters need gradients, not the input."""

    def __init__(self, name: str, sizes: Workload, device: str) -> None:
        torch.manual_seed(SEED)
        self.layer = LAYERS[name](sizes.D, sizes.H).to(device)
        self.u, self.slope = (x.to(device) for x in batch(sizes))

    def __call__(self) -> None:
        self.layer.zero_grad(set_to_none=True)
        self.layer(self.u)[0].backward(self.slope)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run("layers", _parser().parse_args(arguments), measure, text)


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("layers", __doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1000, 2000], metavar="N")
    parser.add_argument("--batch", type=int, default=128, metavar="B")
    parser.add_argument("--features", type=int, default=1, metavar="D")
    parser.add_argument("--hidden", type=int, default=128, metavar="H")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each layer, at most (%(default)s)")
    parser.add_argument("--budget-s", type=float, default=90, help="for one length (%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of every layer for each length, interleaved; on a CPU processor time of one thread."""
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device cuda needs a GPU that torch can use, and there is none. Use --device cpu.")
    torch.set_num_threads(1)
    sizes = {"B": options.batch, "D": options.features, "H": options.hidden}
    result = store.head(options.device)
    result |= {"device": options.device, "sizes": sizes}
    result |= {"run": store.moment(options.device, 1), "lengths": {}}
    for length in options.lengths:
        at = Workload("layers", "layers", "unicornn", length, **sizes)
        steps = {name: Pass(name, at, options.device) for name in LAYERS}
        times = interleave(steps, options.rounds, options.budget_s, options.device)
        result["lengths"][str(length)] = times
    result["run"]["load_after"] = store.load()
    return result


def text(result: dict[str, Any]) -> str:
    """The table in Markdown: medians with quartiles, and the time over that of UnICORNN."""
    run, sizes, lengths = result["run"], result["sizes"], result["lengths"]
    rows, refused = [], {}
    for name in LAYERS:
        cells = []
        for by_layer in lengths.values():
            facts, ours = by_layer[name], by_layer["UnICORNN, 2 layers"].get("ms")
            if "not_run" in facts:
                refused[name] = facts["not_run"]
            quartiles = f"{report.number(facts.get('ms_q25'))}..{report.number(facts.get('ms_q75'))}"
            cells += [f"{report.number(facts.get('ms'))} ({quartiles})" if "ms" in facts else "–"]
            cells += [report.ratio(facts["ms"] / ours if ours and "ms" in facts else None)]
        rows.append([name, *cells])
    heads = [head for n in lengths for head in (f"N = {n}, ms", "/ UnICORNN")]
    where = "a GPU" if result["device"].startswith("cuda") else "a CPU, processor time of one thread"
    lines = [
        f"Forward and backward of one batch on {where}: B = {sizes['B']}, D = {sizes['D']}, "
        f"H = {sizes['H']}, float32: median (quartiles).",
        "",
        *report.table(["layer", *heads], rows),
        *(f"\nNot run: {name}: {reason.rstrip('.')}." for name, reason in refused.items()),
        f"\n{store.machine_name(result['machine'])}. {run['date']}, torch {run['torch']}, "
        f"commit {str(run['code']['commit'])[:8]}, load {run['load_before']} to {run['load_after']}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
