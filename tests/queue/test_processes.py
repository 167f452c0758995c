"""Forked runs: the numbers of fresh processes, and the ends of a server that is killed or out of date.

Signals, kills and exit codes of forks are tested with those of fresh processes, in test_scheduler.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import types
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
import run_harness as h
import torch

from physml.base import lease
from physml.queue import planning, preload, processes, scheduler, worker
from physml.records import record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")


@pytest.fixture
def fork(monkeypatch):
    monkeypatch.setenv("PHYSML_FORK", "1")


@pytest.fixture
def own_server(fork, monkeypatch):
    """A server that is really started, in the place of that of the harness, which stays as it is."""
    own = forkserver.ForkServer()
    for name in ("ensure_running", "connect_to_new_process", "set_forkserver_preload"):
        monkeypatch.setattr(forkserver, name, getattr(own, name))
    yield
    own._stop()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_records_and_surroundings_are_those_of_fresh_processes(own_server, monkeypatch):
    """Everything that runs share with their server: random numbers, threads, environment."""
    specs, main, fresh = h.specs_of(h.odd("seed=0,1", "net.dropout=0.5")), sys.modules["__main__"], []
    with monkeypatch.context() as patch:
        patch.setattr(processes, "start_fresh", lambda *arguments: fresh.append(arguments))
        assert scheduler.carry_out(planning.plan(specs), jobs=2).exit_code == 0
    records, curve = [record.read(spec.record_path) for spec in specs], h.curve(specs[1])
    assert not fresh and all(spec.output_file.read_text().endswith("finished\n") for spec in specs)
    assert sys.modules["__main__"] is main
    assert records[0]["metrics"] != records[1]["metrics"]
    assert scheduler.carry_out(planning.plan(specs[1:], force=True), jobs=2, force=True).exit_code == 0
    again = record.read(specs[1].record_path)  # a single run is a fresh process
    for key in (records[1].keys() | again.keys()) - {"cost", "started", "ended", "code"}:
        assert records[1][key] == again[key], key
    assert h.curve(specs[1]) == curve


def test_loading_draws_no_random_number():
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    preload.load(["physml.models.sequence.lem.LEM", "tasks.adding.Adding", "physml.nothing.Nothing"])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all() and random.getstate() == before[2]


def test_runs_go_on_when_their_server_is_killed_and_later_ones_have_another(fork, tmp_path):
    overrides = h.odd("seed=0,1,2", step_s=0.2)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: all(map(h.begun, specs[:2])))
    first, second = (parent_of(h.holder(spec)) for spec in specs[:2])
    assert first == second != process.pid
    os.kill(first, signal.SIGKILL)
    assert process.wait() == 0, process.text()
    assert h.states(specs) == ["done"] * 3


def test_a_server_ends_with_its_launcher_and_the_runs(fork, tmp_path):
    overrides = h.odd("seed=0,1", step_s=0.15)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: all(map(h.begun, specs)))
    workers = [h.holder(spec) for spec in specs]
    server = parent_of(workers[0])
    process.kill()
    assert all(lease.started(pid) for pid in workers)
    h.until(lambda: not any(lease.started(pid) for pid in [*workers, server]))
    assert h.states(specs) == ["done"] * 2


# ---------------------------------------------------------------------------- the parts, without torch


class Replaced(Exception):
    """Raised in the place of `os.execve`, which does not return."""


@pytest.fixture
def in_a_fork(monkeypatch):
    """`preload.run` in this process, which keeps its session, streams and variables."""
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(os, "environ", {})
    seen = []

    def execve(path, arguments, variables):
        raise Replaced(arguments, variables)

    def as_process(arguments):
        seen.append((arguments, list(sys.path), list(sys.argv)))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(worker, "as_process", as_process)
    monkeypatch.setattr(sys, "argv", ["launcher"])
    monkeypatch.setattr(preload, "PATH", list(sys.path))
    return seen


def test_a_fork_of_sound_sources_is_the_worker(in_a_fork, monkeypatch, tmp_path):
    monkeypatch.setattr(preload, "PRELOADED", preload.sources())
    preload.run(["spec.json"], str(tmp_path / "output"), {"A": "1"})
    assert in_a_fork == [(["spec.json"], preload.PATH, [worker.__file__, "spec.json"])]
    assert os.environ == {"A": "1"}


@pytest.mark.parametrize("reason", ["sources", "threads"])
def test_a_fork_that_is_not_sound_becomes_a_fresh_process(reason, in_a_fork, monkeypatch, tmp_path):
    """Because the code was edited since the server has imported it, or because a library has threads."""
    edited = preload.sources() | {worker.__file__: "1 2 3 4"}
    monkeypatch.setattr(preload, "PRELOADED", edited if reason == "sources" else None)
    with pytest.raises(Replaced) as replaced:
        preload.run(["spec.json"], str(tmp_path / "output"), {"A": "1"})
    assert replaced.value.args == (preload.command(["spec.json"]), {"A": "1"}) and not in_a_fork


def test_without_a_server_runs_are_fresh_processes(monkeypatch, tmp_path):
    def fails(self, _variables):
        raise EOFError

    monkeypatch.setattr(processes.ForkServer, "_ensure_running", fails)
    monkeypatch.setattr(processes, "start_fresh", lambda *arguments: arguments)
    spec, main = h.spec_of(h.odd()), sys.modules["__main__"]
    arguments, output, _ = processes.start_worker(spec, [], server=processes.ForkServer([spec]))
    assert arguments[:2] == [str(spec.work_folder / "spec.json"), "--sha256"] and output == spec.output_file
    assert sys.modules["__main__"] is main


SPEC = types.SimpleNamespace(work_folder=Path("no such folder"))


def fork_with(*exit_codes):
    """A fork of which multiprocessing reports these exit codes, then the last for ever."""
    codes = list(exit_codes)

    class Process(types.SimpleNamespace):
        pid = 2**22 + 1  # no such process

        @property
        def exitcode(self):
            return codes.pop(0) if len(codes) > 1 else codes[0]

        def join(self):
            pass

    return processes.Forked(Process(), SPEC)


def test_exit_codes_are_those_of_the_process_or_of_files_if_its_server_died(monkeypatch, tmp_path) -> None:
    for code in (0, 1, 2, 75, -9):
        fork = fork_with(None, code)
        assert fork.wait() == code == fork.poll()
    fork = fork_with(None, None, processes.SERVER_DIED)
    monkeypatch.setattr(lease, "started", lambda pid: 1)
    assert fork.poll() is None and fork.poll() is None
    monkeypatch.setattr(lease, "started", lambda pid: None)
    monkeypatch.setattr(processes, "state_of", lambda spec: "stopped")
    assert fork.poll() == 75 == fork.wait()
    monkeypatch.setattr(lease, "started", lambda pid: None)
    monkeypatch.setattr(processes, "state_of", lambda spec: "done")
    assert fork_with(processes.SERVER_DIED).wait() == 0
    (tmp_path / "forced").touch()
    monkeypatch.setattr(SPEC, "work_folder", tmp_path)
    assert fork_with(processes.SERVER_DIED).wait() == 75


def test_a_pause_is_one_even_beside_a_server_that_died(monkeypatch):
    """Its pipe is at its end, which looks as if a run had ended."""
    began = time.monotonic()
    processes.pause([fork_with(processes.SERVER_DIED)], 0.1)
    processes.pause([], 0.1)
    assert time.monotonic() - began >= 0.2


def test_what_is_loaded_of_the_checkout_is_watched(monkeypatch, tmp_path):
    module = type(sys)("physml_watched")
    module.__file__ = str(tmp_path / "physml" / "watched.py")
    Path(module.__file__).parent.mkdir()
    Path(module.__file__).write_text("")
    monkeypatch.setitem(sys.modules, "physml_watched", module)
    assert module.__file__ not in preload.sources()
    monkeypatch.setattr(preload, "ROOT", tmp_path)
    before = preload.sources()
    assert list(before) == [module.__file__]
    os.utime(module.__file__, ns=(1, 1))
    changed = preload.sources()
    assert changed != before
    Path(module.__file__).unlink()
    assert preload.sources() not in (before, changed)


def test_threads_are_seen_and_forks_are_for_one_thread_on_a_cpu_and_named_classes() -> None:
    wait = threading.Event()
    other = threading.Thread(target=wait.wait)
    other.start()
    try:
        assert not preload.one_thread()
    finally:
        wait.set()
        other.join()
    model = {"_target_": "physml.models.sequence.lem.LEM", "inner": [{"_target_": "own.Net"}]}
    config = {"model": model, "task": {"_target_": "tasks.adding.Adding"}}
    assert processes.targets_of(config) == {"physml.models.sequence.lem.LEM", "tasks.adding.Adding"}
    assert processes.may_fork(h.spec_of(h.odd()))
    assert not processes.may_fork(h.spec_of(h.odd("runtime.threads=2")))


def test_threads_of_openmp_wait_briefly_unless_the_user_says_how(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    assert "GOMP_SPINCOUNT" not in processes.environment(1)
    assert int(processes.environment(2)["GOMP_SPINCOUNT"]) > 0
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in processes.environment(2)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel weighs no sessions")
@pytest.mark.parametrize("nice", [0, 5])
def test_the_session_of_a_run_is_as_nice_as_its_process(nice):
    code = (
        "import os; from pathlib import Path; from physml.queue.worker import keep_niceness; "
        f"os.nice({nice}); keep_niceness(); print(Path('/proc/self/autogroup').read_text())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    # the tests may be nice themselves
    assert done.stdout.split()[1:] == ["nice", str(max(0, os.nice(0) + nice))], done.stderr
