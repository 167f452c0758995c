"""Runs in roots of their own."""

from run_fixtures import roots  # noqa: F401 - a fixture
