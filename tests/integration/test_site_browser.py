"""The whole site in a real browser, offline: search, filter, sort, addresses, keyboard, narrow, print, axe.

`make integration` installs Chromium and runs this.
"""

import csv
import importlib.util
import shutil
import time

import pytest
from pilots_harness import physml
from site_links import check_links

CHROMIUM = shutil.which("chromium")
LONGEST_BUILD_S = 180.0  # 20 s of one core with the reference; this machine may be busy
pytestmark = pytest.mark.skipif(
    CHROMIUM is None
    or any(importlib.util.find_spec(n) is None for n in ("playwright", "axe_playwright_python")),
    reason="needs chromium (apt install chromium), playwright and axe-playwright-python",
)
PAGES = (
    "index.html",
    "cells/index.html",
    "all/index.html",
    "table/lem-4/index.html",
    "table/g2-2/index.html",
    "table/lem-8/index.html",
    "cell/lem-4/lstm/official/index.html",
    "paper/lem/index.html",
    "model/lem/index.html",
    "model/unicornn/index.html",
    "table/own-sequence/index.html",
    "task/smnist/index.html",
    "figure/index.html",
    "figure/lem-fig-4/index.html",
    "search/fitzhugh_nagumo-cornn/index.html",
    "docs/verdicts/index.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    start = time.monotonic()
    done = physml(None, "site", "--api", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < LONGEST_BUILD_S
    return out


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as starter:
        chromium = starter.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


@pytest.fixture
def window(browser, request):
    """A page without network; errors in its console and requests to elsewhere fail the test at its end."""
    options = getattr(request, "param", {"viewport": {"width": 1280, "height": 900}})
    context = browser.new_context(offline=True, accept_downloads=True, **options)
    page = context.new_page()
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda query: wrong.append(query.url) if not query.url.startswith(("file:", "data:")) else None,
    )
    yield page
    context.close()
    assert not wrong


COLUMNS = "Intervals, differences and settings, column by column"


def visible_rows(page):
    return page.locator("table[data-filtered] > tbody > tr[data-kind]:visible").count()


def test_no_link_is_dead(site):
    assert check_links(site) == []
    assert "LEM" in (site / "reference" / "physml.html").read_text()


def test_search_over_all_cells_and_its_address(site, window):
    window.goto((site / "index.html").as_uri())
    window.get_by_label("Find a cell").fill("lem-4 LSTM")
    window.get_by_role("button", name="Find").click()
    assert "cells/index.html" in window.url
    status = window.locator("output")
    assert " of " in status.inner_text()
    window.get_by_label("Outcome").select_option("above")
    n_rows = window.locator("#found tbody tr").count()
    assert n_rows >= 1
    assert "q=lem-4" in window.url and "kind=above" in window.url
    window.reload()
    assert window.locator("#found tbody tr").count() == n_rows
    assert window.get_by_label("Find").input_value() == "lem-4 LSTM"
    window.locator("#found tbody a").first.click()
    assert "/cell/lem-4/" in window.url and window.locator("h1").inner_text().startswith("LSTM")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("heterophilic graphs", "/table/g2-2/"),
        ("fitzhugh_nagumo", "/task/fitzhugh_nagumo/"),
        ("penn treebank", "/table/lem-6/"),
        ("slstm", "/model/slstm/"),
        ("gradient gating", "/paper/g2/"),
    ],
)
def test_the_search_finds_a_title_a_task_a_model_and_a_paper(site, window, words, page):
    window.goto((site / "index.html").as_uri())
    window.get_by_role("searchbox").fill(words)
    window.get_by_role("button", name="Find").click()
    window.locator("dl.found a, #found a").first.wait_for()
    links = window.locator("main a").evaluate_all("all => all.map(one => one.href)")
    assert any(page in link for link in links), links[:20]


def test_the_first_screen_has_three_findings_with_numbers_and_the_scatter(site, window):
    window.goto((site / "index.html").as_uri())
    findings = window.locator(".findings li")
    assert findings.count() == 3
    assert all(
        any(letter.isdigit() for letter in findings.nth(i).locator("p").inner_text()) for i in range(3)
    )
    height = window.viewport_size["height"]
    for part in (findings.nth(2), window.locator("svg").first):
        box = part.bounding_box()
        assert box["y"] + box["height"] <= height


def test_no_text_shows_marks_or_lists_of_python(site, window):
    for page in PAGES:
        window.goto((site / page).as_uri())
        window.evaluate("document.querySelectorAll('pre, code').forEach(one => one.remove())")
        text = window.locator("main").inner_text()
        assert "`" not in text and "['" not in text and "{{" not in text, page


@pytest.mark.parametrize("window", [{"viewport": {"width": 360, "height": 740}}], indirect=True)
@pytest.mark.parametrize("name", ["lem", "cornn", "unicornn", "graphcon_gcn", "nais", "slstm", "linoss"])
def test_equations_are_whole_on_a_narrow_screen(site, window, name):
    window.goto((site / f"model/{name}/index.html").as_uri())
    lines = window.evaluate(
        "[...document.querySelectorAll('.equation')].map(e => [e.scrollWidth - e.clientWidth,"
        " e.getBoundingClientRect().height])"
    )
    assert lines and all(over <= 1 and height >= 20 for over, height in lines), lines
    displays = window.evaluate(
        "[...document.querySelectorAll('p math')].map(e => getComputedStyle(e).display)"
    )
    assert set(displays) <= {"math"}  # the short form of "inline math"


@pytest.mark.parametrize(
    "window", [{"viewport": {"width": w, "height": 740}} for w in (360, 1280)], indirect=True
)
@pytest.mark.parametrize("page", ["cell/lem-4/lstm/official", "search/fitzhugh_nagumo-cornn"])
def test_curves_are_whole(site, window, page):
    window.goto((site / page / "index.html").as_uri())
    left, right, width = window.evaluate(
        "(() => { const plot = document.querySelector('svg:has(> .curve)').getBoundingClientRect();"
        " return [plot.left, plot.right, document.documentElement.clientWidth]; })()"
    )
    assert left > 50 and right <= width


@pytest.mark.parametrize("window", [{"viewport": {"width": 360, "height": 740}}], indirect=True)
def test_what_sorts_is_in_sight_on_a_narrow_screen(site, window):
    window.goto((site / "table/lem-4/index.html").as_uri())
    window.get_by_text(COLUMNS).click()
    table = window.locator("table[data-filtered]").first
    for name in ("model", "published", "ours", "outcome"):
        box = table.get_by_role("button", name=name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360


def test_a_table_of_our_own_shows_quality_against_cost(site, window):
    window.goto((site / "table/own-sequence/index.html").as_uri())
    assert window.locator("#cost").is_visible()
    picture = window.get_by_role("group", name="mean rank, 1 is the best against time of a training")
    assert picture.locator("circle.good").count() >= 2 and picture.locator("circle").count() > 15


@pytest.mark.parametrize("name", ["mean rank", "parity [%]", "time of a training", "memory", "parameters"])
def test_the_matrix_of_a_table_of_our_own_is_sorted_by_what_is_in_its_cells(site, window, name):
    window.goto((site / "table/own-sequence/index.html").as_uri())
    matrix = window.locator("table.matrix").first
    matrix.get_by_role("button", name=name).click()
    cells = matrix.locator(f'td[data-label="{name}"]').all_inner_texts()
    numbers = [float(text) for text in cells if text != "–"]
    assert len(numbers) > 20 and numbers == sorted(numbers) and set(cells[len(numbers) :]) <= {"–"}


def test_a_table_is_filtered_and_sorted(site, window):
    window.goto((site / "table/lem-4/index.html").as_uri())
    window.get_by_text(COLUMNS).click()
    whole = visible_rows(window)
    window.get_by_label("Find in rows").fill("cornn")
    assert 0 < visible_rows(window) < whole
    window.reload()
    window.get_by_text(COLUMNS).click()
    assert 0 < visible_rows(window) < whole
    window.get_by_label("Find in rows").fill("")
    assert visible_rows(window) == whole
    table = window.locator("table[data-filtered]").first
    table.get_by_role("button", name="ours").click()
    with (site / "table/lem-4/lem-4.csv").open() as file:
        rows = [
            row for row in csv.DictReader(file) if row["column"] == "official" and row["experiment"] != "NA"
        ]
    labels = [row["row"] for row in sorted(rows, key=lambda row: float(row["mean"]))]
    assert table.locator("tbody tr th").all_inner_texts() == labels
    assert table.locator("th[aria-sort=ascending]").count() == 1
    table.get_by_role("button", name="ours").click()
    assert table.locator("tbody tr th").all_inner_texts() == labels[::-1]


def test_a_table_can_be_taken_away(site, window):
    window.goto((site / "table/lem-4/index.html").as_uri())
    with window.expect_download() as waiting:
        window.get_by_role("link", name="CSV").click()
    saved = waiting.value.path()
    assert saved.read_bytes() == (site / "table/lem-4/lem-4.csv").read_bytes()


def test_by_keyboard_alone(site, window):
    window.goto((site / "table/lem-4/index.html").as_uri())
    window.keyboard.press("Tab")
    assert window.evaluate("document.activeElement.textContent") == "To the content"
    window.keyboard.press("Enter")
    for start in (COLUMNS, "model"):  # a table of several columns is folded
        for _ in range(60):
            window.keyboard.press("Tab")
            if window.evaluate("document.activeElement.textContent").startswith(start):
                break
        window.keyboard.press("Enter")
    assert window.locator("th[aria-sort=ascending]").count() == 1
    outline = window.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize(
    "window",
    [{"viewport": {"width": 360, "height": 740}, "color_scheme": scheme} for scheme in ("light", "dark")],
    indirect=True,
)
def test_narrow_pages_do_not_scroll_sideways(site, window):
    for page in PAGES:
        window.goto((site / page).as_uri())
        over = window.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, page
    colour = window.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour in ("rgb(255, 255, 255)", "rgb(20, 23, 28)")


def test_print_has_no_menu(site, window):
    window.goto((site / "table/lem-4/index.html").as_uri())
    window.emulate_media(media="print")
    assert not window.locator("header nav").is_visible() and not window.locator(".filters").is_visible()
    assert window.locator("h1").is_visible() and len(window.pdf()) > 10_000


@pytest.mark.parametrize(
    "window",
    [{"viewport": {"width": 1280, "height": 900}, "color_scheme": scheme} for scheme in ("light", "dark")],
    indirect=True,
)
def test_axe_finds_no_violation(site, window):
    from axe_playwright_python.sync_playwright import Axe

    for page in PAGES:
        window.goto((site / page).as_uri())
        report = Axe().run(window, options={"preload": False})  # it would fetch the style again
        assert report.violations_count == 0, (page, report.generate_report())


def test_one_table_as_a_page_to_send_and_to_print(site, tmp_path, window):
    html = tmp_path / "t.html"
    done = physml(None, "table", "lem-4", "--no-run", "--html", str(html))
    assert done.returncode == 0, done.stderr
    window.goto(html.as_uri())
    assert "LSTM" in window.locator("main").inner_text()
