"""A real Slurm cluster of one node: pilots are killed, preempted, queued again; no run is lost or doubled.

`make integration` installs and runs this; it takes minutes. It skips where Slurm is not installed, or without
root.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from pilots_harness import LONG, ROOT, outputs, physml, pilots, records, until

MINE = ("squeue", "-h", "--array", "-o", "%i", "--me")
CLUSTER = ROOT / "scripts" / "cluster" / "one_node_slurm.sh"
pytestmark = pytest.mark.skipif(
    shutil.which("slurmctld") is None or os.getuid() != 0,
    reason="needs Slurm and root: scripts/cluster/one_node_slurm.sh install",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """SLURM_CONF of a cluster that is idle."""
    folder = tmp_path_factory.mktemp("slurm")
    environment = os.environ | {"PORT": "17817"}
    started = subprocess.run(
        [CLUSTER, "start", folder], env=environment, text=True, capture_output=True, check=True
    )
    yield started.stdout.strip().rpartition("=")[2]
    subprocess.run([CLUSTER, "stop", folder], check=True)


@pytest.fixture
def environment(cluster, tmp_path):
    variables = os.environ | {"SLURM_CONF": cluster, "PHYSML_RESULTS": str(tmp_path / "shared")}
    variables.pop("PHYSML_RUNS", None)
    # until the jobs before have let it go
    until(lambda: slurm(variables, "sinfo", "-h", "-o", "%T").strip() == "idle")
    yield variables | {"WANDB_MODE": "disabled"}
    slurm(variables, "scancel", "--user", "root")


def slurm(environment, *command):
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=True).stdout


def start_waiting(environment):
    """Without the two minutes that Slurm leaves a job that was queued again; the node needs some seconds."""
    time.sleep(5)
    for waiting in slurm(environment, *MINE, "--states=PENDING").split():
        slurm(environment, "scontrol", "update", f"JobId={waiting}", "StartTime=now")


def test_a_table_by_two_pilots_is_the_table_of_one_machine(environment, tmp_path):
    table = ["table", "lem-9", "--smoke", "--seeds", "0,1"]
    done = physml(environment, *table, "--on", "slurm", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "Slurm job" in done.stdout and "ok: 4 rows, 0 failed" in done.stdout
    alone = environment | {"PHYSML_RESULTS": str(tmp_path / "alone")}
    assert physml(alone, *table).returncode == 0
    assert records(environment) == records(alone) and len(records(alone)) == 8
    assert set(outputs(environment).values()) == {1}


def test_killed_and_preempted_pilots_lose_nothing(environment, local):
    """One pilot is killed at once, the job of the other is told to stop and comes back by itself."""
    engine = ["--on", "slurm", "--workers", "2", "--engine", "memory_gib=2"]
    command = subprocess.Popen(
        [sys.executable, "-m", "physml", *LONG, *engine],
        env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        until(lambda: len(pilots(environment)) == 2)
        until(lambda: "step" in physml(environment, "status").stdout)
        status = physml(environment, "status")
        assert "running" in status.stdout and "left" in status.stdout
        victim, _ = pilots(environment)
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(slurm(environment, *MINE, "--states=RUNNING").split()) == 1)
        (job,) = slurm(environment, *MINE, "--states=RUNNING").split()
        slurm(environment, "scancel", "--signal=USR1", "--batch", job)
        until(lambda: not pilots(environment))
        until(lambda: "PENDING" in slurm(environment, "squeue", "-h", "--array", "-o", "%T", "--me"))
        start_waiting(environment)
        out, _ = command.communicate(timeout=600)
    finally:
        command.kill()
    assert command.returncode == 0, out
    assert records(environment) == local
    assert set(outputs(environment).values()) == {1}


def test_a_drained_node_gets_its_work_again(environment, local):
    detached = physml(environment, *LONG, "--on", "slurm", "--workers", "1", "--detach")
    assert detached.returncode == 0 and "submitted" in detached.stderr
    until(lambda: pilots(environment))
    node = slurm(environment, "sinfo", "-h", "-o", "%n").strip()
    slurm(environment, "scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    slurm(environment, "scontrol", "requeue", re.search(r"Slurm job (\d+)", detached.stdout)[1])
    until(lambda: not pilots(environment))
    assert "stopped" in physml(environment, "status").stdout or not outputs(environment)
    slurm(environment, "scontrol", "update", f"NodeName={node}", "State=RESUME")
    start_waiting(environment)
    until(lambda: not slurm(environment, "squeue", "-h", "--me").strip(), 600)
    assert records(environment) == local
