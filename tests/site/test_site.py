"""The site of a few tables: its links, its numbers, the same bytes twice, nothing foreign in it."""

import csv
import dataclasses
import io
import json
import re

import pytest
from each import each
from site_links import check_links

from physml.base.errors import ConfigError, InputError
from physml.cli import main
from physml.listing import inventory
from physml.report.table import spec as table_spec
from physml.report.table.spec import find_table, load_table
from physml.site import build, content, words
from physml.site.content import results_of
from physml.site.data import lines

TABLES = ["lem-4", "lem-8", "own-rates"]


@pytest.fixture(scope="module")
def few():
    """Three tables, two figures, and all else."""
    with pytest.MonkeyPatch.context() as patch:
        figures = [one for one in inventory.figures() if one.name in ("lem-fig-4", "lem-fig-2")]
        patch.setattr(content, "table_ids", lambda: TABLES)
        patch.setattr(inventory, "figures", lambda: figures)
        yield content.gather()


@pytest.fixture(scope="module")
def site(few, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "gather", lambda: few)
        out = tmp_path_factory.mktemp("site") / "site"
        build.build(out, "https://example.org/x/")
        yield out


def test_links_lead_somewhere(site):
    # Papers link to tables that are not among the few.
    wrong = [one for one in check_links(site) if not one.startswith(("paper/", "docs/"))]
    assert not wrong


def test_every_kind_of_page_is_there(site):
    for page in (
        *("index", "all/index", "cells/index", "paper/lem/index", "table/lem-4/index", "table/lem-8/index"),
        *("cell/lem-4/lstm/official/index", "model/lem/index", "task/smnist/index", "docs/verdicts/index"),
        *("figure/lem-fig-4/index", "search/fitzhugh_nagumo-cornn/index", "data/index", "figure/index"),
    ):
        assert (site / f"{page}.html").is_file(), page
    assert [*site.glob("run/*/index.html")]
    assert "<loc>https://example.org/x/table/lem-4/index.html</loc>" in (site / "sitemap.xml").read_text()
    made = json.loads((site / "task" / "smnist" / "mnist.croissant.json").read_text())
    assert made["license"] and all(len(file["sha256"]) == 64 for file in made["distribution"])


def test_two_builds_are_equal_to_the_byte(site, few, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "gather", lambda: few)
    build.build(tmp_path / "again", "https://example.org/x/")

    def content_of(folder):
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    assert content_of(site) == content_of(tmp_path / "again")


def test_numbers_of_a_page_are_those_of_the_csv(site, few):
    page = (site / "table" / "lem-4" / "index.html").read_text()
    rows = csv.DictReader(io.StringIO((site / "table" / "lem-4" / "lem-4.csv").read_text()))
    official = {row["row"]: row for row in rows if row["column"] == "official"}
    found = re.findall(r'<tr data-kind="\w+">(.*?)</tr>', page.partition('id="clean"')[0], re.DOTALL)
    assert len(found) == len(few.tables["lem-4"].spec.rows)
    for row in found:
        label = re.search(r"<th.*?<a.*?>(.*?)</a>", row, re.DOTALL)[1]
        ours = re.search(r'data-label="ours" data-value="(.*?)">(.*?)<', row)
        mean = float(official[label]["mean"])  # of twelve digits
        assert float(ours[1]) == pytest.approx(mean, rel=1e-11)
        assert ours[2].startswith(f"{mean:.3f}")
        assert re.search(r'data-label="outcome">.*?</span>(.*?)</span>', row)[1] in official[label]["state"]
    head = page.partition("<details")[0]
    assert "LEM comes near its printed error" in head and "core-hours" in head
    assert (
        '<a href="../../cell/lem-4/lem/official/index.html" class="even">≈ cannot be told apart</a>' in head
    )
    cells = json.loads((site / "table" / "lem-4" / "lem-4.json").read_text())["cells"]
    assert cells == lines(few.tables["lem-4"].document)


def test_a_table_of_our_own_has_no_published_numbers(site):
    pages = [site / "table" / "own-rates" / "index.html", *(site / "cell" / "own-rates").rglob("*.html")]
    assert len(pages) > 1
    for page in pages:
        assert not re.search(
            r"<th[^>]*>(<button[^>]*>)?(published|difference)<|<dt>published<", page.read_text()
        )
    rows = re.findall(
        r"<tr[ >].*?</tr>", pages[0].read_text().partition("<section>")[2].partition("</table>")[0], re.DOTALL
    )
    assert len({len(re.findall(r"<t[hd][ >]", row)) for row in rows}) == 1  # also the row of the axis


def test_a_page_is_small_and_asks_for_nothing_outside(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert len(text) < 150_000, page
        assert not re.search(r'(?:src|<link[^>]*href)="(?:https?:)?//', text), page


def test_the_reference_of_the_library_is_in_the_menu(few, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "gather", lambda: few)
    monkeypatch.setattr(build, "write_reference", lambda folder: folder.mkdir(parents=True))
    build.build(tmp_path / "site", api=True)
    assert 'href="reference/index.html">API<' in (tmp_path / "site" / "index.html").read_text()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="no site of physml: name a new folder"):
        build.build(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "x"


def test_a_build_that_fails_leaves_the_old_site(site, few, monkeypatch):
    before = (site / "index.html").read_bytes()
    monkeypatch.setattr(build, "gather", lambda: few)
    monkeypatch.setattr(build.catalogue, "pages", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build.build(site)
    assert (site / "index.html").read_bytes() == before
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_one_table_stands_alone_and_foreign_text_is_escaped():
    spec = load_table(find_table("lem-4"))
    row = dataclasses.replace(spec.rows[0], label="<script>alert(1)</script>")
    claim = dataclasses.replace(spec.claim, order=(), amounts=())
    bare = dataclasses.replace(spec, claim=claim, reasons=(), notes=("<b>x</b>",), finding=None)
    made = dataclasses.replace(bare, rows=(row, *spec.rows[1:]))
    page = build.one_table(results_of(made))
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "<b>x" not in page
    assert "<style>" in page and 'href="../' not in page and "<nav" not in page


def test_a_reason_stands_in_its_cells_alone(few):
    reason = table_spec.Reason("Its rate was searched.", rows=("LSTM",), columns=("official",))
    spec = dataclasses.replace(load_table(find_table("lem-4")), reasons=(reason,))
    results = results_of(spec)
    (reasons,) = (block for block in results.document.long if block.heading.startswith("Reasons"))
    assert reasons.lines == ("LSTM; RMSE, last 128 test sequences: Its rate was searched.",)
    from physml.site.table_pages import Pictures, cell_context

    of = {
        (one.row.label, one.column.key): cell_context(results, one, Pictures())["reasons"]
        for one in results.cells
    }
    assert {at for at, reasons in of.items() if reasons} == {("LSTM", "official")}
    with pytest.raises(ConfigError, match="reasons: there is no row LSTN"):
        dataclasses.replace(spec, reasons=(table_spec.Reason("x", rows=("LSTN",)),))


def test_seeds_that_are_paired_with_splits_have_a_command_each():
    spec = load_table(find_table("own-heterophily"))
    results = results_of(dataclasses.replace(spec, rows=spec.rows[:1], ranks=(), reasons=(), finding=None))
    from physml.site.table_pages import Pictures, cell_context

    *runs, table = cell_context(results, results.cells[0], Pictures())["commands"]
    name = "heterophily/chameleon_filtered-mlp"
    assert runs == [f"physml run experiment={name} split={k} seed={k}" for k in range(5)]
    assert table == "physml table own-heterophily"
    assert len(results.counted(results.cells[0])) == 5


@each("ident", lambda: table_spec.table_ids(kind="runs"))
def test_no_two_cells_share_a_page(ident):
    spec = load_table(find_table(ident))
    for names in ([row.label for row in spec.rows], [column.key for column in spec.columns]):
        assert len({words.slug(name) for name in names}) == len(names)


def test_the_command(few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build, "gather", lambda: few)
    assert main.main(["site", "--out", str(tmp_path / "site")]) == 0
    assert "index.html" in capsys.readouterr().out
    assert main.main(["table", "lem-4", "--no-run", "--html", str(tmp_path / "t.html")]) == 0
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")
    assert main.main(["table", "lem-8", "--html"]) == 2
