"""Names and docstrings say what a thing is (CONTRIBUTING.md): no name and no beginning fits anything."""

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


def test_the_pattern_finds_what_it_should_and_the_search_every_kind_of_name() -> None:
    texts = docstrings(
        '"""Whether it is so."""\nclass A:\n    """Offsets."""\n    def f(self): "As before."\n'
    )
    assert [bool(BARE.match(text)) for _, text in texts] == [True, False, True]
    assert empty_names(SOURCE) == [
        (5, "given"), (5, "made"), (5, "there"), (5, "told"), (7, "back"), (7, "one"), (8, "found"),
        (9, "wanted"), (12, "told"), (14, "back"), (14, "one"), (15, "there"),
    ]  # fmt: skip


EMPTY = frozenset({"given", "made", "found", "told", "one", "wanted", "there", "back"})


def bound(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of all that a piece of code binds. Fields of a class are no variables."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield node.lineno, name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield node.lineno, name
        case ast.alias(asname=str(name)):
            yield node.lineno, name
    fields = {id(field) for field in getattr(node, "body", ())} if isinstance(node, ast.ClassDef) else set()
    for child in ast.iter_child_nodes(node):
        if id(child) in fields and isinstance(child, ast.Assign | ast.AnnAssign):
            continue
        yield from bound(child)


def empty_names(source: str) -> list[tuple[int, str]]:
    return sorted({(line, name) for line, name in bound(ast.parse(source)) if name in EMPTY})


@pytest.mark.parametrize("folder", ["physml", "tasks", "scripts", "tests"])
def test_a_name_says_what_the_value_is(folder: str) -> None:
    """Such as `record`, `matching`, `gradients`, `experiment`."""
    lines = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in empty_names(path.read_text(encoding="utf-8"))
    ]
    assert lines == []


SOURCE = '''
class Cell:
    wanted: int

    def f(self, given, *made, told=0, **there):
        """found"""
        self.found = [one for one in given if (back := one)]
        with made as found:
            return lambda wanted: f"{wanted}"
for found.index in record.found: pass
try: pass
except OSError as told: pass
match record:
    case [one, *back]: pass
import found as there, back
'''
