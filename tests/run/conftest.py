"""Runs in roots of their own, and W&B without the real service."""

import pytest
import wandb
import wandb_server
from run_fixtures import forked, roots  # noqa: F401 - fixtures


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """Not logged in to W&B; the file that would say so."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    wandb.teardown()  # so that the client reads the environment anew
    return tmp_path / "netrc"


@pytest.fixture
def server(nobody, monkeypatch):
    """A stand-in for the server of W&B, where this process is logged in."""
    with wandb_server.served() as state:
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        monkeypatch.setenv("WANDB_API_KEY", wandb_server.KEY)
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        wandb.teardown()
        yield state
        wandb.teardown()
