"""Docstrings define the thing: none begins with a word that leaves out what it is about (CONTRIBUTING.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from physml.base.paths import ROOT

BARE = re.compile(r"(Of|As|That of|What|Where|Whether)\b")
ARGUMENT = re.compile(r"^\s+\w+: (Of|That of) ", re.MULTILINE)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def bare(path: Path) -> list[str]:
    texts = docstrings(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for line, text in texts
        if BARE.match(text) or ARGUMENT.search(text)
    ]


@pytest.mark.parametrize("folder", ["physml", "tasks", "scripts"])
def test_docstrings_begin_with_the_thing(folder: str) -> None:
    """Such as "Hours for the missing runs.", not "Of the runs ..."; "True if ...", not "Whether ..."."""
    assert [line for path in sorted((ROOT / folder).rglob("*.py")) for line in bare(path)] == []


def test_the_pattern_finds_what_it_should() -> None:
    texts = docstrings(
        '"""Whether it is so."""\nclass A:\n    """Offsets."""\n    def f(self): "As before."\n'
    )
    assert [bool(BARE.match(text)) for _, text in texts] == [True, False, True]
