"""Tables and records in a fresh process in which torch and hydra cannot be imported."""

import json
import subprocess
import sys
from typing import Any

from physml.paths import CONF, ROOT
from physml.reporting.table_spec import load_table

BLOCK = """
import sys
for name in ("torch", "hydra", "omegaconf"):
    sys.modules[name] = None  # an import of it raises ImportError
"""

IMPORTS = """
import importlib, pkgutil
import physml.records, physml.reporting
for package in (physml.records, physml.reporting):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        print(importlib.import_module(module.name).__name__)
"""

TABLE = """
import json
from pathlib import Path
from physml.records.record import read, write
from physml.reporting.table import collect
from physml.reporting.document import FORMS
from physml.reporting.table_spec import load_table
from physml.reporting.table_text import document
given = json.load(sys.stdin)
table = collect(load_table(given["table"]), given["identities"], given["records"])
print(json.dumps({form: render(document(table)) for form, render in FORMS.items()}))
"""


def printed(code: str, given: Any = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_modules_of_records_and_reporting_import() -> None:
    names = printed(IMPORTS).split()
    assert {"physml.records.record", "physml.reporting.table", "physml.reporting.figure"} <= set(names)


def test_a_table_renders_from_given_records() -> None:
    path = CONF / "table" / "lem-4.yaml"
    spec = load_table(path)
    experiment = next(
        cell.experiment
        for row in spec.rows
        for column in spec.columns
        if (cell := spec.cell(row, column)).experiment and column.metric == spec.columns[0].metric
    )
    protocol, metric = spec.columns[0].protocol, spec.columns[0].metric.removeprefix("test/")
    records = [
        {
            "schema": 1,
            "experiment": experiment,
            "protocol": protocol,
            "identity": "00000001",
            "split": 0,
            "seed": seed,
            "status": "finished",
            "reason": None,
            "metrics": {"best": {"test": {metric: 0.5}}},
            "selected": {"rule": "last epoch", "step": 10},
            "n_parameters": 10,
            "cost": {"train_s": 1.0, "ms_per_step": 1.0},
            "precision": "fp32",
            "backend": "native",
            "references": {},
            "data": {"version": 1},
            "code": {"commit": "c" * 40, "dirty": False},
            "machine": {"device": "cpu"},
            "provenance": {"kind": "paper"},
            "short": None,
            "ended": "2026-01-01T10:00:00Z",
        }
        for seed in spec.seeds
    ]
    given = {"table": str(path), "identities": {experiment: "00000001"}, "records": records}
    forms = json.loads(printed(TABLE, given))
    row = next(line for line in forms["md"].splitlines() if f"{len(spec.seeds)}/{len(spec.seeds)}" in line)
    assert row.startswith("|")
    assert all(forms.values())
