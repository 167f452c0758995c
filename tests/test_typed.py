"""The library as a type checker sees it: choices are named, and calls of layers have types."""

import subprocess
import sys
from pathlib import Path

import pytest

from physml.base.paths import ROOT

# What is written, and what a type checker finds: the end of its type, or of its message.
TENSOR, PAIR = "torch._tensor.Tensor", "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
USES = {
    "LEM(2, 16, init='fan_in', backend='torch')(u)[0]": TENSOR,
    "LEM(2, 16)(u)[1]": PAIR,
    "CoRNN(2, 16)(u)[1]": PAIR,
    "UnICORNN(2, 16)(u)[0]": TENSOR,
    "LSTM(2, 16)(u)[0]": TENSOR,
    "GRU(2, 16)(u)[0]": TENSOR,
    "GraphCON(GraphConvolution(8, 8), 2)(x, edges)": TENSOR,
    "GradientGating(GraphConvolution(8, 8), n_layers=2)(x, edges)": TENSOR,
    "SequenceModel(lambda d: LEM(d, 16), 2, 1, 'last', False)(u)[0]": TENSOR,
    "LEM(2, 16, init='fan-in')": 'to "LEM" has incompatible type',
    "CoRNN(2, 16, backend='c')": 'to "CoRNN" has incompatible type',
    "LEM(2, 16)([1.0])": 'has incompatible type "list[float]"; expected "Tensor"',
}
HEAD = """import torch
from physml import GRU, LEM, LSTM, CoRNN, GradientGating, GraphCON, GraphConvolution, SequenceModel, UnICORNN
u, x, edges = torch.zeros(4, 10, 2), torch.zeros(3, 8), torch.tensor([[0, 1], [1, 0]])
"""


@pytest.mark.slow
def test_choices_and_outputs_are_typed(tmp_path: Path) -> None:
    lines = [f"reveal_type({use})" if answer in (TENSOR, PAIR) else use for use, answer in USES.items()]
    (tmp_path / "uses.py").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    options = ["--config-file", str(ROOT / "pyproject.toml")]
    options += ["--cache-dir", str(ROOT / ".mypy_cache")]  # that of make lint
    command = [sys.executable, "-m", "mypy", *options, "uses.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True
    )
    reports = [line for line in done.stdout.splitlines() if line.startswith("uses.py")]
    first = HEAD.count("\n") + 1
    assert [line.partition(": ")[0] for line in reports] == [
        f"uses.py:{n}" for n in range(first, first + len(USES))
    ], done.stdout
    for line, (use, answer) in zip(reports, USES.items(), strict=True):
        message = f'Revealed type is "{answer}"' if answer in (TENSOR, PAIR) else answer
        assert message in line, use
