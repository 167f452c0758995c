"""Data for tasks."""

import os
from pathlib import Path

import pytest

from physml.data.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Tiny sets stand in for all data."""
    return Store(None, tmp_path_factory.mktemp("cache"), fixtures=True)


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The published files below PHYSML_DATA; skips where the module's NEEDED is not there."""
    root, needed = os.environ.get("PHYSML_DATA"), request.module.NEEDED
    if not root or not (Path(root) / needed).exists():
        pytest.skip(f"set PHYSML_DATA to a folder that holds {needed}")
    return Store(
        Path(root), tmp_path_factory.mktemp("cache"), verify=getattr(request.module, "VERIFY", "bytes")
    )
