"""Runs in roots of their own, and benches at tiny sizes."""

from pathlib import Path

import pytest
from run_fixtures import forked, roots  # noqa: F401 - fixtures

from scripts.bench import rounds


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where benches write; one call is a sample."""
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    monkeypatch.setattr(rounds, "SAMPLE_S", 0.0)
    return tmp_path / "bench"
