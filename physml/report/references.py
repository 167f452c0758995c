"""Citations from conf/references.yaml: the references of papers, models and data sets, as BibTeX."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from physml import __version__
from physml.base.paths import CONF
from physml.base.text import tex
from physml.config.load import coerce, read_yaml

FILE = "references.yaml"
VENUES = {"inproceedings": "booktitle", "article": "journal", "techreport": "institution"}


@dataclass(frozen=True)
class Reference:
    """A publication."""

    type: Literal["inproceedings", "article", "techreport"]  # type of the entry in BibTeX
    author: tuple[str, ...]  # family name, given names
    title: str
    venue: str  # conference, journal or institution
    year: int
    url: str
    papers: tuple[str, ...] = ()  # keys of tables, as lem of lem-4
    models: tuple[str, ...] = ()  # files of conf/model; * stands for any text
    datasets: tuple[str, ...] = ()  # files of conf/dataset, likewise

    def of(self, kind: str, names: Collection[str]) -> bool:
        return any(fnmatchcase(name, pattern) for name in names for pattern in getattr(self, kind))


@cache
def references() -> dict[str, Reference]:
    """All of them, by key. ConfigError names what is wrong in the file."""
    content = read_yaml(CONF / FILE)
    return {key: coerce(value, Reference, f"{FILE}: {key}") for key, value in content.items()}


def cited(
    papers: Collection[str], models: Collection[str] = (), datasets: Collection[str] = ()
) -> dict[str, Reference]:
    """Papers first, then models, then data sets, each once."""
    named = {"papers": papers, "models": models, "datasets": datasets}
    works = references().items()
    return {key: work for kind, names in named.items() for key, work in works if work.of(kind, names)}


def bibtex(key: str, reference: Reference) -> str:
    r"""An entry. Capitals of the title stay as they are.

    Example:
        >>> ref = Reference("article", ("Elman, Jeffrey L.",), "Time & X", "Cognitive Science", 1990, "https://x.org/a_b")
        >>> print(bibtex("elman", ref))
        @article{elman,
          author  = {Elman, Jeffrey L.},
          title   = {{Time \& X}},
          journal = {Cognitive Science},
          year    = {1990},
          url     = {https://x.org/a_b},
        }
    """
    fields = {
        "author": " and ".join(reference.author),
        "title": f"{{{tex(reference.title)}}}",
        VENUES[reference.type]: tex(reference.venue),
        "year": str(reference.year),
        "url": reference.url,
    }
    return _entry(reference.type, key, fields)


def of_physml() -> str:
    fields = {
        "author": "{The physml authors}",
        "title": "{physml: check, compare and extend physics-inspired machine learning}",
        "version": __version__,
        "year": "2026",
        "note": "MIT licence",
    }
    return _entry("software", "physml", fields)


def _entry(kind: str, key: str, fields: dict[str, str]) -> str:
    width = max(map(len, fields))
    lines = [f"  {name:<{width}} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
