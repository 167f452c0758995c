"""Weights of recorded runs under the names of their experiments: results/weights, and the same in a wheel.

`lem/adding-5000-lem-short` is results/weights/lem/adding-5000-lem-short.safetensors, with a card beside it:
the run, its scores, and the checksum of the file.
"""

from pathlib import Path

from physml.base.paths import OWN_RESULTS, PACKAGE, results_root
from physml.config import conf_files

SUFFIX = ".safetensors"


def find(name: str) -> Path | None:
    """The kept weights of an experiment, of this checkout or working folder before those of the wheel."""
    if not conf_files.is_id(name):
        return None
    folders = (results_root() / "weights", OWN_RESULTS / "weights", PACKAGE / "_weights")
    return next((path for folder in folders if (path := folder / f"{name}{SUFFIX}").is_file()), None)
