"""The library as a type checker sees it: choices are named, and calls of layers have types."""

import subprocess
import sys
from pathlib import Path

import pytest

from physml.base.paths import ROOT

USES = """
import torch
from physml import LEM, CoRNN, GraphCON, UnICORNN

layer = LEM(2, 16, init="fan_in", backend="torch")
y, state = layer(torch.zeros(4, 10, 2))
reveal_type(y)
reveal_type(UnICORNN(2, 16)(torch.zeros(4, 10, 2))[0])
LEM(2, 16, init="fan-in")
CoRNN(2, 16, backend="c")
"""


@pytest.mark.slow
def test_choices_and_outputs_are_typed(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "uses.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("uses.py")]
    tensor = 'note: Revealed type is "torch._tensor.Tensor"'
    assert [line.partition(": ")[0] for line in lines] == [f"uses.py:{n}" for n in (7, 8, 9, 10)], done.stdout
    assert lines[0].endswith(tensor) and lines[1].endswith(tensor)
    assert '"init" to "LEM" has incompatible type' in lines[2]
    assert '"backend" to "CoRNN" has incompatible type' in lines[3]
