"""Tables and records in a fresh process in which torch and hydra cannot be imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from physml.base.paths import ROOT

BLOCK = """
import sys

class Refuse:
    # not None in sys.modules: scipy looks there for torch without importing it
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "hydra"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Refuse())
"""

IMPORTS = """
import importlib, pkgutil
import physml.records, physml.report
for package in (physml.records, physml.report):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        print(importlib.import_module(module.name).__name__)
"""


def printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_modules_of_records_and_reporting_import() -> None:
    names = printed(IMPORTS).split()
    assert {"physml.records.record", "physml.report.table.collect", "physml.report.figure.collect"} <= set(
        names
    )


def test_a_table_of_the_records_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))  # where it is written
    command = "from physml.cli.main import main\nsys.exit(main(['table', 'lem-4', '--no-run']))"
    assert "LEM" in printed(command)


def test_the_results_are_data() -> None:
    code = "from physml import results as r; print(len(r.runs('lem/fitzhugh_nagumo-lem')), r.table('lem-4'))"
    assert printed(code).startswith("10 lem-4: ")


def test_two_rows_and_two_experiments_are_compared() -> None:
    command = "from physml.cli.main import main\nsys.exit(main(['compare', {}]))"
    of_table = "'GraphCON-GCN', 'MLP', '--table', 'graphcon-2', '--column', 'texas'"
    assert "Texas: GraphCON-GCN" in printed(command.format(of_table))
    assert "test/accuracy: " in printed(command.format("'g2/texas-mlp', 'g2/texas-gcn'"))


def test_a_figure_of_ranks_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    command = "from physml.cli.main import main\nsys.exit(main(['figure', 'own-g2-2-ranks', '--no-run']))"
    assert "mean rank" in printed(command)
