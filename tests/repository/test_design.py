"""The structure that docs/design.md describes is the one that is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from physml.base.paths import ROOT, own_folders

DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ENTRIES = 15  # of a folder, at most
TOUCHED = 60  # files that a run executes, at most
RUN = ("run", "experiment=lem/fitzhugh_nagumo-cornn", "profile=smoke", "tracker=none")
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


def test_a_run_touches_few_files(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/house.py", *RUN]
    env = {**os.environ, **own_folders(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    executed = int(done.stderr.strip().splitlines()[-1].split()[-2])
    assert executed <= TOUCHED, f"{executed} files; scripts/house.py {' '.join(RUN)} names them"
