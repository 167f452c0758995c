"""Forked runs: the numbers of fresh processes, and the ends of a server that is killed or out of date.

Signals, kills and exit codes of forks are tested with those of fresh processes, in test_scheduler.
"""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest
import run_harness as h
import torch

from physml.execution import planning, preload, processes, scheduler
from physml.records import record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")


@pytest.fixture
def fork(monkeypatch):
    monkeypatch.setenv("PHYSML_FORK", "1")


@pytest.fixture
def own_server(fork):
    """No server of the harness runs before or after, so that a real one is started."""
    forkserver._forkserver._stop()
    h.server.cache_clear()
    yield
    forkserver._forkserver._stop()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_records_and_surroundings_are_those_of_fresh_processes(own_server, monkeypatch):
    """Everything that runs share with their server: random numbers, threads, environment."""
    fresh = []
    monkeypatch.setattr(processes, "start_fresh", lambda *arguments: fresh.append(arguments))
    specs = h.specs_of(h.odd("seed=0,1", "net.dropout=0.5"))
    assert scheduler.carry_out(planning.plan(specs), jobs=2).exit_code == 0
    made = [record.read(spec.record_path) for spec in specs]
    curves = [h.curve(spec) for spec in specs]
    assert not fresh and all(spec.output_file.read_text().endswith("finished\n") for spec in specs)
    assert "__mp_main__" not in sys.modules and sys.modules["__main__"].__spec__ is not None
    monkeypatch.undo()
    monkeypatch.setenv("PHYSML_FORK", "0")
    for spec, one, rows in zip(specs, made, curves, strict=True):
        process = h.start(spec, force=True)
        assert process.wait() == 0, process.text()
        again = record.read(spec.record_path)
        passing = {"cost", "started", "ended", "code"}
        assert {k: v for k, v in one.items() if k not in passing} == {
            k: v for k, v in again.items() if k not in passing
        }
        assert h.curve(spec) == rows
    assert made[0]["metrics"] != made[1]["metrics"]


def test_loading_draws_no_random_number():
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    preload.load(["physml.models.lem.LEM", "tasks.adding.Adding", "physml.nothing.Nothing"])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all() and random.getstate() == before[2]


def test_runs_go_on_when_their_server_is_killed_and_later_ones_have_another(fork, tmp_path):
    overrides = h.odd("seed=0,1,2", step_s=0.2)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: all((spec.work_folder / "metrics.jsonl").exists() for spec in specs[:2]))
    first, second = (parent_of(h.holder(spec)) for spec in specs[:2])
    assert first == second != process.pid
    os.kill(first, signal.SIGKILL)
    assert process.wait() == 0, process.text()
    assert [p.state for p in planning.plan(specs)] == ["done"] * 3


def test_a_server_ends_with_its_launcher_and_the_runs(fork, tmp_path):
    overrides = h.odd("seed=0,1", step_s=0.15)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: all((spec.work_folder / "metrics.jsonl").exists() for spec in specs))
    workers = [h.holder(spec) for spec in specs]
    server = parent_of(workers[0])
    process.kill()
    process.wait()
    assert all(processes.is_alive(pid) for pid in workers)
    h.until(lambda: not any(processes.is_alive(pid) for pid in [*workers, server]))
    assert [p.state for p in planning.plan(specs)] == ["done"] * 2


# ---------------------------------------------------------------------------- what a fork runs, without torch


def start(tmp_path, monkeypatch, function, *arguments):
    """`function` as a run of the fork server."""
    monkeypatch.setattr(preload, "run", function)
    server = processes.ForkServer([])
    h.server()  # has imported this module's functions by their names
    return server.start(list(arguments), tmp_path / "out", {**os.environ}, lambda: 75)


def ends(arguments, _output, _variables):
    sys.exit(int(arguments[0]))


def waits(_arguments, _output, _variables):
    time.sleep(600)


def test_exit_codes_come_in_any_order(monkeypatch, tmp_path):
    one = start(tmp_path, monkeypatch, time.sleep, 1)
    assert one.pid
