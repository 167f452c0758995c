"""The engine Ray without Ray: its plan, what it refuses, and how a pilot is started and ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import run_harness as h
from refusals import refuses

from physml.base.errors import ConfigError, MissingExtra
from physml.base.paths import ROOT
from physml.cli import main
from physml.queue import planning, scheduler
from physml.queue.engines import ray_pilot
from physml.queue.engines.job import Settings, folder_of_logs, job_of
from physml.queue.engines.ray import Ray, RayJob, RaySettings
from physml.queue.engines.ray_pilot import Again, Order
from physml.queue.engines.session import Session
from physml.run import resources


@pytest.fixture
def job():
    specs = h.specs_of(h.odd("seed=0,1,2"))
    return job_of(Settings(workers=2, memory_gib=1.5), ["table", "x", "--on", "pilot"], planning.plan(specs))


def order(tmp_path, code, **environment):
    return Order([sys.executable, "-c", code], environment, str(tmp_path), str(tmp_path), 3)


# ---------------------------------------------------------------------------- settings and plan


OWN = "which ends with the command"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], f"2 tasks on a Ray cluster on this machine, {OWN}, each with CPU 1, 1.5 GiB"),
        (["address=auto"], "2 tasks on the Ray cluster that runs on this machine, each"),
        (["address=10.0.0.1:6379", "resources={a100: 1}", "retries=2"], "Ray cluster 10.0.0.1:6379, each"),
    ],
)
def test_the_plan_says_what_would_be_started(job, changes, says):
    text = Ray(changes).describe(job)
    assert says in text and "physml table x --on pilot" in text
    assert ("a100 1; started again 2 times" if "retries=2" in changes else "again always") in text


def test_a_plan_starts_nothing_and_needs_no_ray(capsys, prints, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    table = ["table", "lem-9", "--smoke", "--on", "ray", "--workers", "3"]
    assert "3 tasks on a Ray cluster" in prints(0, *table, "--plan").out
    assert main.main([*table, "--detach", "--engine", "address=auto", "--plan"]) == 0
    assert "3 detached actors on the Ray cluster" in capsys.readouterr().out
    assert main.main(table) == 2
    assert "error: --on ray needs ray. Install it with: pip install 'ray>=2.52'" in capsys.readouterr().err


def test_pilots_of_the_commands_own_cluster_cannot_be_left_and_none_starts_without_tokens(job, monkeypatch):
    planned, session = planning.plan([h.spec_of(h.odd())]), Session(Ray([]), ["x"], detach=True)
    with pytest.raises(ConfigError, match="--detach needs a Ray cluster that goes on"), session.active():
        scheduler.carry_out(planned, jobs=None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra):
        Ray([]).submit(job)
    # Whoever reaches its ports could run code: https://docs.ray.io/en/latest/ray-security/token-auth.html.
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.51.1"))
    with pytest.raises(ConfigError, match=r"needs Ray 2\.52, whose ports ask for a token; this is Ray 2\.51"):
        Ray([]).submit(job)
    assert os.environ["RAY_AUTH_MODE"] == "token" and len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_a_cluster_of_ones_own_is_for_its_user_alone(job, monkeypatch):
    """Ray opens its temporary folder to all, and its ports to the network: the folder above is closed."""
    received = {}
    ray = SimpleNamespace(
        init=lambda **options: received.update(options),
        cluster_resources=lambda: {"CPU": 99.0, "memory": 2.0**60},
        shutdown=lambda: None,
    )
    ray_job = RayJob(ray, folder_of_logs("ray"), True)
    ray_job.connect(RaySettings(), job)
    temporary = Path(received["_temp_dir"]).parent
    assert temporary.stat().st_mode & 0o777 == 0o700 and received["_node_ip_address"] == "127.0.0.1"
    assert ray_job.folder.stat().st_mode & 0o777 == 0o700 and ray_job.folder != folder_of_logs("ray")
    ray_job.close()
    assert not temporary.exists()


def test_a_pilot_that_fits_nowhere_is_refused_and_one_keeps_to_what_ray_gave_it(tmp_path, monkeypatch):
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0, "memory": 2.0**31})
    ray_job = RayJob(ray, tmp_path, True)
    ray_job._refuse_too_small({"CPU": 2.0, "memory": 2.0**31})
    for needs, says in (({"CPU": 3.0}, "CPU 3; this machine has CPU 2"), ({"GPU": 1.0}, "has GPU 0")):
        refuses(ConfigError, says, ray_job._refuse_too_small, needs)
    monkeypatch.setattr(resources, "_groups", lambda _: [])
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setenv("PHYSML_CPUS", "1")
    assert resources.cores() == 1
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "900")
    monkeypatch.setenv("PHYSML_MEMORY_MIB", "300")
    assert resources.free_memory() < 300 * resources.MIB


# ---------------------------------------------------------------------------- one pilot


def test_a_pilot_has_its_environment_and_writes_its_log(tmp_path):
    code = "import os; print(os.environ['SAID'], os.getcwd()); raise SystemExit(1)"
    assert ray_pilot.run(order(tmp_path, code, SAID="yes")) == 1
    assert (tmp_path / "pilot-3.log").read_text() == f"yes {tmp_path}\n"


@pytest.mark.parametrize("code", ["raise SystemExit(75)", "import os; os.kill(os.getpid(), 9)"])
def test_a_pilot_that_was_stopped_or_killed_is_started_again(tmp_path, code):
    refuses(Again, "pilot 3 ended with", ray_pilot.run, order(tmp_path, code))


WAITS = """
import signal, sys, time
def stop(*_):
    open("stopped", "w").close()
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
open("begun", "w").write(str(__import__("os").getpid()))
while True:
    time.sleep(0.1)
"""


def test_the_stop_file_ends_pilots_for_good(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_pilot.time, "sleep", lambda _: _touch_stop(tmp_path))
    assert ray_pilot.run(order(tmp_path, WAITS)) == 75
    assert (tmp_path / "stopped").exists()
    (tmp_path / "begun").unlink()
    assert ray_pilot.run(order(tmp_path, WAITS)) == 75
    assert not (tmp_path / "begun").exists()


def _touch_stop(folder):
    if (folder / "begun").exists() and (folder / "begun").read_text():
        (folder / ray_pilot.STOP).touch()


@pytest.mark.skipif(sys.platform != "linux", reason="a process is told of its parent's death on Linux")
def test_a_pilot_ends_with_the_worker_that_started_it(tmp_path):
    code = (
        "import sys; from physml.queue.engines import ray_pilot as r; "
        "r.run(r.Order([sys.executable, '-c', sys.argv[1]], {}, sys.argv[2], sys.argv[2], 3))"
    )
    command = [sys.executable, "-c", code, WAITS, str(tmp_path)]
    worker = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    h.until(lambda: (tmp_path / "begun").exists())
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    h.until(lambda: (tmp_path / "stopped").exists())
