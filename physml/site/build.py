"""All pages, written to a folder: the same content gives the same bytes."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from physml.base.errors import InputError, RunFailed, needed_by
from physml.base.paths import display_path
from physml.site import catalogue, data
from physml.site.content import Content, Results, gather, paper_of
from physml.site.render import ASSETS, Page, Renderer
from physml.site.table_pages import (
    Pictures,
    cell_context,
    cell_page,
    run_context,
    run_page,
    table_context,
    table_page,
)

MARK = ".physml-site"  # in a folder that was made here, and so may be replaced
MODULES = ("physml", "physml.models", "physml.estimators")  # of the reference


def build(out: Path, base: str | None = None, *, api: bool = False) -> tuple[int, int]:
    """The whole site into a folder, new, empty or built before: beside it first, and then in its place.

    Returns how many pages and bytes it has.

    base: where it will be served, for the sitemap; None: no sitemap. api: with a reference of the library.
    Raises: InputError where the folder holds something else, or the working folder.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists())):
        raise InputError(
            f"{display_path(out)} holds files that are no site of physml: name a new folder with --out."
        )
    if Path.cwd().is_relative_to(out.resolve()):
        raise InputError(f"{out} is the working folder, or holds it: name a folder below it with --out.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as name:
        folder = Path(name) / "site"
        if api:
            write_reference(folder / "reference")
        built = _written(folder, _pages(gather(), base, api))
        (folder / MARK).write_text("Made by physml site, which replaces this folder.\n", encoding="utf-8")
        if out.exists():
            out.rename(Path(name) / "old")
        folder.rename(out)
    return built


def write_reference(folder: Path) -> None:
    """Pages on what users of the library call, by pdoc in a process of its own. MissingExtra without pdoc."""
    with needed_by("the reference"):
        import pdoc  # noqa: F401
    options = ["--docformat", "google", "--output-directory", str(folder)]
    command = [sys.executable, "-m", "pdoc", *options, *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"pdoc ended with {done.returncode}: {done.stderr.strip()[-300:]}")


def one_table(results: Results) -> str:
    """One self-contained page of a table."""
    return Renderer().text("table.html.j2", "", paper="", inline=True, **table_context(results))


def _written(folder: Path, pages: Iterator[Page]) -> tuple[int, int]:
    count = size = 0
    for name, content in pages:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_text(content, encoding="utf-8")
        count += name.endswith(".html")
        size += path.stat().st_size
    return count, size


def _pages(content: Content, base: str | None, api: bool) -> Iterator[Page]:
    render = Renderer(api)
    yield from ((f"assets/{path.name}", path) for path in sorted(ASSETS.iterdir()))
    names: list[str] = []
    for name, body in _all(content, render):
        if name.endswith(".html"):
            names.append(name)
        yield name, body
    if base:
        yield "sitemap.xml", data.sitemap(names, base)


def _all(content: Content, render: Renderer) -> Iterator[Page]:
    yield from data.files_of(content)
    yield from catalogue.pages(content, render)
    pictures = Pictures()
    cells_of: dict[str, list[tuple[str, str]]] = {}  # identity -> page and name of its cells
    for results in content.tables.values():
        paper = paper_of(results.spec.id)
        page = table_page(results.spec.id)
        yield render.page("table.html.j2", page, paper=paper, **table_context(results))
        for placed in results.cells:
            page = cell_page(results, placed)
            if identity := results.identities.get(placed.cell.experiment or ""):
                name = f"{results.spec.id}: {placed.row.label}, {placed.column.title}"
                cells_of.setdefault(identity, []).append((page, name))
            context = cell_context(results, placed, pictures) | catalogue.about_experiment(content, placed)
            yield render.page("cell.html.j2", page, paper=paper, **context)
    for identity, records in data.settings_of(content).items():
        context = run_context(records, cells_of.get(identity, []), pictures)
        yield render.page("run.html.j2", run_page(identity), **context)
