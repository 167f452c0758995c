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
    "scipy",
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


def imported(words: list[str], folder: Path) -> str:
    """What a run says of its imports."""
    environment = os.environ | {"PHYSML_RESULTS": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", variants(["embedding", "graph"], RUNS))
def test_a_lone_run_imports_no_compiler_and_no_package_that_it_does_not_use(name: str, tmp_path) -> None:
    needed = ["scipy"] if name == "graph" else []  # small data of graphs are made with it in each smoke run
    assert f"imported: {needed}" in imported(RUNS[name], tmp_path)


def test_a_run_whose_data_are_cached_does_not_import_the_solver_of_its_data(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    words = ["experiment=lem/fitzhugh_nagumo-lem", "profile=smoke"]
    assert "imported: ['scipy']" in imported(words, tmp_path / "first")
    assert "imported: []" in imported(words, tmp_path / "second")
