"""Commands in this process, in folders of their own; workers of commands, where a test wants them quick."""

from collections.abc import Callable
from pathlib import Path

import pytest
from run_fixtures import forked  # noqa: F401 - a fixture

from physml.base.paths import own_folders
from physml.cli import main


@pytest.fixture
def own_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results, work folders and caches of a test lie in its own folder, which is the working folder too."""
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def physml(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command in this process: exit code, output, errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(list(arguments))
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
