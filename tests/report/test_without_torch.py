"""Tables, figures, comparisons and results in a fresh process in which torch and hydra cannot be imported."""

import subprocess
import sys

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
READING = """
import physml.report.text.document, physml.report.view.text, physml.report.figure.collect
import physml.report.table.settings_text
print(*({"scipy", "matplotlib", "rich", "omegaconf", "tasks"} & set(sys.modules)))
"""
EVERYTHING = """
import importlib, pkgutil
import physml.records, physml.report
from physml import results
from physml.cli.main import main

for package in (physml.records, physml.report):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        print(importlib.import_module(module.name).__name__)
print(len(results.runs("lem/fitzhugh_nagumo-lem")), results.table("lem-4"))
for words in COMMANDS:
    assert main(words.split()) == 0
"""
COMMANDS = [
    "table lem-4 --no-run",
    "compare GraphCON-GCN MLP --table graphcon-2 --column texas",
    "compare g2/texas-mlp g2/texas-gcn",
    "figure own-g2-2-ranks --no-run",
]


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_but_training_works_without_torch_and_tables_import_little(tmp_path, monkeypatch) -> None:
    assert printed(READING) == "\n"
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))  # where tables and figures are written
    said = printed(EVERYTHING.replace("COMMANDS", repr(COMMANDS)))
    words = ("physml.records.record\n", "physml.report.figure.collect\n", "\n10 lem-4: ")
    words += ("Texas: GraphCON-GCN", "test/accuracy: ", "mean rank")
    assert [missing for missing in words if missing not in said] == []
