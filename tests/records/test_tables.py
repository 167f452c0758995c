"""results/tables and results/figures have what the records give: `physml table <id> --no-run --write` and
`physml figure <id> --no-run` write them anew.

What is missing is `not run` there, whatever data sets and caches the machine has.
"""

import json
import re
from pathlib import Path

import pytest
from made_records import on_terminal

from physml.base.paths import OWN_RESULTS, ROOT, own_folders
from physml.listing.overview import HEADS, line, overview, text
from physml.queue.requested import RequestedRuns, RunOptions
from physml.records.costs import hours_of_settings
from physml.report.figure.collect import collect
from physml.report.figure.files import write_figure
from physml.report.figure.spec import WITHOUT_RUNS, figure_ids, find_figure, load_figure
from physml.report.table.collect import Table, recorded
from physml.report.table.spec import find_table, load_table, table_ids
from physml.report.text.document import markdown, md_table
from physml.report.view.finding import written
from physml.report.view.text import document

TABLES = OWN_RESULTS / "tables"
OVERVIEW = OWN_RESULTS / "README.md"


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
    table = table_of(ident)
    rendered = markdown(document(table))
    kept = (TABLES / f"{ident}.md").read_text(encoding="utf-8")
    assert kept == rendered, f"physml table {ident} --no-run --write writes it anew"
    assert "blocked" not in rendered
    sources = [c.published.source for c in table.cells if c.published and c.published.source]
    assert all(f"read elsewhere, {source}: " in rendered for source in sources)
    if table.spec.finding:
        assert written(table), f"other outcomes: read `finding` of conf/table/{ident}.yaml again"
    (_, _, row) = md_table(HEADS, [line(table)])
    assert row in OVERVIEW.read_text(encoding="utf-8"), "physml table --all --write writes it anew"


def test_the_overview_has_every_table_says_what_outcomes_mean_and_there_are_no_other_files() -> None:
    page = OVERVIEW.read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(.*?)\]\(", page, re.MULTILINE) == table_ids(kind="runs")
    assert page.startswith(text([]).rstrip("\n"))
    assert {path.stem for path in TABLES.iterdir()} == set(table_ids())


@pytest.mark.slow
@pytest.mark.usefixtures("no_data")
def test_the_overview_is_the_one_that_the_records_give() -> None:
    assert OVERVIEW.read_text(encoding="utf-8") == overview(), "physml table --all --write writes it anew"


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("ident, lines", [("lem-4", 40), ("g2-2", 60), ("own-sequence", 60)])
def test_a_table_fits_a_screen(ident: str, lines: int) -> None:
    shown = screen(ident)
    assert len(shown) <= lines and max(map(len, shown)) <= 80


@pytest.mark.usefixtures("no_data")
def test_the_table_in_the_readme_and_the_tour_is_the_real_one() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(["```text", *screen("lem-4"), "```"]) in readme, "physml table lem-4 --no-run"
    tour = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))
    printed = [
        "".join(output.get("text", [])) for cell in tour["cells"] for output in cell.get("outputs", [])
    ]
    assert "\n".join(screen("lem-4")) in map(str.rstrip, printed), "python scripts/run_tour.py"


def screen(ident: str) -> list[str]:
    """The lines that a terminal of 80 columns shows."""
    return on_terminal(document(table_of(ident))).rstrip().split("\n")


def table_of(ident: str) -> Table:
    spec = load_table(find_table(ident))
    requested = RequestedRuns(spec.runs, RunOptions(), ident)
    return recorded(spec, requested.identities, requested.wanted_records(), hours=hours_of_settings())


FIGURES = OWN_RESULTS / "figures"
SPECS = {ident: load_figure(find_figure(ident)) for ident in figure_ids()}


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("ident", [ident for ident, spec in SPECS.items() if spec.kind not in WITHOUT_RUNS])
def test_a_figure_in_results_is_the_one_that_the_records_give(ident: str, tmp_path: Path) -> None:
    requested = RequestedRuns(SPECS[ident].runs, RunOptions(), ident)
    figure = collect(SPECS[ident], requested.identities, requested.wanted_records())
    assert figure.drawn == (FIGURES / f"{ident}.png").is_file()
    if figure.drawn:
        write_figure(figure, tmp_path, ("csv", "svg"))
        for name, read in ((f"{ident}.csv", str), (f"{ident}.svg", words_of)):
            kept, drawn = ((folder / name).read_text(encoding="utf-8") for folder in (FIGURES, tmp_path))
            assert read(kept) == read(drawn), f"physml figure {ident} --no-run draws it anew"


def words_of(svg: str) -> list[str]:
    """The texts of a picture but for the numbers of its axes."""
    texts = re.findall(r"<!-- (.*?) -->", svg)
    return [text for text in texts if re.search(r"[^\W\d_]{2}", text) and r"\mathdefault" not in text]
