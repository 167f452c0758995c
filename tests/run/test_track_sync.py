"""`physml track sync`: records reach a tracker once."""

import json
import shutil
from pathlib import Path

import pytest
import run_harness as h
import wandb
import wandb_server

from physml.base.paths import results_root, work_root
from physml.cli.main import main
from physml.config.conf_files import without_places
from physml.records import record
from physml.run.trackers import upload
from physml.run.trackers.tracker import TrackedRun
from physml.run.trackers.wandb import WandbTracker

pytestmark = pytest.mark.usefixtures("nobody")
KEYS = {"kind": "wandb", "project": "physml", "mode": "auto", "tags": []}


@pytest.fixture(autouse=True)
def no_tables(monkeypatch):
    """Tables of experiments, without reading all of conf/table."""
    monkeypatch.setattr(upload, "tables_of_experiments", lambda: {"adhoc/odd-lstm": ["lem-4", "lem-9"]})


@pytest.fixture
def recorded():
    return h.make(h.spec_of(h.odd()))


def sync(*words):
    code = main(["track", "sync", *map(str, words)])
    wandb.teardown()  # as at the end of the command
    return code


def sent(server):
    return {name: len(run.history) for name, run in server.runs.items()}


def test_a_record_becomes_the_run_that_live_tracking_would_have_made(server, recorded, capsys):
    assert sync(recorded["path"]) == 0
    assert "1 runs sent" in capsys.readouterr().out
    (run,) = server.runs.values()
    spec = h.spec_of(h.odd())
    live = TrackedRun.of_spec(spec, [])
    assert run.name == live.id and run.bucket["groupName"] == live.group
    assert run.bucket["tags"] == ["lem-4", "lem-9", "model-lstm"]
    config = run.config
    assert config.pop("about")["model"] == "lstm"
    assert config == json.loads(json.dumps(without_places(spec.config)))
    rows = [json.loads(line) for line in (spec.work_folder / "metrics.jsonl").read_text().splitlines()]
    for logged, row in zip(run.history, rows, strict=True):
        assert {key: logged[key] for key in row} == pytest.approx(row, rel=1e-5)
    assert run.summary["best/test/mse"] == pytest.approx(recorded["metrics"]["best"]["test"]["mse"])
    assert run.summary["status"] == "finished" and run.exit_code == 0


def test_twice_is_not_double(server, recorded, capsys):
    assert sync(recorded["path"]) == 0
    before = sent(server)
    capsys.readouterr()
    assert sync() == sync(results_root() / "runs" / "adhoc") == 0
    assert "0 runs sent" in capsys.readouterr().out
    assert main(["records", "pack"]) == 0 and not Path(recorded["path"]).exists()
    assert sync(recorded["path"]) == 0 and "0 runs sent" in capsys.readouterr().out
    shutil.rmtree(work_root() / "tracked")  # as on another machine
    assert sync(recorded["path"]) == 0 and "1 runs sent" in capsys.readouterr().out
    assert sent(server) == before == {next(iter(before)): 3}


def test_what_was_stopped_midway_is_completed(server, recorded, monkeypatch):
    real, taken = WandbTracker.row, []

    def stopping(self, row):
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(row)
        real(self, row)

    monkeypatch.setattr(WandbTracker, "row", stopping)
    assert sync(recorded["path"]) == 75
    (run,) = server.runs.values()
    assert [row["step"] for row in run.history] == [4, 8] and run.summary["status"] == "partial"
    monkeypatch.setattr(WandbTracker, "row", real)
    assert sync(recorded["path"]) == 0
    assert [row["step"] for row in run.history] == [4, 8, 12]
    assert run.summary["status"] == "finished" and run.exit_code == 0


def test_a_run_that_was_copied_offline_is_sent_from_its_record(server, monkeypatch):
    spec = h.spec_of(h.odd("tracker=wandb"))
    with monkeypatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        h.make(spec)
        wandb.teardown()
    assert not server.runs
    assert sync(spec.record_path) == sync(spec.record_path) == 0
    assert sent(server) == {TrackedRun.of_spec(spec, []).id: 3}


def test_without_a_login_nothing_is_sent_and_offline_runs_are_written_once(recorded, capsys, monkeypatch):
    assert sync(recorded["path"]) == 2
    said = capsys.readouterr().err
    assert "not logged in to W&B: nothing is sent" in said and "WANDB_MODE=offline" in said
    assert sync("--plan", recorded["path"]) == 0
    plan = capsys.readouterr().out
    assert "1 of 1 records to send to W&B: https://api.wandb.ai" in plan and "Not yet: not logged in" in plan
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert sync(recorded["path"]) == sync(recorded["path"]) == 0
    assert len(list(h.spec_of(h.odd()).work_folder.glob("wandb/offline-run-*"))) == 1


def test_a_server_that_is_away_takes_nothing(recorded, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", wandb_server.KEY)
    monkeypatch.setattr("physml.run.trackers.wandb.INIT_S", 2.0)
    wandb.teardown()
    assert sync(recorded["path"]) == 1
    said = capsys.readouterr().out
    assert "took nothing" in said and "0 runs sent" in said


def test_the_plan_sends_nothing_and_records_that_failed_are_left_out(server, recorded, capsys):
    assert sync("--plan", recorded["path"]) == 0
    assert "1 of 1 records to send to W&B" in capsys.readouterr().out
    assert not server.runs
    path = h.spec_of(h.odd()).record_path
    record.write(path, record.read(path) | {"status": "failed"})
    assert sync(path) == 0 and not server.runs


def test_where_a_record_belongs_is_told_by_its_path():
    content = {"identity": "88829d05", "split": 1, "seed": 3, "experiment": "lem/a", "config": {}}
    paths = {
        "/x/results/runs/lem/a/88829d05-split1-seed3.json": "lem/a",
        "/x/runs/results/runs/adhoc/own/88829d05-split1-seed3.json": "adhoc/own",
        "/elsewhere/88829d05-split1-seed3.json": "lem/a",
    }
    for path, folder in paths.items():
        assert TrackedRun.of_record(content | {"path": path}, KEYS, []).place.folder == folder
