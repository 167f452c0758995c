"""Names say what a value is: no variable, loop variable or argument has a name that fits any value."""

import ast
from collections.abc import Iterator

import pytest

from physml.base.paths import ROOT

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


def test_the_search_sees_every_kind_of_name() -> None:
    assert empty_names(SOURCE) == [
        (5, "given"), (5, "made"), (5, "there"), (5, "told"), (7, "back"), (7, "one"), (8, "found"),
        (9, "wanted"), (12, "told"), (14, "back"), (14, "one"), (15, "there"),
    ]  # fmt: skip
