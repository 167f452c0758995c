"""Published numbers in conf/table against the collection of the papers' tables, where that is at hand."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from physml.paths import CONF, ROOT
from physml.tablespec import Row, TableSpec, load_table, table_ids

COLLECTION = ROOT.parent / "shared" / "reference" / "paper_tables.yaml"

# Column of ours -> column of the collection, where a table has several with published numbers.
COLUMNS = {"f09": "F=0.9", "f8": "F=8"}


@pytest.fixture(scope="module")
def collection() -> dict[str, Any]:
    if not COLLECTION.is_file():
        pytest.skip(f"the papers' tables are not at {COLLECTION}; the numbers in conf/ stand unchecked here")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {entry["id"]: entry for entry in yaml.load(COLLECTION.read_text(encoding="utf-8"), loader)}


def specs() -> list[TableSpec]:
    return [load_table(CONF / "table" / f"{ident}.yaml") for ident in table_ids()]


def of_the_paper(spec: TableSpec) -> list[Row]:
    """Rows with something printed; what is added for comparison has neither parameters nor a number."""
    return [r for r in spec.rows if r.params is not None or any(c.published for c in r.cells.values())]


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.id)
def test_every_published_number_is_as_printed(spec: TableSpec, collection: dict[str, Any]) -> None:
    entry = collection[spec.id]
    printed = {row["model"]: row for row in entry["rows"]}
    assert [row.label for row in of_the_paper(spec)] == list(printed)
    found = 0
    for row in of_the_paper(spec):
        values = printed[row.label]["values"]
        for column in spec.columns:
            ours = spec.cell(row, column).published
            if ours is None:
                continue
            found += 1
            theirs = values[COLUMNS.get(column.key, entry["columns"][0])]
            scale = column.scale if entry["unit"] != column.unit else 1.0
            assert ours.value == pytest.approx(theirs["value"] * scale, rel=1e-12)
            assert (None if ours.sd is None else ours.sd / scale) == theirs["std"]
        assert row.params == printed[row.label]["config"]["params"]
    assert found == entry["completeness"]["cells"]


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.id)
def test_units_of_the_experiments_are_as_printed(spec: TableSpec, collection: dict[str, Any]) -> None:
    printed = {row["model"]: row["config"] for row in collection[spec.id]["rows"]}
    for row in of_the_paper(spec):
        for column in spec.columns:
            experiment = spec.cell(row, column).experiment
            if experiment is None:
                continue
            model = yaml.safe_load((CONF / "experiment" / f"{experiment}.yaml").read_text())["model"]
            assert model["d_hidden"] == printed[row.label]["units"]
            assert model.get("n_layers") == printed[row.label].get("layers")


def test_the_papers_are_cited_not_files() -> None:
    for path in (CONF / "table").glob("*.yaml"):
        text = Path(path).read_text(encoding="utf-8")
        assert ".txt" not in text and "/work" not in text


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.id)
def test_digits_are_declared(spec: TableSpec) -> None:
    for row in spec.rows:
        for cell in row.cells.values():
            if cell.published is not None and cell.published.quoted is None:
                assert cell.published.digits is not None, f"{spec.id}, {row.label}"
