"""Real Ray clusters on this machine: pilots and nodes are killed; no run is lost or doubled.

`make integration` installs and runs this; it takes minutes. It skips where ray is not installed.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from pilots_harness import LONG, ROOT, outputs, physml, pilots, records, until

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs ray: pip install '.[ray]'"
)
ENGINE = ["--on", "ray", "--workers", "2", "--engine", "memory_gib=1"]


@pytest.fixture
def environment(tmp_path):
    variables = os.environ | {"PHYSML_RESULTS": str(tmp_path / "shared"), "WANDB_MODE": "disabled"}
    variables.pop("PHYSML_RUNS", None)
    return variables | {"RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def cluster(monkeypatch):
    """A head without cores, and two nodes of which each can hold both pilots."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ray's own
        from ray.cluster_utils import Cluster

        ray_cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        ray_cluster.two = [ray_cluster.add_node(num_cpus=2, memory=4 * 2**30) for _ in range(2)]
        yield ray_cluster
        ray_cluster.shutdown()


def started(environment, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "physml", *arguments],
        env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def with_folder(environment):
    """All processes that have been given the results folder, those of Ray among them."""
    mark, command_lines = f"PHYSML_RESULTS={environment['PHYSML_RESULTS']}".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                command_lines[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:
            continue
    return command_lines


def node_of(pilot):
    """The process id of the Ray node on which a pilot runs."""
    for word in Path(f"/proc/{pilot}/environ").read_bytes().split(b"\0"):
        name, _, value = word.decode(errors="replace").partition("=")
        if name == "RAY_RAYLET_PID":
            return int(value)
    raise AssertionError("not the pilot of a Ray worker")


def test_a_table_by_two_pilots_is_the_table_of_one_machine(environment, tmp_path):
    table = ["table", "lem-9", "--smoke", "--seeds", "0,1"]
    done = physml(environment, *table, *ENGINE)
    assert done.returncode == 0, done.stderr
    assert "Ray pilots" in done.stdout and "ok: 4 rows, 0 failed" in done.stdout
    assert not with_folder(environment)
    alone = environment | {"PHYSML_RESULTS": str(tmp_path / "alone")}
    assert physml(alone, *table).returncode == 0
    assert records(environment) == records(alone) and len(records(alone)) == 8
    assert set(outputs(environment).values()) == {1}


def test_a_killed_pilot_and_a_dead_node_lose_nothing(environment, cluster, local):
    command = started(environment, *LONG, *ENGINE, "--engine", f"address={cluster.address}")
    try:
        until(lambda: len(pilots(environment)) == 2)
        until(lambda: "step" in physml(environment, "status").stdout)
        victim, _ = pilots(environment)
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(set(pilots(environment)) - {victim}) == 2)
        nodes = {node.all_processes["raylet"][0].process.pid: node for node in cluster.two}
        dying = node_of(pilots(environment)[0])
        before = set(pilots(environment))
        cluster.remove_node(nodes[dying], allow_graceful=False)
        until(lambda: set(pilots(environment)) - before)
        assert {node_of(pilot) for pilot in set(pilots(environment)) - before} == set(nodes) - {dying}
        out, _ = command.communicate(timeout=600)
    finally:
        command.kill()
    assert command.returncode == 0, out
    assert records(environment) == local
    assert set(outputs(environment).values()) == {1}
    until(lambda: not pilots(environment))


def test_detached_pilots_go_on_without_the_command(environment, cluster, local):
    done = physml(environment, *LONG, *ENGINE, "--detach", "--engine", f"address={cluster.address}")
    assert done.returncode == 0 and "submitted" in done.stderr, done.stderr
    until(lambda: len(pilots(environment)) == 2)
    victim, _ = pilots(environment)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(set(pilots(environment)) - {victim}) == 2)
    until(lambda: not pilots(environment), 600)
    assert records(environment) == local
    assert set(outputs(environment).values()) == {1}


def test_ctrl_c_ends_the_cluster_of_the_command_and_leaves_checkpoints(environment, local):
    command = started(environment, *LONG, *ENGINE)
    try:
        until(lambda: outputs(environment))  # a run has begun; all of them together take half a minute
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=300)
    finally:
        command.kill()
    assert command.returncode == 75 and "the pilots are stopped" in out, out
    until(lambda: not with_folder(environment))
    assert "stopped" in physml(environment, "status").stdout
    assert physml(environment, *LONG).returncode == 0
    assert records(environment) == local
