"""The structure that docs/design.md describes is the one that is there."""

import re

from physml.base.paths import ROOT

DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ENTRIES = 15  # of a folder, at most
CATALOGUES = {"models/sequence", "models/graph", "cli", "data/readers", "data/index", "site/templates"}


def packages() -> set[str]:
    return {p.parent.name for p in (ROOT / "physml").glob("*/__init__.py")}


def test_every_package_has_a_line_the_twelve_files_are_there_and_no_folder_is_a_hallway() -> None:
    described = set(re.findall(r"^\| `(\w+)/` \|", DESIGN, re.MULTILINE))
    assert described == packages() | {"tasks"}
    listed = re.findall(r"^\d+\. `([^`]+)`", DESIGN, re.MULTILINE)
    assert len(listed) == 12
    assert [path for path in listed if not (ROOT / path).is_file()] == []
    # More than 15 entries only where each is one more of a kind: models, readers, commands, ops.
    full = {}
    for folder in (ROOT / "physml").rglob("*/"):
        if folder.name == "__pycache__":
            continue
        name = folder.relative_to(ROOT / "physml").as_posix()
        inside = [p for p in folder.iterdir() if p.name not in ("__pycache__", "__init__.py")]
        if len(inside) > ENTRIES and name not in CATALOGUES and not name.startswith("ops"):
            full[name] = len(inside)
    assert full == {}
