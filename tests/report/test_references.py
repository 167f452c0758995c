"""What to cite: every model and data set has a reference, and the entries are BibTeX."""

import re

import pytest
import yaml

from physml.base.paths import ROOT
from physml.cli import main
from physml.config import conf_files
from physml.report.references import bibtex, cited, references

WITHOUT = {"mlp", "own"}  # older than a reference would help; a template


@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_each_model_and_data_set_has_a_reference(kind):
    names = set(conf_files.files(kind.removesuffix("s"))) - WITHOUT
    assert [name for name in names if not any(work.of(kind, [name]) for work in references().values())] == []


def test_the_citation_file_has_the_five_papers_and_each_pattern_stands_for_a_file() -> None:
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    known = {entry["url"]: entry for entry in content["references"]}
    papers = cited(["cornn", "unicornn", "lem", "graphcon", "g2"])
    assert {paper.url for paper in papers.values()} == set(known)
    for paper in papers.values():
        other = known[paper.url]
        authors = tuple(f"{a['family-names']}, {a['given-names']}" for a in other["authors"])
        assert (other["title"], other["year"], authors) == (paper.title, paper.year, tuple(paper.author))
    for key, work in references().items():
        for kind in ("models", "datasets"):
            for pattern in getattr(work, kind):
                names = conf_files.files(kind.removesuffix("s"))
                assert any(work.of(kind, [name]) for name in names), (key, pattern)
    reference = next(iter(references().values()))
    entry = bibtex("a", type(reference)("article", ("A, B",), "x & y_z 100%", "J", 2020, "https://x"))
    assert r"x \& y\_z 100\%" in entry


def test_the_command_prints_each_entry_once(prints):
    out = prints(0, "cite", "lem-4", "cornn-6").out
    keys = re.findall(r"^@\w+\{(\w+),$", out, re.MULTILINE)
    assert len(keys) == len(set(keys)) and out.count("{") == out.count("}")
    named = {"physml", "rusch2022lem", "rusch2021cornn", "kusupati2018fastgrnn", "hochreiter1997lstm"}
    assert named < set(keys)
    assert "dau2018ucr" in prints(0, "cite", "talk-2-noisy").out
    assert main.main(["cite", "lem-44"]) == 2
