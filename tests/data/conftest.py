"""Fixtures in place of the files of others."""

import pytest

from physml.data import verify


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes of fixtures are accepted under every way to verify."""
    monkeypatch.setattr(verify.FoundFiles, "small", True)
