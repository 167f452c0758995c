"""Searches as sweeps of W&B: the file, its commands, and runs that an agent starts.

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
from wandb.apis.public.sweeps import _validate_config_and_fill_distribution
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args
from wandb.sdk.sweeps.scheduler.optuna import sweep_parameter_to_distribution

from physml.base.paths import ROOT
from physml.cli.main import main
from physml.search import plain as search
from physml.search import sweep_export
from physml.search.plain import SearchSpec

COMMAND = ["/usr/bin/env", "python", "-m", "physml", "run"]
SMALL = {"profile": "smoke", "model.d_hidden": 3, "trainer.epochs": 2}


def spec_of(**changes):
    content = {"metric": "rmse", "better": "lower", "trials": 5, "seed": 1000, "trial": SMALL}
    content |= {"id": "own", "experiment": "lem/fitzhugh_nagumo-lstm", "space": {"optim.lr": [0.1]}}
    return SearchSpec(**(content | changes))


def command_of(sweep, point):
    """The command line of an agent for a point, by W&B's own code."""
    args = create_sweep_command_args({"args": {key: {"value": value} for key, value in point.items()}})
    given = args | {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [sweep["program"]]}
    command = []
    for word in create_sweep_command(list(sweep["command"])):
        command += given[word[2:-1]] if word.startswith("${") else [word]
    return command


# ---------------------------------------------------------------------------- the file


def test_a_search_of_the_repository_becomes_a_sweep(tmp_path, capsys):
    path = tmp_path / "sweep.yaml"
    assert main(["search", "fitzhugh_nagumo-cornn", "--export", "wandb", "--to", str(path)]) == 0
    assert "wandb sweep" in capsys.readouterr().out
    sweep = _validate_config_and_fill_distribution(yaml.safe_load(path.read_text()))
    spec = search.load_search("fitzhugh_nagumo-cornn")
    assert sweep["name"] == spec.experiment and sweep["project"] == "physml"
    assert sweep["method"] == "bayes" and sweep["run_cap"] == spec.trials
    assert sweep["metric"] == {"name": "best/valid/rmse", "goal": "minimize"}
    assert sweep["parameters"].keys() == spec.space.keys()
    distributions = {key: sweep_parameter_to_distribution(p) for key, p in sweep["parameters"].items()}
    for key, found in distributions.items():
        if span := spec.range(key):
            assert (found.low, found.high, found.log) == (span.low, span.high, span.log)
        else:
            assert list(found.choices) == spec.space[key]
    assert "The first stage alone" in path.read_text()


def test_the_command_of_an_agent_makes_the_run_that_the_search_makes():
    spec = search.load_search("fitzhugh_nagumo-cornn")
    point = {"optim.lr": 0.012345678, "model.dt": 0.1, "model.gamma": 1.0, "model.epsilon": 2.5}
    point |= {"model.init": "separate"}
    command = command_of(sweep_export.sweep_of(spec), point)
    assert command[:5] == COMMAND
    made = h.spec_of(command[5:])
    trial = search.trial_spec(spec, 0, point, of_stage=spec.stages[0].set)
    assert made.place.identity == trial.place.identity
    assert (made.place.seed, made.place.split) == (trial.place.seed, trial.place.split)
    assert made.place.folder == "adhoc/lem/fitzhugh_nagumo-cornn"
    assert made.config["tracker"]["kind"] == "wandb" and not made.config["runtime"]["score_test"]


def test_every_kind_of_parameter():
    space = {
        "optim.lr": {"low": 0.001, "high": 1, "log": True},
        "model.dt": {"low": 0, "high": 2},
        "optim.eps": {"low": 0.5, "high": 0.5},
        "trainer.clip_norm": [None, 1.0, 2],
        "optim.betas": [[0.9, 0.99], [0.5, 0.9]],
        "model.multiscale": [True, False],
    }
    sweep = sweep_export.sweep_of(spec_of(space=space, better="higher"))
    assert sweep["method"] == "random" and sweep["metric"]["goal"] == "maximize"
    assert sweep["parameters"] == {
        "optim.lr": {"distribution": "log_uniform_values", "min": 0.001, "max": 1.0},
        "model.dt": {"distribution": "uniform", "min": 0.0, "max": 2.0},
        "optim.eps": {"value": 0.5},
        "trainer.clip_norm": {"values": ["null", 1.0, 2]},
        "optim.betas": {"values": ["[0.9, 0.99]", "[0.5, 0.9]"]},
        "model.multiscale": {"values": [True, False]},
    }
    for parameter in sweep["parameters"].values():
        sweep_parameter_to_distribution(parameter)


def test_values_reach_a_run_as_they_are():
    space = {"trainer.clip_norm": [None, 1.0], "optim.betas": [[0.9, 0.99]], "optim.amsgrad": [True]}
    sweep = sweep_export.sweep_of(spec_of(space=space))
    point = {key: parameter["values"][0] for key, parameter in sweep["parameters"].items()}
    config = h.spec_of(command_of(sweep, point)[5:]).config
    assert config["trainer"]["clip_norm"] is None and config["optim"]["amsgrad"] is True
    assert config["optim"]["betas"] == [0.9, 0.99]


def test_a_file_for_several_searches_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = ["fitzhugh_nagumo-cornn", "fitzhugh_nagumo-lstm"]
    assert main(["search", *many, "--export", "wandb", "--to", "x.yaml"]) == 2
    assert main(["search", many[0], "--to", "x.yaml"]) == 2
    assert main(["search", *many, "--export", "wandb"]) == 0
    assert {path.name for path in tmp_path.glob("*.yaml")} == {f"{name}.sweep.yaml" for name in many}


@pytest.mark.parametrize(("sampler", "method"), [("random", "random"), ("tpe", "bayes"), ("gp", "bayes")])
def test_the_method_is_that_of_the_sampler(sampler, method, tmp_path):
    path = tmp_path / "sweep.yaml"
    words = ["--sampler", sampler, "--pruner", "median", "--trials", "7", "--export", "wandb"]
    assert main(["search", "fitzhugh_nagumo-cornn", *words, "--to", str(path)]) == 0
    sweep = yaml.safe_load(path.read_text())
    assert sweep["method"] == method and sweep["run_cap"] == 7
    assert not any(word.startswith("trainer.epochs") for word in sweep["command"])  # it has no stages
    assert "No run is stopped early" in path.read_text()


# ---------------------------------------------------------------------------- runs of an agent

# wandb leaves the file of a sweep's point open.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def server(monkeypatch):
    """A stand-in for the server of W&B, where this process is logged in."""
    with wandb_server.served() as state:
        monkeypatch.setenv("WANDB_BASE_URL", state.url)
        monkeypatch.setenv("WANDB_API_KEY", wandb_server.KEY)
        monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
        wandb.teardown()  # so that the client reads the environment anew
        yield state
        wandb.teardown()


@pytest.fixture
def in_sweep(server, monkeypatch, tmp_path):
    """The environment that an agent gives its runs."""
    point = tmp_path / "config-trial7.yaml"
    point.write_text("wandb_version: 1\nmodel.d_hidden:\n  value: 5\n")
    for name, value in {
        "WANDB_SWEEP_ID": "sweep1",
        "WANDB_RUN_ID": "trial7",
        "WANDB_PROJECT": "theirs",
        "WANDB_ENTITY": wandb_server.ENTITY,
        "WANDB_SWEEP_PARAM_PATH": str(point),
        "WANDB_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    wandb.teardown()
    return server


@unclosed
def test_a_run_of_an_agent_stays_in_its_sweep(in_sweep):
    spec = h.spec_of(h.odd("tracker=wandb", "tracker.tags=[search]", "runtime.score_test=false"))
    made = h.make(spec)
    wandb.teardown()
    (run,) = in_sweep.runs.values()
    assert run.name == made["wandb"] == "trial7"
    assert run.bucket["sweep"] == "sweep1" and run.bucket["project"] == "theirs"
    assert run.bucket["groupName"] == f"adhoc/odd-lstm@{spec.place.identity}"
    assert run.bucket["tags"] == ["search"]
    assert run.config["model.d_hidden"] == 5 and run.config["model"]["d_hidden"] == 5
    assert [row["step"] for row in run.history] == [4, 8, 12]
    value = made["metrics"]["best"]["valid"]["mse"]
    assert run.history[-1]["best/valid/mse"] == run.summary["best/valid/mse"] == pytest.approx(value)
    assert run.exit_code == 0 and not in_sweep.unknown


@unclosed
def test_a_point_that_is_done_already_still_reaches_its_sweep(in_sweep, monkeypatch):
    spec = h.spec_of(h.odd("tracker=wandb"))
    h.make(spec)
    monkeypatch.setenv("WANDB_RUN_ID", "trial8")
    wandb.teardown()
    made = h.make(spec)
    wandb.teardown()
    assert made["skipped"]
    first, again = in_sweep.runs["trial7"], in_sweep.runs["trial8"]
    assert again.bucket["sweep"] == "sweep1" and again.exit_code == 0
    assert again.summary["best/valid/mse"] == first.summary["best/valid/mse"]
    assert [row["step"] for row in again.history] == [4, 8, 12]


def test_without_a_sweep_the_run_has_its_own_id(server):
    spec = h.spec_of(h.odd("tracker=wandb"))
    made = h.make(spec)
    wandb.teardown()
    (run,) = server.runs.values()
    assert run.name == made["wandb"] and spec.place.stem in run.name
    assert run.bucket["project"] == "physml" and "sweep" not in run.bucket


@pytest.mark.slow
def test_an_agent_runs_an_exported_sweep(server, tmp_path):
    """`wandb sweep` and `wandb agent` as a person types them."""
    sweep = sweep_export.sweep_of(spec_of(space={"optim.lr": {"low": 0.001, "high": 0.1, "log": True}}))
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep))
    beside = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def wandb_command(*words):
        command = [sys.executable, "-m", "wandb", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    wandb_command("sweep", str(file))
    server.points = [{"optim.lr": 0.0123}, {"optim.lr": 0.05}]
    wandb_command("agent", f"{wandb_server.ENTITY}/physml/sweep1")
    assert [run.name for run in server.runs.values()] == ["trial1", "trial2"]
    for run, lr in zip(server.runs.values(), (0.0123, 0.05), strict=True):
        assert run.bucket["sweep"] == "sweep1" and run.exit_code == 0
        assert run.config["optim"]["lr"] == run.config["optim.lr"] == lr
        assert run.history[-1]["best/valid/rmse"] == run.summary["best/valid/rmse"]
        assert run.summary["status"] == "finished" and not any("test" in key for key in run.summary)
    assert {"trial1": True} in server.running
    paths = sorted((tmp_path / "results" / "runs" / "adhoc").rglob("*-seed1000.json"))
    assert sorted(json.loads(path.read_text())["wandb"] for path in paths) == ["trial1", "trial2"]
