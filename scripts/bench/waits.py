"""Times that users wait beside the recurrences: `python -m scripts.bench.waits`. Axes: B, T, E edges.

Times of forward and backward are processor time on one thread, all ways in turn; JAX and PyG run where
installed. Runs and the site are whole processes with their children.
"""

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from physml.base.errors import RunFailed
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution, MeanConvolution
from physml.models.sequence.diagonal_ssm import S4D, S5
from physml.models.sequence.lem import LEM
from physml.models.sequence.linoss import LinOSS
from physml.models.sequence.lru import LRU
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.state_space import Block
from physml.ops import backend
from scripts.bench import command, report, store
from scripts.bench.rounds import Call, interleave, not_run
from scripts.bench.variants import SEED

Ways = dict[str, Call]
Made = tuple[Ways, dict[str, Any]]  # calls by way, and why others did not run
EDGES = (1_000, 100_000, 1_000_000)  # seven per node
STACKS = {"S4D": S4D, "S5": S5, "LRU": LRU, "LinOSS": LinOSS}
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: children of children are ours to wait for


def trained(model: nn.Module, *inputs: Tensor, preferred: str = "auto") -> Call:
    """Forward and backward of the first output."""

    def run() -> None:
        model.zero_grad(set_to_none=True)
        with backend.running(preferred):
            output = model(*inputs)
            output = output[0] if isinstance(output, tuple) else output
            output.sum().backward()

    return run


def state_spaces(size: tuple[int, int]) -> dict[str, Made]:
    """Stacks of two blocks with 64 features and 16 states, by B and T; the convolution of S4D in JAX."""
    n_batch, n_steps = size
    cases: dict[str, Made] = {}
    u = torch.randn(n_batch, n_steps, 64)
    for name, make in STACKS.items():
        model = make(64, 64, d_state=16, n_layers=2)
        ways = {"auto": trained(model, u), "reference": trained(model, u, preferred="reference")}
        cases[f"{name}, B{n_batch} T{n_steps}"] = ways, {}
    blocks = (m for m in S4D(64, 64, d_state=16, n_layers=1).modules() if isinstance(m, Block))
    layer = next(blocks).recurrence
    state = tuple(torch.zeros(n_batch, width) for width in layer.widths)
    ways, refused = {"auto": trained(_WithState(layer, state), u)}, {}
    try:
        from scripts.bench.in_jax import fft_s4d

        ways["jax"] = fft_s4d(layer, u)
    except Exception as error:  # it is not installed
        refused["jax"] = not_run(error)
    return cases | {f"S4D without its block, B{n_batch} T{n_steps}": (ways, refused)}


class _WithState(nn.Module):
    def __init__(self, layer: nn.Module, state: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.layer, self.state = layer, state

    def forward(self, u: Tensor) -> Any:
        return self.layer(u, self.state)


def last_step(size: tuple[int, int]) -> dict[str, Made]:
    """LEM with a read-out of the last step, of the last of all outputs, and of every step."""
    (n_batch, n_steps), u = size, torch.randn(*size, 1)
    layer = LEM(1, 128, dt=0.2)
    kinds = {"last": "last", "every": "every"}
    ways = {
        way: trained(SequenceModel(lambda _: layer, 1, 10, readout=readout, tokens=False), u)  # type: ignore[arg-type]
        for way, readout in kinds.items()
    }

    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.readout = layer, nn.Linear(128, 10)

        def forward(self, u: Tensor) -> Tensor:
            out: Tensor = self.readout(self.layer(u)[0][:, -1])
            return out

    return {f"LEM H128, B{n_batch} T{n_steps}": ({**ways, "y[:, -1]": trained(Sliced(), u)}, {})}


def edges(n_edges: int) -> dict[str, Made]:
    """Layers of 64 channels on a random graph."""
    generator, n = torch.Generator().manual_seed(SEED), max(2, n_edges // 7)
    edge_index = torch.randint(0, n, (2, n_edges), generator=generator)
    x = torch.randn(n, 64, generator=generator).requires_grad_()
    ours = {
        "GCN": GraphConvolution(64, 64),
        "GraphSAGE": MeanConvolution(64, 64),
        "GAT": GraphAttention(64, 16, n_heads=4),
    }
    cases: dict[str, Made] = {}
    for name, layer in ours.items():
        ways = {"auto": trained(layer, x, edge_index)}
        ways["torch"] = trained(layer, x, edge_index, preferred="torch")
        refused = {}
        try:
            from torch_geometric import nn as pyg

            theirs = {
                "GCN": lambda: pyg.GCNConv(64, 64, cached=True),
                "GraphSAGE": lambda: pyg.SAGEConv(64, 64),
                "GAT": lambda: pyg.GATConv(64, 16, heads=4),
            }
            ways["pyg"] = trained(theirs[name](), x, edge_index)
        except ImportError as error:
            refused["pyg"] = not_run(error)
        cases[f"{name}, {n_edges} edges"] = ways, refused
    return cases


PARTS: dict[str, tuple[Callable[..., dict[str, Made]], Sequence[Any]]] = {
    "state-spaces": (state_spaces, [(2, 1000), (16, 1000)]),
    "last-step": (last_step, [(128, 784)]),
    "edges": (edges, EDGES),
}


# ---------------------------------------------------------------------------- whole processes


def processes(words: Sequence[str], folder: str) -> float:
    """Processor seconds of `physml` with these words, its children and theirs: a fork server, say."""
    own = {"PHYSML_RESULTS": folder, "PHYSML_RUNS": f"{folder}/work"}
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **own}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench.waits", "--count", *words],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RunFailed(
            f"physml {' '.join(words)}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
        )
    return float(done.stdout.splitlines()[-1])


def count(words: Sequence[str]) -> int:
    """Run `physml` and wait for all that it leaves behind; print the processor seconds."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    code = subprocess.run([sys.executable, "-m", "physml", *words], check=False).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)
    return code


def runs(options: argparse.Namespace) -> dict[str, float]:
    """Processor seconds: of a lone run with cached data, of one of many tiny runs, of the site."""
    lone = ["run", "experiment=lem/fitzhugh_nagumo-lem", "trainer.epochs=1", "--adhoc"]
    many = ["run", "-m", "model=lem", "task=adding", "profile=smoke"]
    many += ["seed=" + ",".join(map(str, range(options.runs)))]
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="physml-waits-") as folder:
        processes(lone, f"{folder}/data")  # which are cached then
        seconds["a lone run, 1 epoch"] = processes(lone, f"{folder}/lone")
        seconds["a tracked one, offline"] = processes([*lone, "tracker.mode=offline"], f"{folder}/tracked")
        for jobs in ("1", "auto"):
            whole = processes([*many, "--jobs", jobs], f"{folder}/{jobs}")
            seconds[f"one of {options.runs} tiny runs, --jobs {jobs}"] = whole / options.runs
        if options.site:
            seconds["the site"] = processes(["site", "--out", f"{folder}/site"], f"{folder}/none")
    return {name: round(value, 3) for name, value in seconds.items()}


# ---------------------------------------------------------------------------- the command


def measure(options: argparse.Namespace) -> dict[str, Any]:
    result = store.head("cpu")
    result |= {"moment": store.moment("cpu", 1), "cases": {}}
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    for part in options.part or [*PARTS, "runs"]:
        if part == "runs":
            result["processes"] = runs(options)
            continue
        make, sizes = PARTS[part]
        for size in sizes:
            for case, (ways, refused) in make(size).items():
                result["cases"][case] = refused | interleave(ways, options.rounds, options.budget)
    result["moment"]["load_after"] = store.load()
    return result


def text(result: dict[str, Any]) -> str:
    heads = ["processor time in ms"]
    for ways in result["cases"].values():
        heads += [way for way in ways if way not in heads]
    rows = [
        [case, *(report.number(ways.get(way, {}).get("ms")) for way in heads[1:])]
        for case, ways in result["cases"].items()
    ]
    reasons = {
        (way, facts["not_run"])
        for ways in result["cases"].values()
        for way, facts in ways.items()
        if "ms" not in facts
    }
    machine = store.machine_name(result["machine"])
    lines = [f"# Where users wait, on {machine}", "", report.moment(result["moment"]), ""]
    lines += [*report.table(heads, rows), ""] if rows else []
    lines += [f"{way}: {reason}" for way, reason in sorted(reasons)]
    seconds = [[name, report.number(value)] for name, value in result.get("processes", {}).items()]
    return "\n".join(lines + (report.table(["processor time in s", ""], seconds) if seconds else []))


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--count"]:
        return count(words[1:])
    parser = command.parser("waits", __doc__)
    parser.add_argument("--part", action="append", choices=[*PARTS, "runs"], help="again for another")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each way (%(default)s)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each case (%(default)s)")
    parser.add_argument("--runs", type=int, default=200, help="tiny ones (%(default)s)")
    parser.add_argument("--site", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--no-write", action="store_true", help="print only")
    return command.run("waits", parser.parse_args(words), measure, text)


if __name__ == "__main__":
    sys.exit(main())
