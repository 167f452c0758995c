"""The wheel, built from a copy of the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

from physml.base.paths import ROOT

FOLDERS = ("physml", "conf", "tasks", "results/runs", "results/search", "results/weights")
FILES = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "scripts/build_wheel.py")


def build(folder: Path) -> Path:
    """The wheel of a copy in this folder, with setuptools as it is here: other builds may run beside it."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.xz"))
    (folder / "scripts").mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    (folder / "build" / "lib" / "physml").mkdir(parents=True)
    (folder / "build" / "lib" / "physml" / "gone.py").write_text("of an earlier build\n", encoding="utf-8")
    command = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_wheel('.')"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built
