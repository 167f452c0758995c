"""results/tables has what the records give, to the byte: `physml table <id> --no-run` writes it anew.

Whether a run that is missing could be made depends on the data sets of a machine. Where a table was written
without them its files say `blocked`; such cells are taken as blocked here too, and no others are.
"""

import csv
from pathlib import Path

import pytest

from physml.base.paths import OWN_RESULTS, own_folders
from physml.cli import main
from physml.cli.options import run_options
from physml.queue.requested import RequestedRuns
from physml.report.table.collect import collect
from physml.report.table.spec import find_table, load_table, table_ids
from physml.report.table.text import document
from physml.report.text.document import FORMS

TABLES = OWN_RESULTS / "tables"


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of the repository, without data sets, caches and runs of this machine."""
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    for key in ("PHYSML_DATA", "PHYSML_RESULTS"):
        monkeypatch.delenv(key, raising=False)


def blocked_experiments(ident: str) -> set[str]:
    with (TABLES / f"{ident}.csv").open(newline="", encoding="utf-8") as file:
        return {row["experiment"] for row in csv.DictReader(file) if row["state"].startswith("blocked")}


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("ident", table_ids(kind="runs"))
def test_a_table_in_results_is_the_one_that_the_records_give(ident: str) -> None:
    spec, options = load_table(find_table(ident)), main.parsed(["table", ident, "--no-run"])
    requested = RequestedRuns(spec.runs, run_options(options), ident)
    blocked = {
        name: requested.blocked.get(name, "") for name in blocked_experiments(ident)
    } | requested.broken
    records = requested.wanted_records()
    table = document(collect(spec, requested.identities, records, requested.running(), blocked=blocked))
    for suffix, form in FORMS.items():
        path = TABLES / f"{ident}.{suffix}"
        assert path.read_text(encoding="utf-8") == form(table), (
            f"physml table {ident} --no-run writes it anew"
        )


def test_there_are_no_other_files_in_results() -> None:
    assert {path.name for path in TABLES.iterdir()} == {
        f"{i}.{suffix}" for i in table_ids() for suffix in FORMS
    }
