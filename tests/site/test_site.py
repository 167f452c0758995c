"""The site of a few tables: its links, its numbers, the same bytes twice, nothing foreign in it."""

import csv
import dataclasses
import html
import io
import json
import re
from pathlib import Path

import pytest
from each import each
from refusals import refuses
from site_links import check_links

from physml.base.errors import ConfigError, InputError
from physml.cli import main
from physml.listing import inventory
from physml.records import record
from physml.report import outcome
from physml.report.table import spec as table_spec
from physml.report.table.spec import find_table, kind_of, load_table
from physml.report.view.finding import finding_text
from physml.site import build, catalogue, content
from physml.site.content import results_of, slug
from physml.site.data import lines
from physml.site.render import Renderer
from physml.site.table_pages import Pictures, cell_context

TABLES = ["cornn-6", "lem-4", "lem-8", "own-rates", "unicornn-6"]


@pytest.fixture(scope="module")
def few():
    with pytest.MonkeyPatch.context() as patch:
        figures = [figure for figure in inventory.figures() if figure.name in ("lem-fig-4", "lem-fig-2")]
        patch.setattr(
            content, "table_ids", lambda kind: [name for name in TABLES if kind_of(find_table(name)) == kind]
        )
        patch.setattr(inventory, "figures", lambda: figures)
        yield content.gather()


@pytest.fixture(scope="module")
def site(few, tmp_path_factory):
    """As long as there is one, others are built of the same few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "gather", lambda: few)
        out = tmp_path_factory.mktemp("site") / "site"
        build.build(out, "https://example.org/x/")
        yield out


@pytest.fixture(scope="module")
def front(site):
    return (site / "index.html").read_text()


def test_every_kind_of_page_is_there_and_links_lead_somewhere(site):
    for page in (
        *("index", "all/index", "cells/index", "paper/lem/index", "table/lem-4/index", "table/lem-8/index"),
        *("cell/lem-4/lstm/official/index", "model/lem/index", "task/smnist/index", "docs/verdicts/index"),
        *("figure/lem-fig-4/index", "search/fitzhugh_nagumo-cornn/index", "data/index", "figure/index"),
    ):
        assert (site / f"{page}.html").is_file(), page
    assert [*site.glob("run/*/index.html")]
    heads = re.findall("<h2[^>]*>([^<]*)", (site / "docs" / "index.html").read_text())
    assert heads[0] == "Start" and {"Read results", "Extend", "Operate"} <= set(heads)
    assert "<loc>https://example.org/x/table/lem-4/index.html</loc>" in (site / "sitemap.xml").read_text()
    metadata = json.loads((site / "task" / "smnist" / "mnist.croissant.json").read_text())
    assert metadata["license"] and all(len(file["sha256"]) == 64 for file in metadata["distribution"])
    # Papers link to tables that are not among the few.
    assert not [link for link in check_links(site) if not link.startswith(("paper/", "docs/"))]


def test_the_command_makes_the_same_site_to_the_byte(site, tmp_path, capsys):
    assert main.main(["site", "--out", str(tmp_path / "again"), "--url", "https://example.org/x/"]) == 0
    assert "index.html" in capsys.readouterr().out
    first, again = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (site, tmp_path / "again")
    )
    assert first == again


def test_numbers_of_a_page_are_those_of_the_csv(site, few):
    page = (site / "table" / "lem-4" / "index.html").read_text()
    rows = csv.DictReader(io.StringIO((site / "table" / "lem-4" / "lem-4.csv").read_text()))
    official = {row["row"]: row for row in rows if row["column"] == "official"}
    table_rows = re.findall(r'<tr data-kind="\w+">(.*?)</tr>', page.partition('id="clean"')[0], re.DOTALL)
    assert len(table_rows) == len(few.tables["lem-4"].spec.rows)
    for row in table_rows:
        label = re.search(r"<th.*?<a.*?>(.*?)</a>", row, re.DOTALL)[1]
        ours = re.search(r'data-label="ours" data-value="(.*?)">(.*?)<', row)
        mean = float(official[label]["mean"])  # of twelve digits
        assert float(ours[1]) == pytest.approx(mean, rel=1e-11)
        assert ours[2].startswith(f"{mean:.3f}")
        assert re.search(r'data-label="outcome">.*?</span>(.*?)</span>', row)[1] in official[label]["state"]
    head = page.partition("<details")[0]
    assert "LEM comes near its printed error" in head and "core-hours" in head
    link = '<a href="../../cell/lem-4/lem/official/index.html" class="even">'
    assert f"{link}≈ cannot be told apart</a>" in head
    cells = json.loads((site / "table" / "lem-4" / "lem-4.json").read_text())["cells"]
    assert cells == lines(few.tables["lem-4"].document)


def test_the_first_screen_has_three_findings_with_their_numbers(front, few):
    items = r'<li><h2 class="small"><a href="table/(.*?)/index.html">.*?<p>(.*?)</p>'
    findings = re.findall(items, front, re.DOTALL)
    assert [ident for ident, _ in findings] == ["lem-4", "unicornn-6", "cornn-6"]  # most verdicts first
    for ident, text in findings:
        assert visible(text) == finding_text(few.tables[ident].table)
        assert re.search(r"<strong>\d[\d.]* ± \d[\d.]*</strong>", text)
        label = f'aria-label="{ident}: ours against printed, (\\d+) cells"'
        ((number, strip),) = re.findall(f"<svg[^>]*{label}>(.*?)</svg>", front)
        assert strip.count("<circle") == int(number) > 1
    assert f"{len(ran(few))} of " in re.search("<h1.*?</h1>", front)[0]


def ran(few):
    """Cells with a printed number and ours, with their tables."""
    return [
        (results.spec.id, cell)
        for results, cell in few.cells()
        if cell.result.published is not None and cell.result.summary is not None
    ]


def test_claims_lead_to_their_tables_and_signs_stand_apart(site, front, few):
    claims = front.partition("The claims of the papers")[2]
    claimed = {ident for ident, results in few.tables.items() if results.table.claim}
    assert claimed == set(re.findall(r'<a href="table/([^/]*)/index.html">\1</a></th>', claims)) != set()
    pages = {page: page.read_text() for page in (site / "table").rglob("*.html")}
    assert not [page for page, text in pages.items() if re.search(r"<p>[^<]*\S  \S", text)]
    assert any(" cannot be told apart · " in text for text in pages.values())
    assert "≈ cannot be told apart" in visible((site / "cell/lem-4/lem/official/index.html").read_text())


def test_a_point_leads_to_its_cell(front, few):
    point = r'<a href="(cell/[^"]*)" tabindex="-1"><title>(.*?)</title><circle class="dot (\w+)"'
    points = re.findall(point, front)
    alike = [ident for ident, cell in ran(few) if (ident, cell.column.key) == ("cornn-6", "f09")]  # 2.0 twice
    assert len(points) == len(ran(few)) - len(alike) > 8 and len(alike) == 2
    assert {kind for *_, kind in points} <= {verdict.kind for verdict in outcome.ALL}
    title = {page: title for page, title, _ in points}["cell/lem-4/lstm/official/index.html"]
    assert title.startswith("lem-4, LSTM, ") and title.endswith("better here")
    places = dict(re.findall(r'<a href="cell/lem-4/(\w+)/official/index.html".*?cy="([\d.]+)%"', front))
    assert float(places["lstm"]) < float(places["cornn"])  # a lower error is higher up


def visible(text):
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def test_the_search_knows_titles_tasks_models_papers_experiments_and_docs(site):
    text = (site / "assets" / "cells.js").read_text()
    cells, pages = (json.loads(part) for part in re.findall(r"= (\[\n.*?\n\]);", text, re.DOTALL))
    ours = [cell[5] != "–" for cell in cells]
    assert ours == sorted(ours, reverse=True)  # those with runs first
    words = {cell[0]: cell[9] for cell in cells}["cell/lem-4/lstm/official/index.html"]
    assert words == "lem/fitzhugh_nagumo-lstm lstm fitzhugh_nagumo"
    entries = {page: f"{title} {kind} {words}" for page, title, kind, words in pages}
    assert "FitzHugh-Nagumo" in entries["table/lem-4/index.html"]
    assert "Long Expressive Memory" in entries["paper/lem/index.html"]
    assert entries["model/lem/index.html"].startswith("lem model ")
    assert entries["task/ptb_char/index.html"].startswith("ptb_char task Characters")
    assert "docs" in entries["docs/verdicts/index.html"]
    assert all((site / page).is_file() for page in entries)


def test_a_paper_begins_with_what_came_out_and_a_table_of_our_own_has_no_published_numbers(site, few):
    page = (site / "paper" / "lem" / "index.html").read_text()
    came, tables, paths = (page.index(part) for part in ("What came out", "All tables", "conf/table"))
    assert came < tables < paths
    assert finding_text(few.tables["lem-4"].table) in visible(page)
    pages = [site / "table" / "own-rates" / "index.html", *(site / "cell" / "own-rates").rglob("*.html")]
    assert len(pages) > 1
    published = r"<th[^>]*>(<button[^>]*>)?(published|difference)<|<dt>published<"
    assert not any(re.search(published, page.read_text()) for page in pages)
    table = pages[0].read_text().partition("<section>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr[ >].*?</tr>", table, re.DOTALL)
    assert len({len(re.findall(r"<t[hd][ >]", row)) for row in rows}) == 1  # also the row of the axis


def test_a_page_is_small_and_asks_for_nothing_outside(site):
    """And shows no marks of text or lists of Python."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert len(text) < 150_000, page
        assert not re.search(r'(?:src|<link[^>]*href)="(?:https?:)?//', text), page
        text = re.sub(r"<pre\b.*?</pre>", "", text, flags=re.DOTALL)
        assert not re.search(r"\['|\{'|\('", visible(text)), page
        assert "`" not in visible(re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)), page


def test_the_reference_of_the_library_is_in_the_menu(site, tmp_path, monkeypatch):
    def first_screen(content, render):
        yield next(page for page in catalogue.pages(content, render) if page[0] == "index.html")

    monkeypatch.setattr(build, "write_reference", lambda folder: folder.mkdir(parents=True))
    monkeypatch.setattr(build, "_all", first_screen)
    build.build(tmp_path / "site", api=True)
    assert 'href="reference/index.html">API<' in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize("out", [".", ".."])
def test_the_working_folder_is_not_replaced(out, tmp_path, monkeypatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / build.MARK).touch()
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setattr(build, "gather", lambda: pytest.fail("nothing is built"))
    refuses(InputError, "is the working folder, or holds it", build.build, Path(out))


def test_other_files_and_an_old_site_stay_if_a_build_fails(tmp_path, site, front, monkeypatch) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    refuses(InputError, "no site of physml: name a new folder", build.build, tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "x"

    def half(*_):
        yield "index.html", "half of a site"
        raise ZeroDivisionError

    monkeypatch.setattr(build, "_all", half)
    with pytest.raises(ZeroDivisionError):
        build.build(site)
    assert (site / "index.html").read_text() == front
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_searches_of_the_checkout_have_pages_beside_results_elsewhere(tmp_path, few, monkeypatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    pages = dict(catalogue._searches(few, Renderer()))
    files = [page for name, page in pages.items() if name.endswith(".json")]
    assert files and all(path.is_file() for path in files)
    cells = [catalogue.about_experiment(few, placed) for _, placed in few.cells()]
    assert any(about["search"] for about in cells)


def test_one_table_stands_alone_and_foreign_text_is_escaped():
    spec = load_table(find_table("lem-4"))
    row = dataclasses.replace(spec.rows[0], label="<script>alert(1)</script>")
    claim = dataclasses.replace(spec.claim, order=(), ties=(), amounts=())
    bare = dataclasses.replace(spec, claim=claim, reasons=(), notes=("<b>x</b>",), finding=None)
    page = build.one_table(results_of(dataclasses.replace(bare, rows=(row, *spec.rows[1:]))))
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "<b>x" not in page
    assert "<style>" in page and 'href="../' not in page and "<nav" not in page


def test_a_reason_stands_in_its_cells_alone(few):
    reason = table_spec.Reason("Its rate was searched.", rows=("LSTM",), columns=("official",))
    spec = dataclasses.replace(load_table(find_table("lem-4")), reasons=(reason,))
    results = results_of(spec)
    (reasons,) = (block for block in results.document.long if block.heading.startswith("Reasons"))
    assert reasons.lines == ("LSTM; RMSE, last 128 test sequences: Its rate was searched.",)
    shown = [cell for cell in results.cells if cell_context(results, cell, Pictures())["reasons"]]
    assert [(cell.row.label, cell.column.key) for cell in shown] == [("LSTM", "official")]
    with pytest.raises(ConfigError, match="reasons: there is no row LSTN"):
        dataclasses.replace(spec, reasons=(table_spec.Reason("x", rows=("LSTN",)),))


def test_seeds_that_are_paired_with_splits_have_a_command_each():
    spec = load_table(find_table("own-heterophily"))
    results = results_of(dataclasses.replace(spec, rows=spec.rows[:1], ranks=(), reasons=(), finding=None))
    *runs, table = cell_context(results, results.cells[0], Pictures())["commands"]
    name = "heterophily/chameleon_filtered-mlp"
    assert runs == [f"physml run experiment={name} split={k} seed={k}" for k in range(5)]
    assert table == "physml table own-heterophily"
    assert len(results.counted(results.cells[0])) == 5


@each("ident", lambda: table_spec.table_ids(kind="runs"))
def test_no_two_cells_share_a_page(ident):
    spec = load_table(find_table(ident))
    for names in ([row.label for row in spec.rows], [column.key for column in spec.columns]):
        assert len({slug(name) for name in names}) == len(names)


def test_a_picture_is_of_the_runs_that_are_asked_for_and_a_table_is_written_as_a_page(tmp_path):
    pictures, runs = Pictures(), record.records("lem/fitzhugh_nagumo-lem")[:3]
    titles = [str(pictures.of(runs[:n])[1]) for n in (1, 3)]
    assert "of 1 runs" in titles[0] and "of 3 runs" in titles[1]
    assert pictures.of(runs)[0] == "valid/rmse by steps; a line is a run"
    assert pictures.of(5 * runs)[0].endswith("; a line is one of the first 12 of 15 runs")
    page = tmp_path / "t.html"
    assert main.main(["table", "lem-4", "--no-run", "--html", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert main.main(["table", "lem-8", "--html"]) == 2
