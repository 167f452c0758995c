"""Templates: every page has the menu, and links that are relative, so that it works from a file."""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from physml import __version__
from physml.base.errors import needed_by
from physml.base.text import plain
from physml.records import provenance
from physml.report.outcome import ALL
from physml.site import plots, prose
from physml.site.content import DOCS, slug

Page = tuple[str, str | Path]  # path on the site, and text or a file to copy
FOLDER = Path(__file__).parent
ASSETS = FOLDER / "assets"
MENU = (
    ("physml", "index.html"),
    ("Tables", "all/index.html"),
    ("Find", "cells/index.html"),
    ("Figures", "figure/index.html"),
    ("Models", "model/index.html"),
    ("Tasks", "task/index.html"),
    ("Searches", "search/index.html"),
    ("Docs", "docs/index.html"),
)


_OURS = re.compile(r"-?\d[\d.]*(?:e-?\d+)? ± \d+(?:\.\d+)?")  # a mean with its spread


def numbers(text: str) -> Markup:
    """A finding whose numbers with a spread stand out."""
    return Markup(_OURS.sub(r"<strong>\g<0></strong>", str(prose.inline(text))))


class Renderer:
    """Pages from templates; whatever a text holds is escaped. api: whether the site has a reference."""

    def __init__(self, api: bool = False) -> None:
        self.menu = (*MENU, ("API", "reference/index.html")) if api else MENU
        code = provenance.code()
        commit = code.get("commit")
        self.commit = (commit[:10] + (" with changes" if code.get("dirty") else "")) if commit else None

    @cached_property
    def _environment(self) -> Any:
        with needed_by("the site"):
            import jinja2
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            finalize=lambda value: plain(value) if type(value) is str else value,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.filters |= {"slug": slug, "inline": prose.inline, "numbers": numbers}
        environment.globals.update(
            kinds={outcome.kind: outcome.name for outcome in ALL}, axis_row=plots.axis_row, menu=self.menu
        )
        return environment

    def page(self, template: str, name: str, **context: Any) -> Page:
        """A page, with its path on the site."""
        return name, self.text(template, name, **context)

    def text(self, template: str, name: str, *, inline: bool = False, **context: Any) -> str:
        """The text of the page with this path. inline: alone, with its style in it and no links to others."""
        style = Markup((ASSETS / "site.css").read_text(encoding="utf-8")) if inline else None
        common = {
            "root": "../" * name.count("/"),
            "here": next((title for title, page in MENU if page == name), None),
            "inline": style,
            "version": __version__,
            "commit": self.commit,
            "docs": DOCS.is_dir(),  # an installed wheel has none
        }
        return str(self._environment.get_template(template).render(**common, **context))
