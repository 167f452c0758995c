"""Workers of commands in this process, where a test wants them quick."""

from run_fixtures import forked  # noqa: F401 - a fixture
