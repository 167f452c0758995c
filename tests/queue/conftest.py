"""Runs in roots of their own."""

from run_fixtures import forked, roots  # noqa: F401 - fixtures
