"""Sweeps of W&B: the file of docs/tracking.md, and runs that an agent starts.

The agent, the client and its core are the real ones; the server is a small stand-in (`wandb_server`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import run_harness as h
import wandb
import wandb_server
import yaml

from physml.base.paths import ROOT

# ---------------------------------------------------------------------------- runs of an agent

# wandb leaves the file of a sweep's point open.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def in_sweep(server, monkeypatch, tmp_path):
    """The environment that an agent gives its runs."""
    point = tmp_path / "config-trial7.yaml"
    point.write_text("wandb_version: 1\nmodel.d_hidden:\n  value: 5\n")
    environment = {"SWEEP_ID": "sweep1", "RUN_ID": "trial7", "PROJECT": "theirs", "DIR": tmp_path}
    environment |= {"ENTITY": wandb_server.ENTITY, "SWEEP_PARAM_PATH": point}
    for name, value in environment.items():
        monkeypatch.setenv(f"WANDB_{name}", str(value))
    wandb.teardown()
    return server


@unclosed
def test_a_run_of_an_agent_stays_in_its_sweep(in_sweep):
    spec = h.spec_of(h.odd("tracker=wandb", "tracker.tags=[search]", "runtime.score_test=false"))
    record = h.make(spec)
    wandb.teardown()
    (run,) = in_sweep.runs.values()
    assert run.name == record["wandb"] == "trial7"
    assert run.bucket["sweep"] == "sweep1" and run.bucket["project"] == "theirs"
    assert run.bucket["groupName"] == f"adhoc/odd-lstm@{spec.place.identity}"
    assert run.bucket["tags"] == ["model-lstm", "search"]
    assert run.config["model.d_hidden"] == 5 and run.config["model"]["d_hidden"] == 5
    assert [row["step"] for row in run.history] == [4, 8, 12]
    value = record["metrics"]["best"]["valid"]["mse"]
    assert run.history[-1]["best/valid/mse"] == run.summary["best/valid/mse"] == pytest.approx(value)
    assert run.exit_code == 0 and not in_sweep.unknown


@unclosed
def test_a_point_that_is_done_already_still_reaches_its_sweep(in_sweep, monkeypatch):
    spec = h.spec_of(h.odd("tracker=wandb"))
    h.make(spec)
    monkeypatch.setenv("WANDB_RUN_ID", "trial8")
    wandb.teardown()
    record = h.make(spec)
    wandb.teardown()
    assert record["skipped"]
    first, again = in_sweep.runs["trial7"], in_sweep.runs["trial8"]
    assert again.bucket["sweep"] == "sweep1" and again.exit_code == 0
    assert again.summary["best/valid/mse"] == first.summary["best/valid/mse"]
    assert [row["step"] for row in again.history] == [4, 8, 12]


def test_without_a_sweep_the_run_has_its_own_id(server):
    spec = h.spec_of(h.odd("tracker=wandb"))
    record = h.make(spec)
    wandb.teardown()
    (run,) = server.runs.values()
    assert run.name == record["wandb"] and spec.place.stem in run.name
    assert run.bucket["project"] == "physml" and "sweep" not in run.bucket


@pytest.mark.slow
def test_an_agent_runs_the_sweep_of_the_documentation(server, tmp_path):
    """`wandb sweep` and `wandb agent` as a person types them; with a short training."""
    text = (ROOT / "docs" / "tracking.md").read_text(encoding="utf-8")
    sweep = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert sweep["name"] in str(sweep["command"])
    sweep["command"][-1:-1] = ["profile=smoke", "model.d_hidden=3", "trainer.epochs=2"]
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep))
    beside = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def wandb_command(*words):
        command = [sys.executable, "-m", "wandb", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    wandb_command("sweep", str(file))
    server.points = [{"optim.lr": 0.0123}]
    wandb_command("agent", f"{wandb_server.ENTITY}/physml/sweep1")
    (run,) = server.runs.values()
    assert run.name == "trial1" and run.bucket["sweep"] == "sweep1" and run.exit_code == 0
    assert run.config["optim"]["lr"] == run.config["optim.lr"] == 0.0123
    assert run.history[-1]["best/valid/rmse"] == run.summary["best/valid/rmse"]
    assert run.summary["status"] == "finished" and not any("test" in key for key in run.summary)
    # A run that ends between two heartbeats is in none.
    assert server.running and all(beat in ({}, {"trial1": True}) for beat in server.running)
    (path,) = (tmp_path / "results" / "runs" / "adhoc").rglob("*-seed1000.json")
    assert json.loads(path.read_text())["wandb"] == "trial1"
