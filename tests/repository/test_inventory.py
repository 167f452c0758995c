"""docs/inventory.md names all models, tasks, figures and quoted rows, and no config that is not there."""

import csv
import re
from pathlib import Path

import pytest
from each import each

from physml.base.paths import CONF, ROOT
from physml.config.compose import names
from physml.config.load import read_yaml

PAGE = (ROOT / "docs" / "inventory.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`\s]+)`", PAGE)
# Templates, other protocols of a task that is named, and forms of a model whose family is named.
UNNAMED = {"own", "pyg", "hf", "hf_series", "graphcon_citation", "graphcon_citation_gcn", "graphcon_pyg_gcn"}
TABLES = [path for path in sorted((CONF / "table").glob("*.yaml")) if read_yaml(path).get("kind") is None]


@pytest.mark.parametrize("group", ["model", "task"])
def test_every_model_and_task_is_in_the_inventory(group: str) -> None:
    shared = re.compile("(_public|_clean)$")
    assert {shared.sub("", name) for name in names(group)} <= {*CODE} | UNNAMED


def test_every_name_in_the_inventory_is_that_of_a_config_and_every_figure_is_there() -> None:
    known = {name for group in ("model", "task", "table", "figure") for name in configs(group)}
    not_configs = {"PHYSML_DATA", "results", "physml/lab/simulate", "results/figures"}
    assert {name for name in CODE if not name.startswith("test_")} <= known | not_configs
    # Those of G² are named together.
    left = configs("figure") - {*CODE} - {f"g2-fig-{n}" for n in range(2, 10)}
    assert [name for name in left if not name.startswith("own-")] == []


DRAWN = re.findall(r"^\| (.*) \| (drawn|drawn, short) \|$", PAGE, re.MULTILINE)
FIGURES = [(name, state) for names, state in DRAWN for name in re.findall(r"`([^`]+)`", names)]


@each("name, state", FIGURES)
def test_a_figure_is_short_where_few_of_its_curves_or_none_are_of_whole_runs(name: str, state: str) -> None:
    path = ROOT / "results" / "figures" / f"{name}.csv"
    if not path.is_file():
        assert state == "drawn" and path.with_suffix(".png").is_file()  # a picture without points
        return
    with path.open(newline="", encoding="utf-8") as file:
        curves = {(row["panel"], row["series"]): row["state"] for row in csv.DictReader(file)}
    states = [entry for entry in curves.values() if entry != "NA"]  # of printed points and marks
    whole = sum(entry.startswith(("complete", "simulated", "measured")) for entry in states)
    short = 4 * whole < len(states)
    assert state == ("drawn, short" if short else "drawn") and (not short or "not comparable" in states)


def configs(group: str) -> set[str]:
    return {path.stem for path in (CONF / group).glob("*.yaml")}


@each("path", TABLES)
def test_every_row_that_is_only_quoted_has_its_reason(path: Path) -> None:
    for row in read_yaml(path)["rows"]:
        cells = [cell or {} for cell in (row.get("cells") or {}).values()]
        if "experiment" not in row and not any("experiment" in cell for cell in cells):
            reason = rf"^\| {re.escape(row['label'])} \| `{path.stem}` \| \w"
            assert re.search(reason, PAGE, re.MULTILINE), row["label"]
