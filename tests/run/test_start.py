"""What a lone run imports: nothing that it does not use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from variants import variants

from physml.base.paths import ROOT

# Each takes from 0.3 to 3 processor seconds.
HEAVY = (
    *("torch._dynamo", "torch._inductor", "torch.onnx", "sympy", "triton", "torch_geometric", "torchvision"),
    *("torchaudio", "optuna", "pandas", "matplotlib", "sktime", "sklearn", "wandb", "mlflow", "ray", "rich"),
)
RUN = f"""
import sys
from physml.cli.main import main
code = main(["run", *sys.argv[1:]])
print("imported:", [name for name in {HEAVY} if name in sys.modules])
sys.exit(code)
"""
RUNS = {
    "lem": ["model=lem", "task=adding", "profile=smoke"],
    "embedding": ["experiment=lem/ptb_char-lem", "profile=smoke"],  # normal numbers at the start
    "schedule": ["experiment=cornn/har2-cornn", "profile=smoke", "runtime.deterministic=true"],
    "graph": ["experiment=g2/texas-g2_gcn", "profile=smoke"],
}


@pytest.mark.parametrize("name", variants(["embedding", "graph"], RUNS))
def test_a_lone_run_imports_no_compiler_and_no_package_that_it_does_not_use(
    name: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *RUNS[name]],
        env={**os.environ, "PHYSML_RESULTS": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "imported: []" in done.stdout
