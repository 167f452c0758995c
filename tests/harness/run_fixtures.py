"""Every test here has its own roots. The helpers beside this file are imported by name, in children too."""

import subprocess
from pathlib import Path

import pytest

from physml.base.paths import own_folders


@pytest.fixture(autouse=True)
def roots(tmp_path, monkeypatch):
    """Records, work folders and caches of a test, all in its temporary folder."""
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_SWEEP_ID", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PHYSML_FORK", "0")  # the harness makes the workers; tests of forks ask for them
    return tmp_path


@pytest.fixture
def forked(monkeypatch):
    """Workers of a launcher in this process come from the fork server."""
    import run_harness

    from physml.queue import worker

    started, real = [], subprocess.Popen

    def popen(command, **options):
        if "physml.queue.worker" not in command:
            return real(command, **options)
        assert command[1:4] == ["-P", "-m", "physml.queue.worker"]
        folder = Path(command[4]).parent
        started.append(run_harness.Started(worker.main, command[4:], folder / "output.txt"))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started
