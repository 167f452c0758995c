"""conf/ of a test of searches: everything but the studies, which the test writes."""

from pathlib import Path

import pytest
import yaml

from physml.base.paths import CONF
from physml.config import conf_files

# Keys of a small search.
TINY = {"metric": "rmse", "better": "lower", "trials": 2, "seed": 1000, "trial": {"profile": "smoke"}}
TINY |= {"space": {"optim.lr": {"low": 1.0e-3, "high": 5.0e-2, "log": True}}}


def without_studies(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for conf/."""
    folder = root / "conf"
    folder.mkdir()
    for path in CONF.iterdir():
        if path.name != "study":
            (folder / path.name).symlink_to(path)
    monkeypatch.setattr(conf_files, "CONF", folder)
    return folder


def write_study(conf: Path, search_keys: dict, rows: dict) -> Path:
    """The study lem/fitzhugh_nagumo, with a search named tiny."""
    content = {"task": "fitzhugh_nagumo", "provenance": {"kind": "own", "source": "a paper"}}
    content |= {"searches": {"tiny": search_keys}, "rows": rows}
    path = conf / "study" / "lem" / "fitzhugh_nagumo.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# A study, with a comment of its own.\n{yaml.safe_dump(content, sort_keys=False)}")
    return path
