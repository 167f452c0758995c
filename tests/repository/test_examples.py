"""Documentation that runs: examples of docstrings, and the cells of docs/tour.ipynb, with outputs."""

import doctest
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import physml
from physml.base.paths import ROOT

SKIPPED = ("__main__", "triton")  # run as programs, or need a GPU's compiler


def test_every_example_of_a_docstring_holds() -> None:
    attempted, failed = 0, []
    for module in pkgutil.walk_packages(physml.__path__, "physml."):
        if not module.name.rpartition(".")[2].startswith(SKIPPED) and ".triton." not in module.name:
            counts = doctest.testmod(importlib.import_module(module.name))
            attempted += counts.attempted
            failed += [module.name] * counts.failed
    assert not failed and attempted > 60


TOUR = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))


def test_its_cells_run_and_it_carries_outputs_without_errors_or_places_of_a_machine(tmp_path: Path) -> None:
    code = "\n\n".join("".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == "code")
    environment = os.environ | {"MPLBACKEND": "agg", "PHYSML_RESULTS": str(tmp_path), "OMP_NUM_THREADS": "1"}
    options = {"cwd": ROOT, "env": environment, "timeout": 300}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    assert [*(tmp_path / "runs").rglob("*-seed*.json")]
    cells = [cell for cell in TOUR["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] and cell["execution_count"] for cell in cells)
    kinds = [output["output_type"] for cell in cells for output in cell["outputs"]]
    assert "error" not in kinds and "display_data" in kinds
    text = json.dumps(TOUR)
    assert "physml.results" in text and not any(place in text for place in ("/tmp", "/home", "/root"))
