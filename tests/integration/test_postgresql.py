"""A search by four workers on a real PostgreSQL, one of them killed: its trial is taken over, the cap holds.

`make integration` installs and runs this. It skips where PostgreSQL or its driver is not installed.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import optuna
import pytest

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "scripts" / "cluster" / "local_postgresql.sh"
pytestmark = pytest.mark.skipif(
    not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or importlib.util.find_spec("psycopg") is None,
    reason="needs scripts/cluster/local_postgresql.sh install and pip install '.[postgresql]'",
)
TRIALS = 10
SEARCH = ["search", "lem/fitzhugh_nagumo-lem-searched", "--sampler", "tpe", "--trials", str(TRIALS)]


@pytest.fixture(scope="module")
def url():
    folder = Path(tempfile.mkdtemp(prefix="physml-postgresql-"))  # which user postgres can reach
    environment = os.environ | {"PORT": "15499"}
    told = subprocess.run([SERVER, "start", folder], env=environment, text=True, stdout=subprocess.PIPE)
    assert told.returncode == 0
    yield told.stdout.strip()
    subprocess.run([SERVER, "stop", folder], check=True)
    shutil.rmtree(folder)


@pytest.fixture(params=["database", "journal"])
def storage(request, url):
    return ["--storage", url] if request.param == "database" else []


def test_four_workers_one_killed(storage, tmp_path):
    environment = os.environ | {
        "PHYSML_RESULTS": str(tmp_path), "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"
    }  # fmt: skip
    environment.pop("PHYSML_RUNS", None)
    command = [sys.executable, "-m", "physml", *SEARCH, *storage, "--on", "pilot", "--jobs", "1"]
    logs = [tmp_path / f"{i}.log" for i in range(4)]
    workers = []
    for path in logs:
        with path.open("w") as log:
            output = {"stdout": log, "stderr": subprocess.STDOUT}
            workers.append(subprocess.Popen(command, env=environment, cwd=ROOT, **output))
    try:
        end = time.monotonic() + 1200
        while not list((tmp_path / "runs").rglob("*-seed1000.json")):  # the first trial has ended
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.5)
        workers[0].send_signal(signal.SIGKILL)
        codes = [worker.wait(timeout=3600) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert codes[0] == -signal.SIGKILL and codes[1:] == [0, 0, 0], [log.read_text() for log in logs]
    made = json.loads((tmp_path / "search" / "fitzhugh_nagumo-lem-tpe.json").read_text())
    assert [row["trial"] for row in made["trials"]] == list(range(TRIALS))
    assert {row["status"] for row in made["trials"]} == {"finished"}
    assert len(list((tmp_path / "runs").rglob("*-seed1000.json"))) == TRIALS
    outputs = (tmp_path / "work").rglob("output.txt")
    assert [path.read_text().splitlines().count("finished") for path in outputs] == [1] * TRIALS
    if storage:
        opened = optuna.storages.RDBStorage(storage[1])
        (study,) = optuna.get_all_study_summaries(opened)
        opened.remove_session()
        opened.engine.dispose()
        assert study.n_trials == TRIALS and study.best_trial.value == made["best"]["value"]
        assert not list((tmp_path / "search").glob("*.journal"))
