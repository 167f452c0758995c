"""The copy of a run in MLflow: made with the real client, in a local database, and read back from it."""

import logging
from pathlib import Path

import pytest
import run_harness as h

from physml.base.errors import Preempted
from physml.base.paths import work_root
from physml.records import record
from physml.run.spec import RunSpec
from physml.run.trackers import mlflow as tracker
from physml.run.trackers.tracker import TrackedRun

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install '.[mlflow]'")

# Of MLflow's own: options of SQLAlchemy that are to go, connections that are left to the collector.
WARNINGS = ("Deprecation", "Resource", "Future", "pytest.PytestUnraisableException")
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in WARNINGS]
TRACKED = "tracker=mlflow"


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A database with MLflow's tables, which take it long to make."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path.read_bytes()


@pytest.fixture(autouse=True)
def database(empty, monkeypatch):
    """The one that is used without an address."""
    for name in ("MLFLOW_TRACKING_URI", *tracker.DEFAULTS):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    path = work_root() / "mlflow.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(empty)
    return path


class Copy:
    def __init__(self, spec: RunSpec, database: Path) -> None:
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
        project = client.get_experiment_by_name("physml")
        runs = client.search_runs([project.experiment_id])
        self.runs = [run for run in runs if spec.place.stem in run.info.run_name]
        (run,) = self.runs
        self.status, self.tags, self.params = run.info.status, run.data.tags, run.data.params
        self.metrics, self.id = run.data.metrics, run.info.run_id
        points = {name: client.get_metric_history(self.id, name) for name in self.metrics}
        self.history = {name: [(p.step, p.value) for p in history] for name, history in points.items()}


def test_a_run_is_copied_whole(database):
    spec = h.spec_of(h.odd(TRACKED, "tracker.tags=[own]", "trainer.test_every=2"))
    recorded = h.make(spec, tables=["lem-4"])
    copy = Copy(spec, database)
    assert copy.status == "FINISHED" and copy.tags["status"] == "finished"
    assert copy.tags["group"] == f"adhoc/odd-lstm@{spec.place.identity}"
    assert copy.tags["tag.lem-4"] == copy.tags["tag.own"] == "true"
    assert copy.params["model.d_hidden"] == "5" and copy.params["optim.betas"] == "[0.9, 0.999]"
    assert [step for step, _ in copy.history["valid/mse"]] == [4, 8, 12]
    assert len(copy.history["test/mse"]) == 2
    assert copy.metrics["best/test/mse"] == recorded["metrics"]["best"]["test"]["mse"]
    assert recorded["wandb"] is None  # the id of another tracker


def test_a_stopped_run_goes_on_in_its_first_copy(database, monkeypatch):
    spec = h.spec_of(h.odd(TRACKED))
    real = tracker.MlflowTracker._log

    def stopping(self, row):
        real(self, row)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tracker.MlflowTracker, "_log", stopping)
        with pytest.raises(Preempted):
            h.make(spec)
    first = Copy(spec, database)
    assert first.status == "KILLED" and first.tags["status"] == "preempted"
    h.make(spec)
    second = Copy(spec, database)
    assert second.id == first.id and second.status == "FINISHED"
    assert [step for step, _ in second.history["valid/mse"]] == [4, 8, 12]


def test_rows_that_the_copy_has_are_not_sent_again(database):
    spec = h.spec_of(h.odd(TRACKED))
    for rows in ([4, 8], [4, 8, 12]):
        copy = tracker.Mlflow().start(TrackedRun.of_spec(spec, []))
        for step in rows:
            copy.row({"step": step, "valid/mse": 1.0 / step})
        copy.finish({"status": "finished", "best/valid/mse": 0.1}, [], 0)
    assert Copy(spec, database).history["valid/mse"] == [(4, 0.25), (8, 0.125), (12, 1 / 12)]


def test_names_that_mlflow_does_not_take_are_changed(database):
    spec = h.spec_of(h.odd(TRACKED, "tracker.tags=['a*b']"))
    run = TrackedRun.of_spec(spec, [])
    run.config["optim"]["lr_factors"] = {"layers.*.W": 0.1}  # a pattern of parameters, as docs have it
    copied = tracker.MlflowTracker(run, f"sqlite:///{database}")
    copied.row({"step": 1, "valid/a*b": 2.0})
    copied.finish({"status": "finished"}, [], 0)
    copy = Copy(spec, database)
    assert not copied.failed and copy.tags["tag.a-b"] == "true" and copy.metrics["valid/a-b"] == 2.0
    assert copy.params["optim.lr_factors.layers.-.W"] == "0.1"


def test_what_is_no_number_is_left_out(database):
    spec = h.spec_of(h.odd(TRACKED))
    copy = tracker.Mlflow().start(TrackedRun.of_spec(spec, []))
    copy.row({"step": 4, "train/loss": float("nan"), "valid/mse": None, "epoch": 1})
    copy.finish({"status": "diverged", "best/valid/mse": None}, [], 1)
    stored = Copy(spec, database)
    assert not copy.failed and stored.status == "FAILED"
    assert stored.metrics == {"step": 4.0, "epoch": 1.0}


@pytest.mark.parametrize("moment", ["create_run", "log_batch", "set_terminated"])
def test_a_fault_of_the_tracker_hurts_nothing(moment, monkeypatch, caplog):
    want = h.make(h.spec_of(h.odd()))
    monkeypatch.setenv("PHYSML_RESULTS", str(Path(want["path"]).parents[3] / "tracked"))

    def away(*_, **__):
        raise ConnectionError("no server")

    monkeypatch.setattr(mlflow.MlflowClient, moment, away)
    caplog.set_level(logging.WARNING)
    tracked = h.make(h.spec_of(h.odd(TRACKED)))
    assert h.numbers(tracked) == h.numbers(want)
    assert record.read(Path(tracked["path"]))["status"] == "finished"
    warned = [r.message for r in caplog.records if r.name == "physml.run.trackers.tracker"]
    assert warned and all(text.startswith("MLflow") for text in warned)
    assert all(text.endswith("The run goes on.") for text in warned)


def test_a_server_that_is_away_hurts_nothing(monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert h.make(h.spec_of(h.odd(TRACKED)))["status"] == "finished"
    assert "MLflow init failed" in caplog.text
