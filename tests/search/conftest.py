"""Runs in roots of their own, and searches of studies that a test writes."""

import pytest
from run_fixtures import forked, roots  # noqa: F401 - fixtures
from search_conf import without_studies


@pytest.fixture
def conf(tmp_path, monkeypatch):
    return without_studies(tmp_path, monkeypatch)
