"""Data for tasks."""

import pytest

from physml.data.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Tiny sets stand in for all data."""
    return Store(None, tmp_path_factory.mktemp("cache"), fixtures=True)
