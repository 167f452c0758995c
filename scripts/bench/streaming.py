"""Latency of one time step, sequences that come in live: `python -m scripts.bench.streaming`.

Without gradients, the state carried by the caller: our layer called with T = 1, its `step`, a plain cell of a
few torch operations, nn.LSTM called with T = 1, and onnxruntime's LSTM where that package is installed.
Axes: B batch, D features, H hidden units.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from physml.base.errors import MissingExtra, PhysmlError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from scripts.bench import command, report, store
from scripts.bench.official import OfficialLoop
from scripts.bench.rounds import Call, interleave, not_run
from scripts.bench.variants import SEED, layer
from scripts.bench.workloads import Workload

RECURRENCES = {
    "lem": {"dt": 1.0},
    "cornn": {"dt": 0.05, "gamma": 1.0, "epsilon": 1.0},
    "unicornn": {"dt": 0.1, "alpha": 1.0},
}
VARIANTS = {
    "layer": "layer(T=1)",
    "step": "layer.step",
    "cell": "plain cell",
    "lstm": "nn.LSTM(T=1)",
    "onnx": "onnxruntime LSTM",
}


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run("streaming", _parser().parse_args(arguments), measure, text)


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("streaming", __doc__)
    parser.add_argument("--hidden", type=int, nargs="+", default=[16, 128, 512], metavar="H")
    parser.add_argument("--batch", type=int, default=1, metavar="B")
    parser.add_argument("--features", type=int, default=8, metavar="D")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each variant (%(default)s)")
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser


@torch.no_grad()
def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of one step, every variant of a size interleaved, on one thread."""
    torch.set_num_threads(1)
    result = store.head("cpu")
    result |= {"batch": options.batch, "features": options.features}
    result |= {"run": store.moment("cpu", 1), "cases": []}
    for name, settings in RECURRENCES.items():
        for hidden in options.hidden:
            sizes = 1, options.batch, options.features, hidden
            steps, refused = steps_of(Workload(name, name, name, *sizes, settings=settings))
            times = interleave(steps, options.rounds, budget_s=60)
            case = {"recurrence": name, "H": hidden, "variants": {**times, **refused}}
            result["cases"].append(case)
    result["run"]["load_after"] = store.load()
    return result


def steps_of(workload: Workload) -> tuple[dict[str, Call], dict[str, dict[str, str]]]:
    """A function for each variant; for the others why there is none."""
    makers: dict[str, Callable[[Workload], Call]] = {
        "layer": _layer, "step": _step, "cell": _cell, "lstm": _lstm, "onnx": _onnx
    }  # fmt: skip
    steps, refused = {}, {}
    for name, make in makers.items():
        try:
            steps[name] = make(workload)
        except PhysmlError as error:
            refused[name] = not_run(error)
    return steps, refused


def _input(workload: Workload) -> Tensor:
    return torch.randn(workload.B, workload.D, generator=torch.Generator().manual_seed(SEED))


def _layer(workload: Workload) -> Call:
    ours: Any = layer(workload, "auto")
    u = _input(workload).unsqueeze(1)
    state = ours(u)[1]
    return lambda: ours(u, state)


def _step(workload: Workload) -> Call:
    ours: Any = layer(workload, "auto")
    u = _input(workload)
    state = ours.step(u)[1]
    return lambda: ours.step(u, state)


def _cell(workload: Workload) -> Call:
    ours, u = layer(workload, "reference"), _input(workload)
    y, z = torch.zeros(2, workload.B, workload.H)
    if isinstance(ours, CoRNN | LEM):
        cell = OfficialLoop(ours).cell
        return lambda: cell(u, y, z)
    symbols, alpha = ours.symbols()[0], ours.alpha
    product = nn.Linear(workload.D, workload.H)
    product.load_state_dict({"weight": symbols["V"], "bias": symbols["b"]})

    def oscillators() -> tuple[Tensor, Tensor]:
        step = ours.dt[0] * torch.sigmoid(symbols["c"])
        z_new = z - step * (torch.tanh(symbols["w"] * y + product(u)) + alpha * y)
        return y + step * z_new, z_new

    return oscillators


def _lstm(workload: Workload) -> Call:
    lstm, u = nn.LSTM(workload.D, workload.H, batch_first=True), _input(workload).unsqueeze(1)
    state = lstm(u)[1]
    return lambda: lstm(u, state)


def _onnx(workload: Workload) -> Call:
    """The LSTM of onnxruntime, its state fed by the caller as in all others."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise MissingExtra(
            f"{error.name} is not installed; install onnx and onnxruntime to compare"
        ) from error
    B, D, H = workload.B, workload.D, workload.H
    generator = torch.Generator().manual_seed(SEED)
    weights = {"W": (1, 4 * H, D), "R": (1, 4 * H, H), "b": (1, 8 * H)}
    stored = [
        numpy_helper.from_array(((torch.rand(s, generator=generator) * 2 - 1) * H**-0.5).numpy(), name)
        for name, s in weights.items()
    ]
    state = [1, B, H]
    named = {"u": [1, B, D], "h": state, "c": state, "h_new": state, "c_new": state}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in named.items()]
    node = helper.make_node("LSTM", ["u", "W", "R", "b", "", "h", "c"], ["", "h_new", "c_new"], hidden_size=H)
    graph = helper.make_graph([node], "lstm", ports[:3], ports[3:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {"u": _input(workload).unsqueeze(0).numpy()}
    feed |= {name: torch.zeros(*state).numpy() for name in "hc"}
    return lambda: session.run(None, feed)


def text(result: dict[str, Any]) -> str:
    """The table in Markdown: medians with quartiles, and `layer` and `step` against their goals."""
    rows: list[list[str]] = []
    refused: dict[str, str] = {}
    run = result["run"]
    for case in result["cases"]:
        of = case["variants"]
        ms = {name: of[name].get("ms") for name in VARIANTS}
        refused |= {VARIANTS[name]: of[name]["not_run"] for name in VARIANTS if "not_run" in of[name]}
        cells = [
            f"{1000 * of[n]['ms']:.1f} ({1000 * of[n]['ms_q25']:.1f}..{1000 * of[n]['ms_q75']:.1f})"
            if ms[n]
            else "–"
            for n in VARIANTS
        ]
        quotients = [
            report.ratio(ms[a] / ms[b] if ms[a] and ms[b] else None)
            for a, b in (("layer", "cell"), ("step", "onnx"))
        ]
        rows.append([f"{case['recurrence']} H{case['H']}", *cells, *quotients])
    heads = ["one step", *VARIANTS.values(), "layer / cell", "step / onnxruntime"]
    lines = [
        f"Microseconds of processor time for one step, B = {result['batch']}, D = {result['features']}, "
        "float32, one thread, no gradients: median (quartiles).",
        "",
        *report.table(heads, rows),
        *(f"\nNot run: {label}: {reason.rstrip('.')}." for label, reason in refused.items()),
        f"\n{run['date']}, torch {run['torch']}, commit {str(run['code']['commit'])[:8]}, "
        f"load {run['load_before']} to {run['load_after']}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
