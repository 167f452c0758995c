"""A search by four workers, one of them killed, with a copy on a real PostgreSQL: another takes its run over.

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
STUDY = """
task: fitzhugh_nagumo
provenance: {kind: own, source: a test}
search: {metric: rmse, better: lower, trials: 10, seed: 1000, trial: {trainer.epochs: 30}}
searches: {rate: {space: {optim.lr: {low: 1.0e-3, high: 1.0e-1, log: true}}}}
rows: {lem: {model: lem, search: rate}}
"""


@pytest.fixture(scope="module")
def url():
    folder = Path(tempfile.mkdtemp(prefix="physml-postgresql-"))  # which user postgres can reach
    environment = os.environ | {"PORT": "15499"}
    started = subprocess.run([SERVER, "start", folder], env=environment, text=True, stdout=subprocess.PIPE)
    assert started.returncode == 0
    yield started.stdout.strip()
    subprocess.run([SERVER, "stop", folder], check=True)
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["database", "journal"])
def test_four_workers_one_killed(kind, url, tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    storage = url if kind == "database" else str(tmp_path / "trials.journal")
    environment = os.environ | {
        "PHYSML_RESULTS": str(tmp_path), "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"
    }  # fmt: skip
    environment.pop("PHYSML_RUNS", None)
    search = ["search", f"{tmp_path}/study.yaml:lem", "--storage", storage, "--on", "pilot", "--jobs", "1"]
    command = [sys.executable, "-m", "physml", *search]
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
    results = json.loads((tmp_path / "search" / "adhoc-study-lem.json").read_text())
    assert [row["trial"] for row in results["trials"]] == list(range(TRIALS))
    assert {row["status"] for row in results["trials"]} == {"finished"}
    outputs = (tmp_path / "work").rglob("output.txt")
    assert [path.read_text().splitlines().count("finished") for path in outputs] == [1] * TRIALS
    opened = (
        optuna.storages.RDBStorage(url)
        if kind == "database"
        else optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    )
    (study,) = optuna.get_all_study_summaries(opened)
    if kind == "database":
        opened.remove_session()
        opened.engine.dispose()
    assert study.n_trials == TRIALS and study.best_trial.value == results["best"]["value"]
