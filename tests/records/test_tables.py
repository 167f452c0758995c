"""results/tables has what the records give, to the byte: `physml table <id> --no-run` writes it anew.

Whether a run that is missing could be made depends on the data sets of a machine: a table is as one writes it
that has all of them, or none.
"""

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


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("ident", table_ids(kind="runs"))
def test_a_table_in_results_is_the_one_that_the_records_give(ident: str) -> None:
    spec, options = load_table(find_table(ident)), main.parsed(["table", ident, "--no-run"])
    requested = RequestedRuns(spec.runs, run_options(options), ident)
    made = (requested.identities, requested.wanted_records(), requested.running())
    either = [
        FORMS["md"](document(collect(spec, *made, blocked=blocked)))
        for blocked in (requested.untrainable, requested.broken)
    ]
    assert (TABLES / f"{ident}.md").read_text(encoding="utf-8") in either, (
        f"physml table {ident} --no-run writes it anew, with PHYSML_DATA unset"
    )


def test_every_table_is_in_results() -> None:
    assert {path.stem for path in TABLES.glob("*.md")} == set(table_ids())
