"""The reference of the library, from its docstrings, by pdoc in a process of its own."""

import subprocess
import sys
from pathlib import Path

from physml.base.errors import RunFailed, needed_by

MODULES = ("physml", "physml.models", "physml.estimators")


def write_reference(folder: Path) -> None:
    """Pages of what a user of the library calls. MissingExtra where pdoc is not installed."""
    with needed_by("the reference"):
        import pdoc  # noqa: F401
    options = ["--docformat", "google", "--output-directory", str(folder)]
    command = [sys.executable, "-m", "pdoc", *options, *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"pdoc ended with {done.returncode}: {done.stderr.strip()[-300:]}")
