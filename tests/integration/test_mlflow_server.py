"""A real server of MLflow on this machine: runs are copied over HTTP, and once.

`make integration` runs this. The server has an environment of its own, since it needs other versions of
packages than the tested ones; physml has the client alone, by its extra `mlflow`.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from physml.records.record import run_paths

ROOT = Path(__file__).parents[2]
SERVER = Path(sys.prefix) / "mlflow-server" / "bin" / "python"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None or not SERVER.exists(),
    reason=f"needs the extra mlflow, and a server in the environment {SERVER.parents[1]}",
)
SMALL = ["run", "model=lstm", "model.d_hidden=5", "task=fitzhugh_nagumo", "profile=smoke", "tracker=mlflow"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server with an empty database."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(SERVER), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"]
    command += ["--default-artifact-root", str(folder / "artifacts")]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(process, address, folder / "log.txt")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _wait(process, address, log):
    end = time.monotonic() + 300
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.5)


@pytest.fixture
def environment(server, tmp_path):
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PHYSML_", "WANDB_"))
    }
    return variables | {"PHYSML_RESULTS": str(tmp_path / "results"), "MLFLOW_TRACKING_URI": server}


def physml(environment, *words):
    command = [sys.executable, "-m", "physml", *words]
    return subprocess.run(command, env=environment, cwd=ROOT, text=True, capture_output=True, check=False)


def copies(server, **tags):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=server)
    project = client.get_experiment_by_name("physml")
    condition = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    runs = client.search_runs([project.experiment_id], condition)
    return [(run, client.get_metric_history(run.info.run_id, "valid/rmse")) for run in runs]


def test_a_run_and_its_record_are_one_copy(server, environment, tmp_path):
    done = physml(environment, *SMALL, "tracker.tags=[first]")
    assert done.returncode == 0, done.stderr
    ((run, history),) = copies(server, **{"tag.first": "true"})
    assert run.info.status == "FINISHED" and [point.step for point in history] == [2, 4]
    assert run.data.metrics["best/valid/rmse"] == pytest.approx(min(point.value for point in history))
    folder = str(tmp_path / "results" / "runs")
    for _ in range(2):
        done = physml(environment, "track", "sync", "--tracker", "mlflow", folder)
        assert done.returncode == 0, done.stderr
    ((_, again),) = copies(server, **{"tag.first": "true"})
    assert [point.step for point in again] == [2, 4]


def test_a_record_is_sent_to_the_server(server, environment):
    record = run_paths(ROOT / "results" / "runs" / "lem" / "fitzhugh_nagumo-lem")[0]
    done = physml(environment, "track", "sync", "--tracker", "mlflow", str(record))
    assert done.returncode == 0 and "1 runs sent" in done.stdout, done.stderr
    ((run, history),) = copies(server, **{"tag.lem-4": "true"})
    assert run.info.run_name == f"lem/fitzhugh_nagumo-lem-{record.stem}"
    assert len({point.step for point in history}) == len(history) > 100


def test_a_server_that_is_gone_hurts_no_run(environment):
    environment |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = physml(environment, *SMALL, "seed=7")
    assert done.returncode == 0 and "MLflow init failed" in done.stderr
    done = physml(environment, "track", "sync", "--tracker", "mlflow", environment["PHYSML_RESULTS"])
    assert done.returncode == 1 and "took nothing" in done.stdout
