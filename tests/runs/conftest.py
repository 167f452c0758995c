"""Every test here has its own roots. The helpers beside this file are imported by name, in children too."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def roots(tmp_path, monkeypatch):
    """Records, work folders and caches of a test, all in its temporary folder."""
    for name in ("results", "runs", "cache"):
        monkeypatch.setenv(f"PHYSML_{name.upper()}", str(tmp_path / name))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
