"""The records of the repository can be read, and are packed; the documents show what is in them."""

import csv
import io
import re
import runpy
from pathlib import Path

import pytest

from physml.base import files
from physml.base.paths import OWN_RESULTS, ROOT
from physml.cli import main
from physml.queue.requested import RequestedRuns, RunOptions
from physml.records import export, record
from physml.records.schema import SCHEMA
from physml.report.table.spec import find_table, load_table

TIDY = "Run: physml records pack"


def test_runs_and_curves_are_packed_and_every_setting_is_one_of_a_run() -> None:
    """Reads every record, too."""
    folders: dict[Path, set[str]] = {}
    for path in export.run_paths(OWN_RESULTS):
        run = record._found(path)[0]
        folders.setdefault(path.parent, set()).add(f"{run['identity']}-{run['setting']}{record.SETTING}")
        assert record.read(path)["schema"] == run["schema"] == SCHEMA
    assert len(folders) > 1000
    assert {path for path, named in folders.items() if record.pack_of(path).settings.keys() != named} == set()
    own = ("*.curve.csv.gz", record.RUNS, f"*{record.SETTING}")
    loose = [path for pattern in own for path in (OWN_RESULTS / "runs").rglob(pattern)]
    assert [path for path in loose if "adhoc" not in path.parts] == [], TIDY


def test_the_pandas_of_the_how_to_gives_the_numbers_of_a_table(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("pandas")
    text = (ROOT / "docs" / "read-a-record.md").read_text(encoding="utf-8")
    blocks = runpy.run_path(str(ROOT / "scripts" / "readme_commands.py"))["blocks"](text)
    (block,) = [b for b in blocks if b.language == "python" and "pandas" in b.lines[0]]
    files.write_text(tmp_path / "results" / export.NAME, export.runs_csv(OWN_RESULTS))
    monkeypatch.chdir(tmp_path)
    exec("\n".join(block.lines), {})
    printed = dict(re.findall(r"^(lem/\S+ \w+) +(\S+ +\S+ +\d+)$", capsys.readouterr().out, re.MULTILINE))
    table = (OWN_RESULTS / "tables" / "lem-4.md").read_text(encoding="utf-8").partition("all 1024")[0]
    spec = load_table(find_table("lem-4"))
    identities = RequestedRuns(spec.runs, RunOptions(), "lem-4").identities
    for row in spec.rows:
        line = next(line for line in table.splitlines() if line.startswith(f"| {row.label} |"))
        ours = line.split("|")[3].strip().strip("*")
        experiment = spec.cell(row, spec.columns[0]).experiment
        mean, sd, n = printed[f"{experiment} {identities[experiment]}"].split()
        assert (f"{float(mean):.3f} ± {float(sd):.3f}", n) == (ours, "10"), row.label


def write(root: Path, folder: str, seed: int, mse: float) -> Path:
    path = root / "runs" / folder / f"0123abcd-split0-seed{seed}.json"
    run = {"schema": SCHEMA, "experiment": folder, "identity": "0123abcd", "split": 0, "seed": seed}
    run |= {"status": "finished", "metrics": {"best": {"test": {"mse": mse}}, "last": None}}
    record.write(path, run | {"config": {"seed": seed, "split": 0}, "code": {"commit": "c", "dirty": False}})
    return path


def test_export_has_a_row_per_run_of_tables_that_of_the_first_root(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    for folder, seed in (("t/b", 0), ("t/a", 10), ("t/a", 2), ("adhoc/t/a", 5)):
        write(tmp_path, folder, seed, 0.1 + seed)
    assert main.main(["records", "export"]) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [(row["experiment"], row["seed"]) for row in rows] == [("t/a", "2"), ("t/a", "10"), ("t/b", "0")]
    assert [float(row["best/test/mse"]) for row in rows] == [2.1, 10.1, 0.1]
    assert rows[0]["commit"] == "c" and rows[0]["dirty"] == "False" and rows[0]["train_s"] == ""
    ours, shipped = tmp_path / "ours", tmp_path / "shipped"
    for root, seed, mse in ((ours, 0, 0.1), (shipped, 0, 0.2), (shipped, 1, 0.3)):
        write(root, "t/a", seed, mse)
    rows = csv.DictReader(io.StringIO(export.runs_csv(ours, shipped)))
    assert [(row["seed"], row["best/test/mse"]) for row in rows] == [("0", "0.1"), ("1", "0.3")]


def test_a_record_that_cannot_be_read_stops_the_export_and_is_named(tmp_path: Path, monkeypatch, prints):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    path = write(tmp_path, "t/a", 0, 0.1)
    path.write_text("{")
    error = prints(2, "records", "export").err
    assert str(path) in error and "is damaged" in error and error.count("\n") == 1
    assert not (tmp_path / "runs.csv").exists()
    assert "there is no action compress" in prints(2, "records", "compress").err
